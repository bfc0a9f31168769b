#include "models/plan/decoder_graph.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <variant>

#include "kernels_src/product/rows/matvec_shape.h"
#include "models/lowering/lowering.h"
#include "models/step/lanes.h"
#include "models/weights/row_stride.h"

namespace nodewright {
namespace {

struct Described {
  const DecoderModel& model;
  const DecoderKernels& kernels;
  const KvCache& cache;
  const DecodeState& state;
  DecodePurpose purpose;
  const AdapterSlots* adapters = nullptr;
  TeamRank* rank = nullptr;
  const Residual* received = nullptr;
  Collectives* collectives = nullptr;
  const DecoderKernels* lane = nullptr;
  std::string buffers = {};  // what their names begin with
};

// Whether an earlier stage has written there.
bool is_received(const Residual* received, const NamedRange& range) {
  if (received == nullptr) return false;
  const auto lies_there = [&](const auto& view) {
    return view.address() >= range.address && view.address() < range.address + range.bytes;
  };
  if (const auto* plain = std::get_if<PlainResidual>(received)) return lies_there(plain->x);
  if (const auto* deferred = std::get_if<DeferredResidual>(received))
    return lies_there(deferred->x) || lies_there(deferred->projected);
  const auto& gained = std::get<GainedResidual>(*received);
  return range.name == "residual" || lies_there(gained.gained) || lies_there(gained.squares);
}

void declare_buffers(GraphBuilder& g, const Described& d) {
  const DecodeState& s = d.state;
  const auto declare = [&](NamedRange range, Live live) {
    range.name = d.buffers + range.name;
    g.declare(std::move(range), live);
  };
  for (const NamedRange& range : d.model.weights().ranges()) g.declare(range, {.live_in = true});
  for (const NamedRange& range : d.model.frequencies_ranges()) g.declare(range, {.live_in = true});
  for (int64_t l = 0; l < d.model.config().layers; ++l) declare(d.cache.range(l), {.live_in = true, .live_out = true});
  const bool receives = d.received != nullptr;  // the inputs, too
  if (!receives) declare(s.host_inputs_range, {.live_in = true});
  declare(s.inputs_range, {.live_in = receives});
  // A workspace is written and read back within one launch, and a loop's body might never run: a plan cannot see that
  // what they read has been written, so it counts as always valid.
  const bool loops = d.purpose == DecodePurpose::step && s.steps.loop;
  for (const NamedRange& range : s.scratch)
    declare(range, {.live_in = loops || range.kind == "workspace" || is_received(d.received, range),
                    .live_out = range.kind == "output"});
  for (const NamedRange& range : s.kept) declare(range, {.live_in = true, .live_out = true});
  // Before several steps the host marks every token as not chosen.
  if (d.purpose == DecodePurpose::step) declare(s.host_tokens_range, {.live_in = s.steps.several(), .live_out = true});
}

void fetch_inputs(GraphBuilder& g, const DecoderKernels& k, const DecodeState& s) {
  const auto words = [](const NamedRange& range) {
    return View<uint32_t>{reinterpret_cast<uint32_t*>(range.address), range.bytes / sizeof(uint32_t)};
  };
  Kernel<FetchInputs> kernel = k.fetch_inputs;
  kernel.shape.grid[0] = fetch_inputs_shape(words(s.inputs_range).count).grid[0];
  g.launch("inputs", kernel, {.from = words(s.host_inputs_range), .to = words(s.inputs_range)});
}

// `again`: of the loop that the step is the body of; empty outside one.
void advance(const EmitContext& e, const Kernel<Advance>& kernel, Condition again) {
  const DecodeState& s = e.step.s;
  const StepInputs& in = s.inputs;
  e.step.g.launch(
      "advance", kernel,
      {.chosen = s.tokens,
       .n_live = in.n_live,
       .n_sampled = in.n_sampled,
       .steps_done = in.steps_done,
       .tokens = in.tokens,
       .positions = in.positions,
       .sequences = in.sequences,
       .temperature = in.temperature,
       .min_p = in.min_p,
       .top_k = in.top_k,
       .top_p = in.top_p,
       .seed = in.seed,
       .output_index = in.output_index,
       .left = in.left,
       .caller_row = in.caller_row,
       .stop_ids = in.stop_ids,
       .delivered = s.host_tokens,
       .again = again,
       .rows = static_cast<int32_t>(s.rows),
       .most_steps = static_cast<int32_t>(s.steps.most)},
      {.traffic = Traffic{s.inputs_range.bytes, s.inputs.positions.bytes()}});  // a row moves only where one ends
}

// What a step's nodes are made from before its first layer.
EmitContext emit_context(GraphBuilder& g, const Described& d, const DecodeState& s, bool chooses) {
  const DecoderWeights& w = d.model.weights();
  EmitContext e{.step = {g, d.model.config(), s, chooses}, .weights = {w}};
  e.weights.next_gain = w.layers().front().attention_norm.gain;
  e.adapters.slots = d.adapters;
  e.ranks = {d.rank, d.collectives};
  return e;
}

void enter_layer(EmitContext& e, const DecoderModel& model, const KvCache& cache, int64_t l) {
  const DecoderWeights& w = model.weights();
  const LayerWeights* own = &w.layers()[count_of(l)];
  const bool is_last = l + 1 == model.config().layers;
  const Weight<bf16> after = model.config().stage.is_last() ? w.final_norm().gain : w.gain_behind();
  e.weights.layer = own;
  e.weights.next_gain = is_last ? after : own[1].attention_norm.gain;
  e.weights.index = e.adapters.layer = l;
  e.cache = {cache.layer(l), e.step.s.table_of_group(model.config().page_group(l)), model.frequencies(l),
             model.config().window_of(l)};
}

// At most, to make room for.
constexpr size_t kNodesOfBlock = 18, kNodesAroundBlocks = 8;

// One step, from its inputs' place on the device to its tokens; they go to `delivered` on the host, if it is any.
EmitContext emit_step(GraphBuilder& g, const Described& d, View<int32_t> delivered) {
  const bool chooses = d.purpose != DecodePurpose::prefill;
  const ModelConfig& config = d.model.config();
  EmitContext e = emit_context(g, d, d.state, chooses);
  e.head.delivered = delivered;
  if (d.received != nullptr) e.residual = *d.received;
  for (const DecoderKernels::Run& run : d.kernels.first) run.emit(e);
  for (int64_t l = 0; l < config.layers; ++l) {
    const auto scope = g.scope("l" + std::to_string(config.stage.first_layer + l));
    enter_layer(e, d.model, d.cache, l);
    for (const DecoderKernels::Run& run : d.kernels.of_layer(l)) run.emit(e);
  }
  if (chooses)
    for (const DecoderKernels::Run& run : d.kernels.last) run.emit(e);
  return e;
}

// The nodes of all lanes, each up to its next exchange in turn: that is the order in which ranks exchange, and edges
// lead from each to the next, since all look at the word that says that a launch is given up.
void emit_in_turns(std::span<EmitContext> lanes, std::span<const std::string_view> names,
                   const std::vector<DecoderKernels::Run>& runs) {
  std::vector<size_t> next(lanes.size(), 0);
  while (std::ranges::any_of(next, [&](size_t run) { return run < runs.size(); }))
    for (size_t i = 0; i < lanes.size(); ++i) {
      const auto scope = lanes[i].step.g.scope(names[i]);
      const uint32_t exchanges = lanes[i].ranks.packets->exchanges();
      while (next[i] < runs.size() && lanes[i].ranks.packets->exchanges() == exchanges) runs[next[i]++].emit(lanes[i]);
    }
}

// One step of a team in two lanes: all rows' embedding, then the lanes' layers, then the head of the late one.
void emit_lanes(GraphBuilder& g, const Described& d) {
  const ModelConfig& config = d.model.config();
  EmitContext whole = emit_context(g, d, d.state, true);
  for (const DecoderKernels::Run& run : d.kernels.first) run.emit(whole);
  std::vector<EmitContext> lanes;
  for (size_t i = 0; i < kLanes; ++i) {
    const DecodeState& own = d.state.lanes[i];
    lanes.push_back(emit_context(g, d, own, i == kLate));
    lanes[i].residual = PlainResidual{own.residual};
  }
  for (int64_t l = 0; l < config.layers; ++l) {
    const auto scope = g.scope("l" + std::to_string(config.stage.first_layer + l));
    for (EmitContext& lane : lanes) enter_layer(lane, d.model, d.cache, l);
    emit_in_turns(lanes, kLaneNames, d.lane->of_layer(l));
  }
  const auto scope = g.scope(kLaneNames[kLate]);
  for (const DecoderKernels::Run& run : d.lane->last) run.emit(lanes[kLate]);
}

// Returns how the residual leaves the plan; of several steps nothing that counts.
Residual describe_plan(GraphBuilder& g, const Described& d) {
  const DecodeState& s = d.state;
  declare_buffers(g, d);
  if (d.adapters != nullptr) g.declare(d.adapters->range(), {.live_in = true});
  const LaunchSteps steps = d.purpose == DecodePurpose::step ? s.steps : LaunchSteps{};
  g.reserve(count_of(steps.loop ? 1 : steps.most) * kNodesOfBlock * count_of(d.model.config().layers) *
                (d.lane == nullptr ? 1 : kLanes) +
            kNodesAroundBlocks);
  if (d.received == nullptr) fetch_inputs(g, d.kernels, s);
  const auto advanced = [&](GraphBuilder& builder, Condition again) {
    advance(emit_step(builder, d, {}), d.kernels.advance, again);
  };
  if (steps.loop) {
    const ConditionHandle again = g.condition("again", 1);
    g.while_loop("steps", again, [&](GraphBuilder& body) { advanced(body, again); });
  } else if (steps.several()) {
    for (int64_t i = 0; i < steps.most; ++i) {
      const auto scope = g.scope("s" + std::to_string(i));
      advanced(g, {});
    }
  } else if (d.lane != nullptr) {
    emit_lanes(g, d);
  } else {
    return emit_step(g, d, d.purpose == DecodePurpose::step ? s.host_tokens : View<int32_t>{}).residual;
  }
  return {};
}

}  // namespace

Plan decoder_plan(Device& device, const DecoderModel& model, const DecoderKernels& k, const KvCache& cache,
                  const DecodeState& s, DecodePurpose purpose, EdgePolicy policy, const AdapterSlots* adapters,
                  Collectives* collectives) {
  GraphBuilder g(device, decoder_plan_name(s, purpose, adapters != nullptr), {{"bucket", std::to_string(s.rows)}});
  describe_plan(g, {model, k, cache, s, purpose, adapters, nullptr, nullptr, collectives});
  return std::move(g).finish(policy);
}

void describe_decoder(GraphBuilder& g, TeamRank& rank, const DecoderModel& model, const DecoderKernels& k,
                      const KvCache& cache, const DecodeState& s, const AdapterSlots* adapters,
                      const DecoderKernels* lane) {
  const DecoderKernels* const of_lanes = s.lanes.empty() ? nullptr : lane;
  describe_plan(g, {model, k, cache, s, DecodePurpose::serve, adapters, &rank, nullptr, nullptr, of_lanes});
}

void describe_chains(GraphBuilder& g, TeamRank& rank, const DecoderModel& model, const DecoderKernels& k,
                     std::span<const KvCache* const> caches, std::span<const DecodeState> states) {
  constexpr std::array<std::string_view, 2> kNames = {"c0", "c1"};
  std::vector<EmitContext> chains;
  for (size_t i = 0; i < states.size(); ++i) {
    const DecodeState& s = states[i];
    const std::string name(kNames.at(i));
    const Described d{model,   k,       *caches[i], s,         DecodePurpose::serve, nullptr, &rank,
                      nullptr, nullptr, nullptr,    name + "."};
    declare_buffers(g, d);
    const auto scope = g.scope(name);
    fetch_inputs(g, k, s);
    chains.push_back(emit_context(g, d, s, true));
  }
  emit_in_turns(chains, kNames, k.first);
  for (int64_t l = 0; l < model.config().layers; ++l) {
    const auto scope = g.scope("l" + std::to_string(l));
    for (size_t i = 0; i < states.size(); ++i) enter_layer(chains[i], model, *caches[i], l);
    emit_in_turns(chains, kNames, k.of_layer(l));
  }
  emit_in_turns(chains, kNames, k.last);
}

Residual describe_stage(GraphBuilder& g, const DecoderModel& model, const DecoderKernels& k, const KvCache& cache,
                        const DecodeState& s, const Residual* received) {
  return describe_plan(g, {model, k, cache, s, DecodePurpose::serve, nullptr, nullptr, received});
}

std::string decoder_plan_name(const DecodeState& s, DecodePurpose purpose, bool adapted) {
  return (purpose == DecodePurpose::prefill ? "prefill.b" : "decode.b") + std::to_string(s.rows) +
         (adapted ? ".adapters" : "");
}

ExchangeSize exchange_size(const ModelConfig& config, int64_t rows, int64_t sampled, int64_t sm_count, int64_t lanes) {
  const int64_t logits = config.shard.most_of(config.vocab), most_blocks = MatvecShape::kMostBlocksPerSm * sm_count;
  return {.packets = count_of(std::max(1 + rows * row_stride(config.hidden), sampled * (logits + 2 * most_blocks))),
          .most = static_cast<uint32_t>(exchanges_of_step(config, lanes)),
          .bulk = config.hidden % 8 == 0 ? count_of(rows * config.hidden) : 0};
}

ExchangeSize exchange_size_of_chains(const ModelConfig& config, int64_t rows, int64_t sm_count, int64_t chains) {
  ExchangeSize size = exchange_size(config, rows, rows, sm_count);
  size.most *= static_cast<uint32_t>(chains);
  return size;
}

bool is_attention(const PlanNode& node) {
  static const std::set<std::string_view> kNames = {"attend", "attend_tiles", "flash_decode", "rope_flash_decode"};
  return kNames.contains(node.kernel_name());
}

}  // namespace nodewright
