// From operations to kernels: an ordered table of lowerings, each a row that takes a run of operations. The first row
// that can take the next operations does. A new kernel needs its .cu, its .h, and a row in lowering.cpp and
// lowering_rows.h.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "graph/graph_builder.h"
#include "kernels_src/product/end/adapter_in.h"
#include "kernels_src/residual/residual.h"
#include "models/adapters/adapter_slots.h"
#include "models/network/network.h"
#include "models/step/decode_state.h"
#include "models/step/step_shape.h"
#include "models/weights/weights.h"
#include "runtime/kernels/kernel_cache.h"
#include "runtime/matmul_plan.h"

namespace nodewright {

class Collectives;
class TeamRank;

// What the choice of kernels depends on, beside the operations.
struct Situation {
  const ModelConfig& config;
  const StepShape& step;
  const DeviceProperties& device;
};

// The form in which the residual goes from block to block, the same for a whole step. plain: as it is. gained: times
// the gain of the norm that comes next, beside its squares, so that no block reads rows in fp32. deferred: what a block
// adds is left to the kernel that reads the residual next, which norms it (post norms).
enum class Travel : uint8_t { plain, gained, deferred };
std::string_view to_string(Travel travel);  // "gained"

// A kernel as it will be asked for and launched.
struct KernelChoice {
  KernelRequest request;
  LaunchShape shape;
  uint64_t args_bytes = 0;    // of its argument struct
  bool of_attention = false;  // which keeps its own division of L1 (SharedTuning)
};
template <KernelArgs A>
KernelChoice kernel_choice(KernelRequest request, const LaunchShape& shape) {
  return {std::move(request), shape, sizeof(A), false};
}

// A library's product x . W^T of `rows` rows, into rows `y_stride` apart; beta 1 adds to y.
struct ProductChoice {
  std::string name;
  int64_t rows = 0, cols = 0, outputs = 0;
  Element output = Element::f32;
  int64_t y_stride = 0;
  ProductTuning tuning;
  float beta = 0;
  float alpha = 1;
};

// The kernels of one run of operations, loaded.
struct LoadedRun {
  std::vector<std::pair<const LoadedKernel*, LaunchShape>> kernels;  // in the order of Lowered::kernels
  std::vector<std::shared_ptr<const MatmulPlan>> products;           // in the order of Lowered::products

  template <KernelArgs A>
  Kernel<A> kernel(size_t i = 0) const {
    return {kernels.at(i).first, kernels.at(i).second};
  }
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

// What differs from layer to layer.
struct LayerPlace {
  const LayerWeights* weights = nullptr;  // null after the last layer, and before the first
  Weight<bf16> next_gain;                 // of the norm after the layer
  View<bf16> kv;                          // the layer's cache
  View<int32_t> table;                    // of its page group
  Weight<float> frequencies;              // empty where positions are learned
  int64_t window = 0;                     // keys attended; 0: all
  int64_t index = 0;
};

// The plan to which a lowering adds its nodes, and what it needs for that.
struct Emission {
  GraphBuilder& g;
  const ModelConfig& config;
  const StepShape& step;
  const DecoderWeights& weights;
  const DecodeState& s;
  bool chooses = false;          // the plan has rows that choose a token
  View<int32_t> delivered = {};  // where tokens go on the host, or empty
  LayerPlace layer = {};
  Residual residual = PlainResidual{};
  View<ScoredToken> best = {};             // what the head has left of each part of the logits, or empty
  View<float> logits = {};                 // what the head has written
  const AdapterSlots* adapters = nullptr;  // of rows that may have some
  TeamRank* rank = nullptr;                // of a part of a network, whose ranks exchange by packets
  Collectives* collectives = nullptr;      // the same, by a library's calls
  std::vector<NodeId> last_call = {};      // the last of those, after which the next one comes, as on every rank

