// Sampling for tests: rows of logits with their parameters, and a launch over them.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels_src/sampling/sample.h"
#include "tests/kernels/numbers.h"
#include "tests/kernels/one_node.h"
#include "tests/support/host_choice.h"

namespace nodewright::test {

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
  std::vector<ScoredToken> best;   // of the parts of each row; empty: the kernel looks for itself

  struct Result {
    std::vector<int32_t> tokens, last_token;
  };

  // By one block a row and, of few rows, by several: they agree.
  Result run() const {
    const Result result = run(1);
    if (rows.size() <= 16 && machine().device.properties().has_clusters()) {
      const Result of_several = run(4);
      EXPECT_EQ(of_several.tokens, result.tokens);
      EXPECT_EQ(of_several.last_token, result.last_token);
    }
    return result;
  }

  Result run(unsigned blocks_of_row) const {
    const size_t count = rows.size(), vocab = rows[0].logits.size(), stride = stride_of(vocab);
    std::vector<float> logits = poisoned<float>(count * stride), temperature, min_p, top_p;
    std::vector<int32_t> top_k, index, sequence = sequences;
    std::vector<uint64_t> seed;
    for (size_t m = 0; m < count; ++m) {
      std::copy(rows[m].logits.begin(), rows[m].logits.end(), logits.begin() + static_cast<int64_t>(m * stride));
      temperature.push_back(rows[m].temperature);
      min_p.push_back(rows[m].min_p);
      top_p.push_back(rows[m].top_p);
      top_k.push_back(rows[m].top_k);
      seed.push_back(rows[m].seed);
      index.push_back(rows[m].output_index);
      if (sequences.empty()) sequence.push_back(static_cast<int32_t>(count - 1 - m));
    }
    const Guarded<float> logit_rows("logits", logits), temperatures("temperature", temperature), min_ps("min_p", min_p),
        top_ps("top_p", top_p);
    const Guarded<int32_t> sequence_ids("sequences", sequence), top_ks("top_k", top_k), indices("output_index", index),
        live("n_live", std::vector{n_live < 0 ? static_cast<int32_t>(count) : n_live}), tokens("tokens", count),
        last("last_token", std::vector<int32_t>(count, -7));
    const Guarded<uint64_t> seeds("seed", seed);
    const auto kernel = machine().kernels.kernel<Sample>({"sample", {{"kBlocksOfRow", blocks_of_row}}},
                                                         sample_shape(static_cast<unsigned>(count), blocks_of_row));
    const Guarded<ScoredToken> parts("best", best);
    const Guarded<int32_t> delivered("delivered", count);
    run_node(kernel, {.logits = logit_rows,
                      .best = parts,
                      .sequences = sequence_ids,
                      .temperature = temperatures,
                      .min_p = min_ps,
                      .top_k = top_ks,
                      .top_p = top_ps,
                      .seed = seeds,
                      .output_index = indices,
                      .n_live = live,
                      .tokens = tokens,
                      .last_token = last,
                      .delivered = delivered,
                      .vocab = static_cast<int64_t>(vocab),
                      .logits_stride = static_cast<int64_t>(stride)});
    EXPECT_EQ(delivered.read(), tokens.read());
    return {tokens.read(), last.read()};
  }
};

inline int32_t sample_one(const SampleRow& row) { return SampleLaunch{{row}, -1, {}, {}}.run().tokens[0]; }

// `count` draws from one row's logits, seeds from `seed`.
inline std::vector<int32_t> draws(const SampleRow& row, size_t count, uint64_t seed = 1) {
  SampleLaunch launch;
  for (size_t i = 0; i < count; ++i) {
    launch.rows.push_back(row);
    launch.rows.back().seed = seed + i;
  }
  return launch.run().tokens;
}

}  // namespace nodewright::test
