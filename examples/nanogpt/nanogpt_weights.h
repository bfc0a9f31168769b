// The small GPT of the nanoGPT articles: its shape, and weights for it on the device, in float32. GPT-2's arithmetic
// with an untied head that has a bias, and a qkv projection that has none.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/memory/memory.h"

namespace nodewright {

// By default the model of "NanoGPT: CUDA Graph Replay": 56 769 parameters (the article says 57 K), Shakespeare's 65
// characters.
struct NanogptConfig {
  int64_t layers = 4, heads = 4, embedding = 32;
  int64_t context = 64;  // block_size: positions there are, and slots of the cache
  int64_t vocab = 65;
  float eps = 1e-5f;  // of every LayerNorm

  int64_t head_dim() const { return embedding / heads; }
  int64_t feed_forward() const { return 4 * embedding; }
  bool operator==(const NanogptConfig&) const = default;
};

struct NanogptLayer {
  Weight<float> attention_gain, attention_shift;        // [embedding]
  Weight<float> qkv;                                    // [3 embedding, embedding]: q, k, v, each [heads, head_dim]
  Weight<float> out, out_bias;                          // [embedding, embedding], [embedding]
  Weight<float> feed_forward_gain, feed_forward_shift;  // [embedding]
  Weight<float> up, up_bias;                            // [feed_forward, embedding], [feed_forward]
  Weight<float> down, down_bias;                        // [embedding, feed_forward], [embedding]
};

class NanogptWeights {
 public:
  // Uniform noise that depends on the seed, the tensor and the element only, so wide that logits differ by several
  // units (tests/reference/nanogpt_reference.py makes the same bits). Throws Error naming the field of a config that
  // cannot be.
  static NanogptWeights random(Device& device, const NanogptConfig& config, uint64_t seed);

  const NanogptConfig& config() const { return config_; }
  const std::vector<NanogptLayer>& layers() const { return layers_; }
  Weight<float> tokens, positions;        // [vocab, embedding], [context, embedding]
  Weight<float> final_gain, final_shift;  // [embedding]
  Weight<float> head, head_bias;          // [vocab, embedding], [vocab]

  std::span<const NamedRange> ranges() const { return ranges_; }
  int64_t parameters() const { return parameters_; }  // padding not counted

 private:
  NanogptWeights(Device& device, const NanogptConfig& config, uint64_t seed);

  NanogptConfig config_;
  DeviceBuffer buffer_;
  std::vector<NanogptLayer> layers_;
  std::vector<NamedRange> ranges_;
  int64_t parameters_ = 0;
};

}  // namespace nodewright
