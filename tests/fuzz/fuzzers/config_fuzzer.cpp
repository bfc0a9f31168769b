// config.json, and behind a zero byte generation_config.json. What is accepted must be safe to compute with.
#include <cmath>

#include "models/config/model_config.h"
#include "models/config/part.h"
#include "models/config/rope_frequencies.h"
#include "tests/fuzz/fuzz_target.h"

using namespace nodewright;

namespace {

void check(const ModelConfig& c) {
  for (const int64_t size : {c.hidden, c.layers, c.heads, c.kv_heads, c.head_dim, c.vocab, c.max_position})
    fuzz::require(size > 0, "a size is positive");
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    const bool dense = c.feed_forward(layer) == FeedForward::dense;
    const MatrixSize gate_up = dense ? matrix_size(c, Part::gate_up) : expert_matrix_size(c, Part::gate_up);
    fuzz::require(gate_up.outputs > 0, "a feed-forward block has a width");
  }
  fuzz::require(c.heads % c.kv_heads == 0, "the heads divide");
  const int64_t widest = std::max({c.hidden, c.intermediate, c.experts.count * c.experts.intermediate});
  fuzz::require(std::max(c.vocab, c.hidden) * widest < int64_t{1} << 60, "a matrix can be counted");
  fuzz::require(std::isfinite(c.eps) && c.eps >= 0, "eps is a number");
  for (const int64_t id : c.eos) fuzz::require(id >= 0, "an eos id is not negative");
  for (const RopeConfig& rope : {c.rope, c.local_rope.value_or(c.rope)})
    for (const float frequency : rope_frequencies(rope, c.head_dim))
      fuzz::require(std::isfinite(frequency) && frequency >= 0, "a frequency is a number");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::ScratchFolder folder;
  const fuzz::TwoParts parts = fuzz::two_parts(data, size);
  folder.write("config.json", parts.first);
  if (parts.has_second) folder.write("generation_config.json", parts.second);
  fuzz::expect_refusal_or_success(folder.path().native(), [&] { check(read_model_config(folder.path())); });
  if (parts.has_second) folder.remove("generation_config.json");
  return 0;
}
