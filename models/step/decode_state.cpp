#include "models/step/decode_state.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernels_src/attention/attend.h"
#include "kernels_src/attention/flash_decode.h"
#include "kernels_src/experts/expert_shape.h"
#include "kernels_src/product/rows/matvec_shape.h"
#include "kernels_src/product/tiles/tile_shape.h"
#include "kernels_src/step/advance.h"
#include "models/kv_cache.h"
#include "models/step/lanes.h"
#include "models/weights/row_stride.h"

namespace nodewright {
namespace {

uint64_t round_up_8(int64_t n) { return static_cast<uint64_t>(row_stride(n)); }

StepInputs lay_out_inputs(Arena& arena, int64_t rows, const DecodeLimits& limits) {
  const auto n = static_cast<uint64_t>(rows);
  StepInputs in;
  const auto take = [&]<class T>(View<T>& view, const char* name, uint64_t count) {
    view = arena.take<T>(name, count, "input", 16);
  };
  take(in.n_live, "n_live", 1);
  take(in.n_sampled, "n_sampled", 1);
  take(in.keeps_logits, "keeps_logits", 1);
  take(in.tokens, "tokens", n);
  take(in.positions, "positions", n);
  take(in.sequences, "sequences", n);
  take(in.temperature, "temperature", n);
  take(in.min_p, "min_p", n);
  take(in.top_k, "top_k", n);
  take(in.top_p, "top_p", n);
  take(in.seed, "seed", n);
  take(in.output_index, "output_index", n);
  if (limits.adapters.any()) take(in.adapters, "adapters", n);
  if (limits.lanes > 1) {
    take(in.lane_live, "lane_live", kLanes);
    take(in.lane_sampled, "lane_sampled", kLanes);
  }
  if (limits.steps.several()) {
    take(in.steps_done, "steps_done", 1);
    take(in.left, "left", n);
    take(in.caller_row, "caller_row", n);
    take(in.stop_ids, "stop_ids", n * static_cast<uint64_t>(kMostStopIds));
  }
  return in;
}

void lay_out_experts(Arena& arena, DecodeState& s, const ModelConfig& config, const StepShape& shape) {
  ExpertState& e = s.experts;
  const ExpertTileShape tiles{{shape.rows, config.experts.count, config.experts.chosen}};
  const auto rows = static_cast<uint64_t>(shape.rows), pairs = static_cast<uint64_t>(tiles.pairs());
  e.logits = arena.take<float>("router_logits", rows * static_cast<uint64_t>(config.experts.count));
  e.chosen = arena.take<int32_t>("experts", pairs);
  e.weights = arena.take<float>("expert_weights", pairs);
  if (!shape.groups_by_expert()) return;
  e.pairs = arena.take<int32_t>("expert_pairs", pairs);
  e.jobs = arena.take<ExpertJob>("expert_jobs", static_cast<uint64_t>(tiles.most_jobs()));
  e.n_jobs = arena.take<int32_t>("n_expert_jobs", 1);
  e.given = arena.take<float>("given", pairs * round_up_8(config.hidden));
}

void lay_out_collectives(Arena& arena, DecodeState& s, const ModelConfig& config) {
  const auto ranks = static_cast<uint64_t>(config.shard.ranks);
  const uint64_t values = static_cast<uint64_t>(s.rows) * round_up_8(config.hidden);
  const auto logits = static_cast<uint64_t>(s.sampled_rows * s.logits_part_stride);
  s.collective.given = arena.take<float>("given_to_ranks", values);
  s.collective.gathered = arena.take<float>("gathered", ranks * std::max(values, logits));
  if (s.best.count > 0) s.collective.best = arena.take<ScoredToken>("gathered_best", ranks * s.best.count);
}

// What the head leaves. Earlier stages of a pipeline have none.
void lay_out_ends(Arena& arena, DecodeState& s, const ModelConfig& config, const StepShape& shape,
                  const Device& device) {
  if (!config.stage.is_last()) return;
  const auto n = static_cast<uint64_t>(s.rows), sampled = static_cast<uint64_t>(s.sampled_rows);
  s.logits_stride = static_cast<int64_t>(round_up_8(config.vocab));
  s.logits = arena.take<float>("logits", sampled * round_up_8(config.vocab), "output");
  s.logits_part = s.logits, s.logits_part_stride = s.logits_stride;
  if (config.shard.is_part()) {
    s.logits_part_stride = static_cast<int64_t>(round_up_8(config.shard.most_of(config.vocab)));  // the same on all
    // A library's call reads it whole, with what no head writes after a row.
    s.logits_part = arena.take<float>("logits_part", sampled * static_cast<uint64_t>(s.logits_part_stride),
                                      shape.collectives ? "workspace" : "activation");
    s.partial = arena.take<float>("partial", n * round_up_8(config.hidden));
  }
  if (!shape.has_head_product() || shape.may_hold_head()) {
    const auto blocks = static_cast<uint64_t>(MatvecShape::kMostBlocksPerSm * device.properties().sm_count);
    s.best = arena.take<ScoredToken>("best", sampled * blocks);
    if (config.shard.is_part())
      s.team_best = arena.take<ScoredToken>("team_best", static_cast<uint64_t>(config.shard.ranks) * sampled * blocks);
  }
  if (shape.collectives) lay_out_collectives(arena, s, config);
  s.tokens = arena.take<int32_t>("tokens", n, "output");
  if (const int64_t rows = shape.hidden_rows(); rows > 0)
    s.hidden = arena.take<float>("hidden", static_cast<uint64_t>(rows * config.hidden), "output");
}

// Partial results of rows that attend one by one, where splits are merged through global memory.
uint64_t attention_partials(const ModelConfig& config, const StepShape& shape, const Device& device) {
  const int64_t single_rows = shape.single_rows(config);
  const AttendShape attend{single_rows, config.heads, config.kv_heads, config.head_dim,
                           attention_splits(config, shape, device.properties())};
  const bool in_cluster =
      shape.takes_flash_decode(config) && flash_decode_shape(config, shape, device.properties()).in_cluster();
  if (attend.splits == 1 || in_cluster) return 0;
  return static_cast<uint64_t>(single_rows * attend.head_tiles() * attend.splits * attend.partial_floats());
}

// The elements of the largest quantized matrix that a library multiplies: none of experts.
uint64_t most_dequantized(const ModelConfig& config) {
  uint64_t most = 0;
  for (size_t layer = 0; layer < static_cast<size_t>(config.all_layers()); ++layer)
    for (const Part part : {Part::qkv, Part::out, Part::gate_up, Part::down})
      if (layout_of(config.layouts.of_layer(layer), part).is_quantized() &&
          (config.has_dense() || part == Part::qkv || part == Part::out)) {
        const MatrixSize size = matrix_size(config, part);
        most = std::max(most, static_cast<uint64_t>(size.outputs) * round_up_8(size.cols));
      }
  return most;
}

void lay_out_activations(Arena& arena, DecodeState& s, const ModelConfig& config, const StepShape& shape,
                         const Device& device) {
  s.rows = shape.rows;
  s.sampled_rows = shape.sampled_rows;
  const auto n = static_cast<uint64_t>(s.rows);
  s.residual = arena.take<float>("residual", n * round_up_8(config.hidden));
  if (shape.network.post_norms) s.mid_residual = arena.take<float>("mid_residual", n * round_up_8(config.hidden));
  s.qkv = arena.take<float>("qkv", n * static_cast<uint64_t>(config.qkv_width()));
  if (!shape.takes_rope_flash_decode(config))
    s.q = arena.take<float>("q", n * static_cast<uint64_t>(config.query_width()));
  s.attended = arena.take<bf16>("attended", n * round_up_8(config.query_width()));
  const uint64_t of_experts = static_cast<uint64_t>(config.experts.chosen) * round_up_8(config.experts.intermediate);
  s.activated = arena.take<bf16>("activated", n * std::max(of_experts, round_up_8(config.intermediate)));
  if (config.has_experts()) lay_out_experts(arena, s, config, shape);
  if (shape.network.post_norms) s.projected = arena.take<float>("projected", n * round_up_8(config.hidden));
  if (shape.may_leave_gained(config)) {
    s.gained = arena.take<bf16>("gained", n * static_cast<uint64_t>(config.hidden));
    const int blocks = std::max(device.properties().sm_count, static_cast<int>(TileShape::kMostSplits));
    s.squares = arena.take<float>("squares", static_cast<uint64_t>(blocks * TileShape::padded_rows(s.rows)));
  }
  if (shape.with_products() || (config.has_experts() && shape.groups_by_expert()))
    s.normed = arena.take<bf16>("normed", n * round_up_8(config.hidden));
  if (shape.with_products()) {
    if (config.has_dense())
      s.gate_up = arena.take<bf16>("gate_up", n * round_up_8(matrix_size(config, Part::gate_up).outputs));
    if (const uint64_t elements = most_dequantized(config); elements > 0)
      s.dequantized = arena.take<bf16>("dequantized", elements, "workspace");
    if (!device.driver().is_cpu())
      s.workspace = arena.take<uint8_t>("products.workspace", kProductWorkspaceBytes, "workspace");
  }
  if (const uint64_t floats = attention_partials(config, shape, device); floats > 0)
    s.partials = arena.take<float>("attention.partials", floats, "workspace");
  lay_out_ends(arena, s, config, shape, device);
  if (!shape.adapters.any()) return;
  for (const Part part : kAdaptedParts)
    s.shrunk[place_of(part)] =
        arena.take<float>("shrunk." + std::string(to_string(part)),
                          n * static_cast<uint64_t>(AdapterLayout::parts_of(config, part) * shape.adapters.rank));
}

void lay_out_kept(Arena& arena, DecodeState& s, const ModelConfig& config, const DecodeLimits& limits) {
  const auto sequences = static_cast<uint64_t>(limits.sequences);
  s.table_stride = pages_for(limits.max_context);
  s.last_token = arena.take<int32_t>("last_token", sequences, "state");
  s.block_table = arena.take<int32_t>(
      "block_table", static_cast<uint64_t>(config.page_groups()) * sequences * static_cast<uint64_t>(s.table_stride),
      "state");
  const AttendShape attend{s.rows, config.heads, config.kv_heads, config.head_dim, 1};
  s.arrivals = arena.take<int32_t>("attention.arrivals", static_cast<uint64_t>(s.rows * attend.head_tiles()), "state");
}

uint64_t inputs_bytes(const DecodeLimits& limits) {
  Arena arena = Arena::measuring();
  lay_out_inputs(arena, limits.rows, limits);
  return arena.used_bytes();
}

// What the lanes cannot share, beside their halves of the rest.
void lay_out_lanes(Arena& arena, DecodeState& s, const ModelConfig& config, const StepShape& lane,
                   const Device& device) {
  s.lanes = halves_of(s);
  for (size_t i = 0; i < kLanes; ++i) {
    DecodeState& own = s.lanes[i];
    const std::string name = std::string(kLaneNames[i]) + ".";
    if (s.workspace.count > 0 && i == kEarly)
      own.workspace = arena.take<uint8_t>(name + "products.workspace", s.workspace.count, "workspace");
    if (s.experts.jobs.count > 0) {
      const ExpertTileShape tiles{{lane.rows, config.experts.count, config.experts.chosen}};
      own.experts.jobs = arena.take<ExpertJob>(name + "expert_jobs", static_cast<uint64_t>(tiles.most_jobs()));
      own.experts.n_jobs = arena.take<int32_t>(name + "n_expert_jobs", 1);
    }
  }
  // Its splits may be tuned otherwise.
  if (const uint64_t floats = attention_partials(config, lane, device); floats > 0)
    s.lanes[kLate].partials = arena.take<float>("late.attention.partials", floats, "workspace");
}

// Buckets below the largest split a row's attention over more blocks, so the largest layout is not always the last.
uint64_t activations_bytes(const DecodeLimits& limits, const ModelConfig& config, const Device& device) {
  const NetworkForm network = network_form(network_of(config));
  uint64_t most = 0;
  for (int64_t rows = 1; rows <= limits.rows; ++rows) {
    Arena arena = Arena::measuring();
    DecodeState s;
    lay_out_activations(arena, s, config, with_adapters(step_shape(network, limits, rows), limits), device);
    if (const auto lane = lane_shape(config, network, limits, rows)) lay_out_lanes(arena, s, config, *lane, device);
    most = std::max(most, arena.used_bytes());
  }
  return most;
}

uint64_t hidden_bytes(const DecodeLimits& limits, const ModelConfig& config) {
  if (!config.stage.is_last()) return 0;
  const NetworkForm network = network_form(network_of(config));
  int64_t most = 0;
  for (int64_t rows = 1; rows <= limits.rows; ++rows)
    most = std::max(most, step_shape(network, limits, rows).hidden_rows());
  return static_cast<uint64_t>(most * config.hidden) * sizeof(float);
}

uint64_t kept_bytes(const DecodeLimits& limits, const ModelConfig& config) {
  Arena arena = Arena::measuring();
  DecodeState s;
  s.rows = limits.rows;
  lay_out_kept(arena, s, config, limits);
  return arena.used_bytes();
}

}  // namespace

StepShape step_shape(const NetworkForm& network, const DecodeLimits& limits, int64_t rows) {
  StepShape shape = step_shape(network, rows, limits.sampled(), limits.products_from, limits.numerics,
                               limits.tuning ? limits.tuning->of(rows) : StepTuning{});
  shape.hidden = limits.hidden;
  shape.beside_adapters = limits.adapters.any();
  shape.collectives = limits.collectives;
  shape.steps = limits.steps;
  return shape;
}

// Where it does not fit a block: fewer chunks in flight, down to two, then fewer warps.
static void fit_block(FlashDecodeShape& shape, const DeviceProperties& device) {
  const int64_t requested = shape.requested;
  while (shape.rope_launch_shape().shared_bytes > device.shared_optin_bytes && (shape.ring() > 1 || shape.warps > 1)) {
    const bool shortens = shape.ring() > 2 || shape.warps == 1;
    if (!shortens) shape.warps /= 2;
    shape.requested = shortens ? shape.ring() - 1 : requested;
  }
}

// That of one order of sums for steps of any rows, whose ring all of them have.
static FlashDecodeShape ordered_shape(const ModelConfig& config, const DeviceProperties& device) {
  FlashDecodeShape shape{1, config.heads, config.kv_heads, config.head_dim};
  shape.cache = config.cache;
  shape.cluster_blocks = device.cluster_blocks();
  shape.ordered = true;
  fit_block(shape, device);
  shape.requested = shape.ring();
  return shape;
}

static FlashDecodeShape ordered_flash_decode_shape(const ModelConfig& config, const StepShape& step,
                                                   const DeviceProperties& device) {
  FlashDecodeShape shape = ordered_shape(config, device);
  shape.rows = step.single_rows(config);
  shape.splits = attention_splits(config, step, device);
  if (shape.splits == 1 && shape.has_clusters() && shape.rows * shape.head_tiles() <= device.sm_count) {
    FlashDecodeShape wide = shape;
    wide.warps = FlashDecodeShape::kSections;
    if (wide.rope_launch_shape().shared_bytes <= device.shared_optin_bytes) shape = wide;
  }
  shape.spread(device.sm_count, device.shared_optin_bytes);
  return shape;
}

int64_t attention_splits(const ModelConfig& config, const StepShape& step, const DeviceProperties& device) {
  if (step.tuning.attend.splits > 0) return step.tuning.attend.splits;
  if (step.takes_flash_decode(config)) {
    const FlashDecodeShape shape{step.single_rows(config), config.heads, config.kv_heads, config.head_dim};
    const int64_t cells = shape.rows * shape.head_tiles();
    if (step.numerics == Numerics::invariant) {
      constexpr int64_t kSections = FlashDecodeShape::kSections;
      FlashDecodeShape in_halves = ordered_shape(config, device);
      in_halves.splits = 2;
      if (in_halves.warps != FlashDecodeShape::kPartsOfSection) return 1;
      if (device.cluster_blocks() >= kSections && cells * kSections <= 2 * device.sm_count) return kSections;
      const bool halves = device.has_clusters() && 2 * cells <= device.sm_count &&
                          in_halves.rope_launch_shape().shared_bytes <= device.shared_optin_bytes;
      return halves ? 2 : 1;
    }
    // A cluster starts when all its blocks can, so they leave room to the kernels before and after
    // (docs/attention.md).
    if (device.has_clusters()) {
      const int64_t least = 2 * cells <= device.sm_count && config.hidden >= 2048 ? 2 : 1;
      return std::clamp<int64_t>(device.sm_count / 2 / cells, least, device.cluster_blocks());
    }
    return std::clamp<int64_t>(2 * device.sm_count / cells, 1, 64);  // one wave of blocks
  }
  const int64_t rows = step.numerics == Numerics::invariant ? 1 : step.single_rows(config);
  const AttendShape shape{rows, config.heads, config.kv_heads, config.head_dim, 1};
  const int64_t blocks = rows * shape.head_tiles();
  return std::clamp<int64_t>((2 * device.sm_count + blocks - 1) / blocks, 1, 64);
}

FlashDecodeShape flash_decode_shape(const ModelConfig& config, const StepShape& step, const DeviceProperties& device) {
  if (step.numerics == Numerics::invariant) return ordered_flash_decode_shape(config, step, device);
  FlashDecodeShape shape{step.single_rows(config), config.heads, config.kv_heads, config.head_dim,
                         attention_splits(config, step, device)};
  shape.cache = config.cache;
  shape.cluster_blocks = device.cluster_blocks();
  // Heads of 128 leave eight warps too little memory to take two chunks at once.
  if (shape.has_clusters() && shape.rows * shape.head_tiles() * shape.splits <= device.sm_count)
    shape.warps = shape.rows == 1 && shape.head_dim == 128 ? 4 : 8;
  if (step.tuning.attend.warps > 0) shape.warps = step.tuning.attend.warps;
  if (step.tuning.attend.ring > 0) shape.requested = step.tuning.attend.ring;
  shape.spread(device.sm_count, device.shared_optin_bytes);
  fit_block(shape, device);
  return shape;
}

// What every sequence keeps from step to step.
static std::shared_ptr<DeviceBuffer> new_kept(Device& device, const ModelConfig& config, const DecodeLimits& limits) {
  auto kept = std::make_shared<DeviceBuffer>(device, "kept", kept_bytes(limits, config));
  fill_device(device, kept->address(), std::byte{0}, kept->bytes(), kept->name());
  return kept;
}

static std::shared_ptr<PinnedBuffer> new_host_inputs(Device& device, const DecodeLimits& limits) {
  auto inputs = std::make_shared<PinnedBuffer>(device, "host.inputs", inputs_bytes(limits));
  std::memset(inputs->data(), 0, inputs->bytes());
  return inputs;
}

DecodeSlot::DecodeSlot(Device& device, const ModelConfig& config, const DecodeLimits& limits)
    : DecodeSlot(device, config, limits, new_kept(device, config, limits), new_host_inputs(device, limits)) {}

DecodeSlot::DecodeSlot(const DecodeSlot& first)
    : DecodeSlot(first.device_, first.config_, first.limits_, first.kept_,
                 new_host_inputs(first.device_, first.limits_)) {}

std::unique_ptr<DecodeSlot> DecodeSlot::of_rank(Device& device, const ModelConfig& config, const DecodeLimits& limits,
                                                const DecodeSlot& host) {
  return std::unique_ptr<DecodeSlot>(
      new DecodeSlot(device, config, limits, new_kept(device, config, limits), host.host_inputs_));
}

std::unique_ptr<DecodeSlot> DecodeSlot::another(const DecodeSlot& host) const {
  return std::unique_ptr<DecodeSlot>(new DecodeSlot(device_, config_, limits_, kept_, host.host_inputs_));
}

DecodeSlot::DecodeSlot(Device& device, const ModelConfig& config, const DecodeLimits& limits,
                       std::shared_ptr<DeviceBuffer> kept, std::shared_ptr<PinnedBuffer> host_inputs)
    : device_(device),
      config_(config),
      network_(network_form(network_of(config))),
      limits_(limits),
      inputs_(device, "inputs", inputs_bytes(limits)),
      activations_(device, "activations", activations_bytes(limits, config, device)),
      kept_(std::move(kept)),
      host_inputs_(std::move(host_inputs)),
      host_tokens_(device, "host.tokens", static_cast<uint64_t>(limits.steps.most * limits.rows) * sizeof(int32_t)) {
  // No value of a padded row matters, but every byte that is loaded or copied has been written once.
  fill_device(device, activations_.address(), std::byte{0}, activations_.bytes(), activations_.name());
  if (const uint64_t bytes = hidden_bytes(limits, config); bytes > 0)
    host_hidden_.emplace(device, "host.hidden", bytes);
}

DecodeState DecodeSlot::state(int64_t rows) const {
  DecodeState s;
  s.rows = rows;
  Arena inputs(inputs_), activations(activations_), kept(*kept_);
  Arena host_inputs(host_inputs_->name(), reinterpret_cast<uint64_t>(host_inputs_->data()), host_inputs_->bytes());
  s.inputs = lay_out_inputs(inputs, rows, limits_);
  s.host_inputs = lay_out_inputs(host_inputs, rows, limits_);
  s.inputs_range = {"inputs", inputs_.address(), inputs.used_bytes(), "input"};
  s.host_inputs_range = {"host.inputs", reinterpret_cast<uint64_t>(host_inputs_->data()), inputs.used_bytes(), "input"};
  lay_out_activations(activations, s, config_, adapted_shape(rows), device_);
  lay_out_kept(kept, s, config_, limits_);
  if (const std::optional<StepShape> lane = lane_shape(rows)) lay_out_lanes(activations, s, config_, *lane, device_);
  s.scratch = activations.ranges();
  s.kept = kept.ranges();
  s.steps = limits_.steps;
  s.host_tokens = {static_cast<int32_t*>(host_tokens_.data()), static_cast<uint64_t>(limits_.steps.most * rows)};
  if (s.hidden.count > 0) s.host_hidden = {static_cast<float*>(host_hidden_->data()), s.hidden.count};
  s.host_tokens_range = {"host.tokens", s.host_tokens.address(), s.host_tokens.bytes(), "output"};
  return s;
}

std::optional<StepShape> DecodeSlot::lane_shape(int64_t rows) const {
  return nodewright::lane_shape(config_, network_, limits_, rows);
}

uint64_t DecodeSlot::bytes() const { return inputs_.bytes() + activations_.bytes() + kept_->bytes(); }

void DecodeSlot::write_table(int32_t sequence, int64_t first, std::span<const int32_t> pages) const {
  const DecodeState s = state(1);
  const auto at = static_cast<uint64_t>(sequence * s.table_stride + first);
  for (int64_t group = 0; group < config_.page_groups(); ++group)
    write_view(device_, s.table_of_group(group).subview(at, pages.size()), pages, "block_table");
}

void DecodeSlot::poison() {
  fill_device(device_, activations_.address(), std::byte{0xff}, activations_.bytes(), activations_.name());
  std::memset(host_inputs_->data(), 0xff, host_inputs_->bytes());
}

}  // namespace nodewright
