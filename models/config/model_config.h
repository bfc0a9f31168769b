// The numbers that say what a network is, read from a Hugging Face checkpoint folder. No tensor is looked at here;
// models/weights/weights.h checks that the tensors agree.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels_src/attention/kv_pages.h"
#include "kernels_src/elementwise/activation.h"
#include "kernels_src/product/format/weight_layout.h"
#include "kernels_src/residual/norm.h"
#include "models/config/generation_config.h"
#include "models/config/shard.h"
#include "models/config/stage.h"
#include "models/config/tensor_names.h"
#include "runtime/error.h"

namespace nodewright {

// config.json calls plain "default".
enum class RopeType : uint8_t { plain, linear, dynamic, llama3, yarn, longrope };

// Rotary position embedding. models/config/rope_frequencies.h turns it into frequencies.
struct RopeConfig {
  RopeType type = RopeType::plain;
  double theta = 10000.0;   // base of the frequencies, > 0
  double factor = 1.0;      // linear, llama3, yarn: frequencies are divided by it; dynamic: of the context, > 0
  double low = 1.0;         // llama3: original / low is the wavelength, in tokens, above which all is divided
  double high = 4.0;        // llama3: original / high is the wavelength below which nothing is; high > low > 0
  int64_t original = 0;     // all but plain: tokens of the context before scaling
  double beta_slow = 1.0;   // yarn: turns within the original context below which all of a frequency is divided
  double beta_fast = 32.0;  // yarn: turns above which nothing is; between the two, a ramp over the pairs
  bool truncate = true;     // yarn: the ramp ends at whole pairs
  std::vector<double> short_factors, long_factors;  // longrope: [pairs], each frequency is divided by its own
  double amplitude = 1.0;  // yarn, longrope: rotated elements are multiplied by it (attention_factor)
};

// Which products of a layer have one; q, k and v are one product.
struct Biases {
  bool qkv = false, out = false, gate_up = false, down = false;
  bool operator==(const Biases&) const = default;
};

// How the matrices of a layer's products lie in device memory, and the head.
struct WeightLayouts {
  WeightLayout qkv, out, gate_up, down, head;
  bool operator==(const WeightLayouts&) const = default;
};
// The same of a network: of each part its layout in every layer, bf16 where not all layers have one.
struct ModelLayouts : WeightLayouts {
  std::vector<WeightLayouts> of_layers = {};  // [layers of all stages] where they differ

  const WeightLayouts& of_layer(size_t layer) const { return of_layers.empty() ? *this : of_layers[layer]; }
  // The different ones: one, or those of all layers.
  std::span<const WeightLayouts> all() const {
    const WeightLayouts* const one = this;
    return of_layers.empty() ? std::span(one, 1) : std::span(of_layers);
  }
  bool operator==(const ModelLayouts&) const = default;
};

constexpr std::string_view name_of(CacheFormat format) { return format == CacheFormat::fp8 ? "fp8" : "bf16"; }

// Over what queries and keys are normed before rotation.
enum class HeadNorm : uint8_t {
  none,
  head,   // each head by itself, all with one gain of [head_dim]
  width,  // all heads of a row together, with a gain for each element
};

// What the feed-forward block of a layer reads.
enum class Blocks : uint8_t {
  sequential,         // the residual behind attention
  parallel,           // the residual in front of attention, under a norm of its own
  parallel_one_norm,  // that residual under the norm of attention
};

// A mixture of experts: each row has its own experts in place of one feed-forward block.
struct Experts {
  int64_t count = 0;         // that a layer has; 0: it is no mixture
  int64_t chosen = 0;        // that a row has, those with the largest logits
  bool normalised = false;   // the weights of the chosen sum to one; else they are parts of the softmax over all
  int64_t intermediate = 0;  // width of one expert
};

// What the feed-forward block of a layer is.
enum class FeedForward : uint8_t { dense, experts };

struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM"
  TensorNames names;         // of the checkpoint
  int64_t hidden = 0;        // width of the residual stream
  int64_t layers = 0;        // of a stage its own, which functions below number from 0
  int64_t heads = 0;         // query heads
  int64_t kv_heads = 0;      // key and value heads; divides heads
  int64_t head_dim = 0;      // even; heads * head_dim need not equal hidden
  int64_t intermediate = 0;  // width of a dense feed-forward block; 0: no layer has one
  Experts experts;
  std::vector<bool> dense;      // [layers of all stages] of a mixture, those without experts; empty: none
  int64_t vocab = 0;            // rows of the embedding and of the head
  int64_t max_position = 0;     // context that the model was made for, in tokens; scaling with one table is in it
  int64_t scaled_position = 0;  // longest that dynamic and longrope reach with other frequencies; 0: max_position
  float eps = 0;                // of the norms, added to the mean square or variance
  bool tied = false;            // the head is the embedding

