// What the nodes of a run of operations are made from, in parts of one meaning each. A lowering names the parts that it
// needs as parameters of its emit function, and sees no others.
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

inline uint64_t count_of(int64_t n) { return static_cast<uint64_t>(n); }  // for views, whose counts have no sign

// The graph that the nodes of a step join, and the memory that they work in.
struct StepPlace {
  GraphBuilder& g;
  const ModelConfig& config;
  const DecodeState& s;
  bool chooses = false;  // the plan has rows that choose a token

  View<bf16> input_of(Part part) const;  // of the products that add to the residual: out, down
};

// The weights of the model, and of the layer at hand.
struct StepWeights {
  const DecoderWeights& model;
  const LayerWeights* layer = nullptr;  // null before the first layer
  Weight<bf16> next_gain = {};          // of the norm after the layer
  int64_t index = 0;                    // of the layer

  const WeightMatrix& matrix(Part part) const;
  const NormWeights& norm(Part part) const;  // of attention_norm, feed_forward_norm, final_norm
  Weight<bf16> post_gain(Part part) const;   // of the post norms
  Weight<bf16> gain_after(Part part) const;  // of the norm that reads the residual after the part has added to it
};

// The cache of the layer at hand, and how its queries look at it.
struct CachePlace {
  View<bf16> kv = {};
  View<int32_t> table = {};        // of its page group
  Weight<float> frequencies = {};  // empty where positions are learned
  int64_t window = 0;              // keys attended; 0: all
};

// The residual on its way through a step: in which form it is, and where.
struct PlainResidual {
  View<float> x;
};
struct GainedResidual {
  View<bf16> gained;    // [rows, hidden] times the gain of the next norm
  View<float> squares;  // [blocks of the kernel that left them, rows rounded up to 8]
};
struct DeferredResidual {
  View<float> x;           // before the block
  View<float> projected;   // what the block adds, normed with
  Weight<bf16> post_gain;  // this
};
using Residual = std::variant<PlainResidual, GainedResidual, DeferredResidual>;

// What the head has left of the logits, and where tokens go.
struct HeadRows {
  View<float> logits = {};
  View<ScoredToken> best = {};   // of each part of the logits, or empty
  View<int32_t> delivered = {};  // on the host, or empty
};

// The adapters that rows may have, and the layer at hand.
struct RowAdapters {
  const AdapterSlots* slots = nullptr;  // null: none
  int64_t layer = 0;
};

// How the ranks of a team exchange, of a part of a network.
struct RankPlace {
  TeamRank* packets = nullptr;         // by packets
  Collectives* calls = nullptr;        // or by a library's calls
  std::vector<NodeId> last_call = {};  // the last of those, after which the next one comes, as on every rank
};

struct Emission {
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
using Emit = std::function<void(const LoadedRun&, Emission&)>;

// `f(run, parts...)` with the parts of an emission that its parameters name.
template <class... Parts>
Emit emits_from(std::function<void(const LoadedRun&, Parts...)> f) {
  return [f = std::move(f)](const LoadedRun& run, Emission& e) {
    f(run, e.template part<std::remove_cvref_t<Parts>>()...);
  };
}
template <class F>
Emit emits(F f) {
  return emits_from(std::function(std::move(f)));
}

// The residual as a kernel reads it, and its norm. `x_next`: where a deferred one goes, or empty.
ResidualIn residual_in(const Residual& residual, const NormWeights& norm, View<float> x_next = {});
// The same where the kernel takes no residual times the next gain.
Residual not_gained(const Residual& residual, const StepPlace& step);
// Where a deferred residual goes when it is read, and how the residual goes on from there.
View<float> other_residual(const Residual& residual, const DecodeState& s);
void settle_residual(Residual& residual, View<float> x);
// What a kernel of `blocks` blocks leaves of the residual for the norm of this gain; the residual goes on in that form.
ResidualOut leave_gained(Residual& residual, const DecodeState& s, Weight<bf16> gain, uint64_t blocks);

// What the kernels of a row's adapter read: the layer's matrix of a part.
AdapterIn adapter_in(const RowAdapters& adapters, const DecodeState& s, Part part);

}  // namespace nodewright
