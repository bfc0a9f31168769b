// The choice of a token made on the host, in double, from the published definition of Philox.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

namespace nodewright::test {

struct SampleRow {
  std::vector<float> logits;
  float temperature = 1.0f;
  float min_p = 0.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  uint64_t seed = 0;
  int32_t output_index = 0;
};

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

// Word token % 4 of (token / 4, output index) under the seed.
inline uint32_t noise_word(uint64_t seed, int32_t output_index, int32_t token) {
  return philox({static_cast<uint32_t>(token / 4), static_cast<uint32_t>(output_index), 0, 0},
                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)})[static_cast<size_t>(token % 4)];
}

// Gumbel noise -log(-log(1 - v)), v that word as a fraction of 2^32.
inline double gumbel(uint64_t seed, int32_t output_index, int32_t token) {
  return -std::log(-std::log1p(-(noise_word(seed, output_index, token) + 0.5) * 0x1p-32));
}

// Which tokens min-p, then top-k, then top-p keep: ties with the last one kept stay.
inline std::vector<bool> kept_tokens(const SampleRow& row) {
  std::vector<float> sorted = row.logits;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  float least = -std::numeric_limits<float>::infinity();
  if (row.min_p > 0.0f)
    while (!sorted.empty() && std::exp((static_cast<double>(sorted.back()) - sorted[0]) / row.temperature) < row.min_p)
      sorted.pop_back();
  if (row.min_p > 0.0f) least = sorted.back();
  if (row.top_k > 0 && static_cast<size_t>(row.top_k) < sorted.size())
    least = sorted[static_cast<size_t>(row.top_k) - 1];
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
  double first = -std::numeric_limits<double>::infinity(), second = -std::numeric_limits<double>::infinity();
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
