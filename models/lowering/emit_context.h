// The state from which a lowering adds nodes to a step's graph. It is split into parts by subject: the step, weights,
// cache, residual, head, adapters, ranks. The emit function of a lowering takes the parts that it uses as parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "graph/graph_builder.h"
#include "kernels_src/product/end/adapter_in.h"
#include "kernels_src/residual/residual.h"
#include "models/adapters/adapter_slots.h"
#include "models/network/network.h"
#include "models/step/decode_state.h"
#include "models/weights/weights.h"

namespace nodewright {

class Collectives;
class TeamRank;
struct LoadedRun;

inline uint64_t count_of(int64_t n) { return static_cast<uint64_t>(n); }  // as View::count is unsigned

// The graph to which nodes are added, and the memory that they use.
struct StepPlace {
  GraphBuilder& g;
  const ModelConfig& config;
  const DecodeState& s;
  bool chooses = false;  // some row of the step samples a token

  View<bf16> input_of(Part part) const;  // the x of a product of rows in bf16
};

// The weights of the model, and of the layer at hand.
struct StepWeights {
  const DecoderWeights& model;
  const LayerWeights* layer = nullptr;   // null before the first layer
  Weight<WeightElement> next_gain = {};  // the gain of the norm that comes after the layer
  int64_t index = 0;                     // number of the layer

  const WeightMatrix& matrix(Part part) const;
  const NormWeights& norm(Part part) const;          // part: attention_norm, feed_forward_norm or final_norm
  Weight<WeightElement> post_gain(Part part) const;  // part: a post norm
  Weight<WeightElement> gain_after(
      Part part) const;  // the gain of the norm that reads the residual after `part` has added to it
};

// The KV cache of the layer at hand, and the keys that its queries attend to.
struct CachePlace {
  View<bf16> kv = {};
  View<int32_t> table = {};        // the block table of the layer's page group
  Weight<float> frequencies = {};  // of the rotation; empty where positions are learned
  int64_t window = 0;              // how many of the last keys a query attends to; 0: all
};

// The residual between two runs of operations, in one of three forms, and where it is in memory.
struct PlainResidual {
  View<float> x;
};
struct GainedResidual {
  View<bf16> gained;    // [rows, hidden] the residual times the gain of the next norm
  View<float> squares;  // [parts, padded rows (TileShape)] sums of squares of each part of the columns
};
struct DeferredResidual {
  View<float> x;                    // the residual before the block
  View<float> projected;            // the block's output, which joins it normed
  Weight<WeightElement> post_gain;  // the gain of that norm
};
using Residual = std::variant<PlainResidual, GainedResidual, DeferredResidual>;

// The logits that the head has computed, and where sampled tokens go.
struct HeadRows {
  View<float> logits = {};
  View<ScoredToken> best = {};   // the largest logit of each part of them, or empty
  View<int32_t> delivered = {};  // the tokens in host memory, or empty
};

// The LoRA adapters that rows may have, and the layer at hand.
struct RowAdapters {
  const AdapterSlots* slots = nullptr;  // null: none
  int64_t layer = 0;
};

// How this device exchanges sums with the other ranks of its device group, where each has a part of the network. One of
// the pointers is set then; where a device has the whole network, neither is.
struct RankPlace {
  TeamRank* packets = nullptr;   // kernels write packets into the other ranks' memory (graph/team)
  Collectives* calls = nullptr;  // nodes call a library (NCCL)
  std::vector<NodeId> last_call =
      {};  // the last such node: the next one comes after it, so that all ranks keep one order
};

struct EmitContext {
  StepPlace step;
  StepWeights weights;
  CachePlace cache = {};
  Residual residual = PlainResidual{};
  HeadRows head = {};
  RowAdapters adapters = {};
  RankPlace ranks = {};

  template <class T>
  T& part() {
    return std::get<T&>(std::tie(step, weights, cache, residual, head, adapters, ranks));
  }
};
using Emit = std::function<void(const LoadedRun&, EmitContext&)>;

// Makes an Emit of f(run, parts...), whose parameter types name the parts of the emit context that it uses.
template <class... Parts>
Emit emits_from(std::function<void(const LoadedRun&, Parts...)> f) {
  return [f = std::move(f)](const LoadedRun& run, EmitContext& e) {
    f(run, e.template part<std::remove_cvref_t<Parts>>()...);
  };
}
template <class F>
Emit emits(F f) {
  return emits_from(std::function(std::move(f)));
}

// The argument block of a kernel that reads the residual and norms it. `x_next`: where the kernel stores a deferred
// residual once it has added it up, or empty.
ResidualIn residual_in(const Residual& residual, const NormWeights& norm, float eps, View<float> x_next = {});
// `residual`, but in the plain form where it is gained, for kernels that do not read that form.
Residual not_gained(const Residual& residual, const StepPlace& step);
// The memory for x_next: of the step's two residuals the one that a deferred residual is not in.
View<float> other_residual(const Residual& residual, const DecodeState& s);
// Makes a deferred residual plain: a kernel has added it up and stored it in x.
void settle_residual(Residual& residual, View<float> x);
// The argument block of a kernel of `blocks` blocks that leaves the residual gained, for the norm with this gain. Sets
// `residual` to that form.
ResidualOut leave_gained(Residual& residual, const DecodeState& s, Weight<WeightElement> gain, uint64_t parts);

// The argument block of kernels that add a row's adapter to the layer's matrix `part`.
AdapterIn adapter_in(const RowAdapters& adapters, const DecodeState& s, Part part);

}  // namespace nodewright