  const WeightMatrix& matrix(Part part) const;
  const NormWeights& norm(Part part) const;    // of attention_norm, feed_forward_norm, final_norm
  Weight<bf16> post_gain(Part part) const;     // of the post norms
  Weight<bf16> gain_behind(Part part) const;   // of the norm that follows what the part adds to the residual
  View<bf16> input_of(Part part) const;        // of the products that add to the residual: out, down
  View<float> squares(uint64_t blocks) const;  // room for those of `blocks` blocks
  View<float> other_residual() const;          // where a deferred residual goes when it is read
  void settle_residual(View<float> x);         // a deferred residual has been read, and put there
};

// What a row makes of a run of operations.
struct Lowered {
  size_t operations = 0;  // how many it takes
  std::vector<KernelChoice> kernels = {};
  std::vector<ProductChoice> products = {};
  std::function<void(const LoadedRun&, Emission&)> emit = {};
};
// Or why it takes none; empty where it is for other operations.
using Attempt = std::variant<std::string, Lowered>;

struct LoweringRow {
  std::string_view name;
  // Looks at the first of `ops`.
  Attempt (*lower)(const Situation& at, std::span<const Op> ops, Travel travel);
};
std::span<const LoweringRow> lowering_rows();

// What was chosen for one run of operations, and why the rows before it were not.
struct LoweringNote {
  std::string operations;  // "norm product attention_norm qkv"
  std::string_view row;
  std::vector<std::string> kernels;                              // to_string of the requests, or "product NAME"
  std::vector<std::pair<std::string_view, std::string>> passed;  // rows that could not, with the reason
  bool operator==(const LoweringNote&) const = default;
};

// A whole step, before anything is compiled.
struct LoweredStep {
  Travel travel = Travel::plain;
  std::vector<Lowered> first, last;
  std::vector<std::vector<Lowered>> kinds;  // of layers
  std::vector<size_t> layers;               // [layers of all stages] the kind of each
  std::vector<std::pair<Travel, std::string>>
      ways_passed;                  // ways of the residual that were tried before, and what stopped them
  std::vector<LoweringNote> notes;  // of first, kinds and last, in this order; what kinds share once
};
// Throws Error where no row takes an operation.
LoweredStep lower(const Network& network, const Situation& at);

// ---- For the rows, which stand in models/lowering/lower_*.cpp

// Whether `ops` begin with these.
bool begins(std::span<const Op> ops, std::initializer_list<OpKind> kinds);
// W [outputs, cols] of a product, multiplied with the step's rows (`rows` of them) from an input that is normed or not.
enum class Norms : uint8_t { none, own, post_and_own, gained };
struct InputNorm {
  Norms norms = Norms::none;
  Norm kind = Norm::rms;  // of all that there are
};
// A kernel of tiles, `tile_<name>`, or why there is none. `unit`: rows of W that make one output. `keeps_sums`: those
// of a block stay in its shared memory.
std::variant<KernelChoice, std::string> tiled(const Situation& at, const char* name, const Op& product, int64_t unit,
                                              InputNorm norm, int64_t rows, std::vector<Constant> constants,
                                              uint64_t args_bytes, bool keeps_sums = false);
// A kernel of dot products, `<name>`.
KernelChoice matvec(const Situation& at, const char* name, const Op& product, int64_t unit, InputNorm norm,
                    int64_t rows, std::vector<Constant> constants, uint64_t args_bytes);
const ProjectionTuning& tuning_of(const StepTuning& tuning, Part part);
std::string node_name(const Op& product);  // "qkv", "up"
// Whether projections of a step of products are tiles that hold their rows, on this device.
bool holds_rows(const Situation& at);
// Whether projections are a library's products.
bool is_library_used(const Situation& at, Travel travel);
// Whether the bias of qkv, as a library's product, is left to the kernel that rotates its heads: of `behind_qkv`.
bool rope_adds_bias(const Situation& at, std::span<const Op> behind_qkv, Travel travel);
inline uint64_t count_of(int64_t n) { return static_cast<uint64_t>(n); }  // for views, whose counts have no sign
template <class E>
Constant constant(const char* name, E value) {
  return {name, static_cast<int64_t>(value)};
}

// The bits of a factor, 0 for 1, and of a cap, 0 for none.
Constant factor_constant(const char* name, float factor);
Constant cap_constant(const char* name, float cap);
// The constants of a projection that makes logits.
std::vector<Constant> logit_constants(const ModelConfig& config);
std::vector<Constant> unscaled_constants();

// Where rows may have adapters: what they add to a product, after it where something else stands between it and its
// expand operation. Nothing elsewhere.
void add_expand_kernel(Lowered& lowered, const Situation& at, const Op& product, float scale);
// `kernel`: its place among the run's.
void emit_expand(const LoadedRun& run, Emission& e, Part part, View<float> y, int64_t y_stride, size_t kernel);
// What the activation after gate_up adds itself.
AdapterIn adapter_in(const Emission& e, Part part);
inline Constant rank_constant(const Situation& at) { return {"kRank", at.step.adapters.rank}; }

// What the ranks of a team exchange after a product, in a node of its own.
struct ExchangedSum {
  bool bias = false;     // the product's, which is added there
  bool adds = true;      // onto the residual; else into `projected`
  bool bulk = false;     // in bf16, by a bulk exchange
  int64_t chosen = 0;    // of a mixture: how many experts of a row have given a value each; 0: there is one
  bool adapted = false;  // what rows' adapters give is added before it is sent
};
// Its kernels, and their nodes after such a product, which has given `y`. `kernel`: the place of the first.
std::vector<KernelChoice> exchange_choices(const Situation& at, const ExchangedSum& of, Travel travel);
// A product's kernel and these.
std::vector<KernelChoice> with_exchange(const Situation& at, const ExchangedSum& of, Travel travel,
                                        KernelChoice product);
void emit_exchange(const LoadedRun& run, size_t kernel, Emission& e, const Op& product, View<float> y,
                   const ExchangedSum& of, Travel travel);

// The residual as a kernel reads it, and its norm. `x_next`: where a deferred one goes, or empty.
ResidualIn residual_in(const Residual& residual, const NormWeights& norm, View<float> x_next = {});

}  // namespace nodewright