  Norm norm = Norm::rms;    // of every norm
  bool norm_shifts = true;  // a LayerNorm has a shift beside its gain
  bool pre_norms = true;    // the blocks read the residual under a norm
  bool post_norms = false;  // what a block adds to the residual is normed
  Blocks blocks = Blocks::sequential;
  HeadNorm head_norm = HeadNorm::none;
  Biases biases;                             // of the products of a layer
  Activation activation = Activation::silu;  // of the feed-forward block
  bool gated = true;                         // f(gate) * up; else f(up)
  float embedding_scale = 1;                 // the embedding times this enters the residual stream
  float residual_scale = 1;                  // what a block adds to it is multiplied by this
  std::optional<double> query_scale;         // of q . k; absent: head_dim^-1/2
  float score_cap = 0;                       // scores are cap * tanh(score / cap); 0: they are not capped
  float logit_scale = 1;                     // logits are multiplied by this, then
  float logit_cap = 0;                       // cap * tanh(logit / cap); 0: they are not capped
  bool learned_positions = false;            // positions have an embedding, and q and k are not rotated
  RopeConfig rope;                           // of global layers
  std::optional<RopeConfig> local_rope;      // of sliding layers; absent: the same
  int64_t rotary_dim = 0;                    // the first elements of a head, which are rotated; even; 0: all
  bool rotates_neighbours = false;           // elements 2i and 2i + 1 are a pair, not i and i + rotary_dim / 2
  std::vector<bool> unrotated;               // [layers of all stages] that do not rotate; empty: none
  int64_t window = 0;                        // keys that a query of a sliding layer attends to, its own included
  std::vector<bool> sliding;                 // [layers of all stages]; empty: none

  std::optional<int64_t> bos;  // token ids
  std::vector<int64_t> eos;    // any of them ends a sequence; empty: only a length limit does
  bool eos_assumed = false;    // no file names one, and it is the family's
  std::optional<int64_t> pad;
  Shard shard;  // of a part heads, kv_heads and both intermediates are its own
  Stage stage;  // of a part layers is its own

  ModelLayouts layouts;                   // as the weights have been loaded; until then of bf16
  CacheFormat cache = CacheFormat::bf16;  // of keys and values, as the engine is asked for; no file says it
  bool rounds_head = false;  // to FP8 while it loads; no file says it. A tied one is then a copy of its own

  std::string dtype;  // what the file says its weights are ("bfloat16"), empty if it does not; the tensors decide
  GenerationDefaults generation;

  // Tokens that a sequence may have at most.
  int64_t longest_context() const { return std::max(max_position, scaled_position); }
  int64_t head_rows() const { return shard.count_of(vocab); }  // of the vocabulary, that this rank has
  int64_t all_layers() const { return stage.is_part() ? stage.all_layers : layers; }        // of all stages
  bool has_experts() const { return experts.count > 0; }                                    // some layer
  bool has_dense() const { return !has_experts() || std::ranges::count(dense, true) > 0; }  // of all stages
  // What a layer has, and what all layers of all stages have.
  FeedForward feed_forward(int64_t layer) const { return feed_forward_of(index_of(layer)); }
  std::vector<FeedForward> feed_forwards() const {
    std::vector<FeedForward> all;
    for (size_t layer = 0; layer < static_cast<size_t>(all_layers()); ++layer) all.push_back(feed_forward_of(layer));
    return all;
  }
  // Whether queries and keys are normed over the heads of all ranks, of which this one has a part.
  bool norms_heads_of_ranks() const { return head_norm == HeadNorm::width && shard.is_part(); }
  int64_t query_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t qkv_width() const { return query_width() + 2 * kv_width(); }
  int64_t rotated() const { return rotary_dim == 0 ? head_dim : rotary_dim; }
  bool rotates(int64_t layer) const { return unrotated.empty() || !unrotated[index_of(layer)]; }
  // Whether rotation also multiplies.
  bool scales_turns() const { return rope.amplitude != 1 || (local_rope && local_rope->amplitude != 1); }
  bool is_sliding(int64_t layer) const { return !sliding.empty() && sliding[index_of(layer)]; }
  int64_t window_of(int64_t layer) const { return is_sliding(layer) ? window : 0; }  // 0: all keys
  // The window, if the layers of all stages have it; otherwise 0.
  int64_t window_of_all() const { return !sliding.empty() && std::ranges::count(sliding, false) == 0 ? window : 0; }
  // Layers whose pages of the cache are held alike: those that see all keys, and beside them those with a window. One
  // group where the layers of all stages are alike.
  int64_t page_groups() const {
    return std::ranges::count(sliding, true) > 0 && std::ranges::count(sliding, false) > 0 ? 2 : 1;
  }
  int64_t page_group(int64_t layer) const { return page_groups() > 1 && is_sliding(layer) ? 1 : 0; }
  int64_t sliding_layers() const {
    int64_t count = 0;
    for (int64_t layer = 0; layer < layers; ++layer) count += is_sliding(layer) ? 1 : 0;
    return count;
  }
  int64_t layers_of_group(int64_t group) const {
    return group == 1 ? sliding_layers() : layers - (page_groups() > 1 ? sliding_layers() : 0);
  }

 private:
  FeedForward feed_forward_of(size_t layer) const {
    return has_experts() && (dense.empty() || !dense[layer]) ? FeedForward::experts : FeedForward::dense;
  }
  size_t index_of(int64_t layer) const { return static_cast<size_t>(stage.first_layer + layer); }
};

// Reads folder/config.json and, if present, folder/generation_config.json: what ends a text in one of them does,
// whatever the other says. Absent keys get the defaults of transformers' configuration of that family
// (transformers 5.23, transformers/models/*/configuration_*.py); rotary parameters are read in both spellings,
// rope_theta + rope_scaling and rope_parameters. Throws Error, naming file, key and value, for what is missing, of the
// wrong type, out of range or not supported.
ModelConfig read_model_config(const std::filesystem::path& folder);

// Every fault of the two files, in the order in which they are read; empty where read_model_config() takes them. Where
// single values are at fault, what is wrong with several together is left out: it may follow from them.
std::vector<Error> model_config_faults(const std::filesystem::path& folder);

}  // namespace nodewright
