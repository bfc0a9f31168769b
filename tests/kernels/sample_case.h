// Sampling for tests: rows of logits with their parameters, a launch over them, and the same choice made on the host
// in double from the published definition of Philox.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels_src/sample.h"
#include "tests/kernels/numbers.h"
#include "tests/kernels/one_node.h"

namespace nodewright::test {

struct SampleRow {
  std::vector<float> logits;
  float temperature = 1.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  uint64_t seed = 0;
  int32_t output_index = 0;
};

// Logits with natural logarithms of these probabilities, to within a common factor.
inline std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

struct SampleLaunch {
  // Elements between two rows: at least 3 NaN after a row's logits, and the next row 16-byte aligned.
  static size_t stride_of(size_t vocab) { return (vocab + 3 + 3) / 4 * 4; }

  std::vector<SampleRow> rows;
  int32_t n_live = -1;             // -1: all
  std::vector<int32_t> sequences;  // empty: row m writes last_token[rows - 1 - m]

  struct Result {
    std::vector<int32_t> tokens, last_token;
  };

  Result run() const {
    const size_t count = rows.size(), vocab = rows[0].logits.size(), stride = stride_of(vocab);
    std::vector<float> logits = poisoned<float>(count * stride), temperature, top_p;
    std::vector<int32_t> top_k, index, sequence = sequences;
    std::vector<uint64_t> seed;
    for (size_t m = 0; m < count; ++m) {
      std::copy(rows[m].logits.begin(), rows[m].logits.end(), logits.begin() + static_cast<int64_t>(m * stride));
      temperature.push_back(rows[m].temperature);
      top_p.push_back(rows[m].top_p);
      top_k.push_back(rows[m].top_k);
      seed.push_back(rows[m].seed);
      index.push_back(rows[m].output_index);
      if (sequences.empty()) sequence.push_back(static_cast<int32_t>(count - 1 - m));
    }
    const Guarded<float> logit_rows("logits", logits), temperatures("temperature", temperature), top_ps("top_p", top_p);
    const Guarded<int32_t> sequence_ids("sequences", sequence), top_ks("top_k", top_k), indices("output_index", index),
        live("n_live", std::vector{n_live < 0 ? static_cast<int32_t>(count) : n_live}), tokens("tokens", count),
        last("last_token", std::vector<int32_t>(count, -7));
    const Guarded<uint64_t> seeds("seed", seed);
    const auto kernel =
        typed_kernel<Sample>(machine().kernels, {"sample", {}}, sample_shape(static_cast<unsigned>(count)));
    run_node(kernel, {.logits = logit_rows,
                      .sequences = sequence_ids,
                      .temperature = temperatures,
                      .top_k = top_ks,
                      .top_p = top_ps,
                      .seed = seeds,
                      .output_index = indices,
                      .n_live = live,
                      .tokens = tokens,
                      .last_token = last,
                      .vocab = static_cast<int64_t>(vocab),
                      .logits_stride = static_cast<int64_t>(stride)});
    return {tokens.read(), last.read()};
  }
};

inline int32_t sample_one(const SampleRow& row) { return SampleLaunch{{row}, -1, {}}.run().tokens[0]; }

// `count` draws from one row's logits, seeds from `seed`.
inline std::vector<int32_t> draws(const SampleRow& row, size_t count, uint64_t seed = 1) {
  SampleLaunch launch;
  for (size_t i = 0; i < count; ++i) {
    launch.rows.push_back(row);
    launch.rows.back().seed = seed + i;
  }
  return launch.run().tokens;
}

// ---- the host's choice ----

// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.3.
inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c;
}

// Gumbel noise -log(-log(1 - v)), v the first word of (token, output index) under the seed, as a fraction of 2^32.
inline double gumbel(uint64_t seed, int32_t output_index, int32_t token) {
  const auto words = philox({static_cast<uint32_t>(token), static_cast<uint32_t>(output_index), 0, 0},
                            {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return -std::log(-std::log1p(-(words[0] + 0.5) * 0x1p-32));
}

// Which tokens top-k, then top-p keep: ties with the last one kept stay.
inline std::vector<bool> kept_tokens(const SampleRow& row) {
  const size_t vocab = row.logits.size();
  std::vector<float> sorted = row.logits;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  float least = -kInfinity;
  if (row.top_k > 0 && static_cast<size_t>(row.top_k) < vocab) least = sorted[static_cast<size_t>(row.top_k) - 1];
  if (row.top_p < 1.0f) {
    double total = 0.0, reached = 0.0;
    const auto mass = [&](float logit) {
      return std::exp((static_cast<double>(logit) - sorted[0]) / static_cast<double>(row.temperature));
    };
    for (const float logit : sorted)
      if (logit >= least) total += mass(logit);
    for (const float logit : sorted) {
      reached += mass(logit);
      if (reached < total * row.top_p) continue;
      least = std::max(least, logit);
      break;
    }
  }
  std::vector<bool> kept;
  for (const float logit : row.logits) kept.push_back(logit >= least);
  return kept;
}

struct HostChoice {
  int32_t token;
  double margin;  // of its score over the next one's
};

inline HostChoice host_choice(const SampleRow& row) {
  const std::vector<bool> kept = kept_tokens(row);
  HostChoice best{-1, 0.0};
  double first = -kInfinity, second = -kInfinity;
  for (size_t i = 0; i < row.logits.size(); ++i) {
    if (!kept[i]) continue;
    const auto token = static_cast<int32_t>(i);
    const double score =
        static_cast<double>(row.logits[i]) / row.temperature + gumbel(row.seed, row.output_index, token);
    if (score > first) {
      second = first;
      first = score;
      best.token = token;
    } else {
      second = std::max(second, score);
    }
  }
  best.margin = first - second;
  return best;
}

}  // namespace nodewright::test
