#include "models/plan/score_graph.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>

#include "kernels_src/product/rows/matvec_shape.h"
#include "kernels_src/sampling/logit_row.h"
#include "models/lowering/cluster_counter.h"
#include "models/lowering/lowering.h"
#include "models/network/network.h"
#include "models/weights/row_stride.h"

namespace nodewright {
namespace {

MatvecShape head_shape(const ModelConfig& config, const ScoreLimits& limits, const DeviceProperties& device) {
  MatvecShape shape{limits.slice_rows, config.hidden, row_stride(config.hidden), config.head_rows(), 1, true, {}};
  shape.weights = config.layouts.head;
  shape.fit_segment(device.sm_count);
  return shape;
}

unsigned blocks_of_row(const ScoreLimits& limits, const DeviceProperties& device) {
  return blocks_of_logit_row(static_cast<unsigned>(limits.slice_rows), static_cast<unsigned>(device.sm_count),
                             device.cluster_blocks());
}

// The head of a step of tiles past held rows, of as many rows as a slice; nothing where the network's steps have none.
std::optional<KernelChoice> held_head(KernelCache& cache, const ModelConfig& config, const ScoreLimits& limits) {
  if (!limits.may_hold) return {};
  const Network network = network_of(config);
  StepShape step = step_shape(network_form(network), limits.slice_rows, limits.slice_rows, {}, Numerics::invariant);
  step.beside_adapters = limits.beside_adapters;
  ClusterCounter counter(cache);
  const LoweredStep lowered =
      lower(network, {config, step, cache.device().properties(), std::bind_front(&ClusterCounter::count, &counter)});
  for (const LoweredRun& run : lowered.last)
    for (const KernelChoice& kernel : run.kernels)
      if (kernel.request.name == "tile_norm_project") return kernel;
  return {};
}

struct Requests {
  KernelRequest gather, record;
  std::optional<KernelRequest> norm, cap;
  std::optional<KernelChoice> logits;
  bool holds = false;  // the head does
};

Requests requests_of(KernelCache& cache, const ModelConfig& config, const ScoreLimits& limits) {
  const DeviceProperties& device = cache.device().properties();
  const Constant norm{"kNorm", static_cast<int64_t>(config.norm)};
  std::optional<KernelChoice> held = held_head(cache, config, limits);
  const bool holds = held.has_value();
  Requests requests{
      .gather = {"gather_residual",
                 {norm, {"kPostNorm", has_post_norms(network_of(config)) ? 1 : 0}, {"kLeavesGained", holds ? 1 : 0}}},
      .record = {"record_choice", {{"kBlocksOfRow", blocks_of_row(limits, device)}}},
      .norm = {},
      .cap = {},
      .logits = std::move(held),
      .holds = holds,
  };
  std::vector<Constant> of_logits = logit_constants(config);
  of_logits.insert(of_logits.end(), {norm, {"kPostNorm", 0}, {"kBias", 0}});
  if (config.layouts.head.is_quantized()) of_logits = constants_of(config.layouts.head.constants(), of_logits);
  const MatvecShape by_rows = head_shape(config, limits, device);
  if (limits.with_products)
    requests.norm = {"norm_rows", {norm, {"kCols", config.hidden}, {"kPostNorm", 0}}};
  else if (!holds)
    requests.logits = kernel_choice<NormProject>({"norm_project", constants_of(by_rows.constants(), of_logits)},
                                                 by_rows.launch_shape(device.sm_count));
  if (limits.with_products && config.logit_cap != 0) requests.cap = {"cap_logits", {of_logits.at(1)}};
  return requests;
}

}  // namespace

std::vector<KernelRequest> score_kernel_requests(KernelCache& cache, const ModelConfig& config,
                                                 const ScoreLimits& limits) {
  const Requests requests = requests_of(cache, config, limits);
  std::vector<KernelRequest> all = {requests.gather, requests.record,
                                    limits.with_products ? *requests.norm : requests.logits->request};
  if (requests.cap) all.push_back(*requests.cap);
  return all;
}

ScoreKernels score_kernels(KernelCache& cache, const ModelConfig& config, const ScoreLimits& limits) {
  const DeviceProperties& device = cache.device().properties();
  const Requests requests = requests_of(cache, config, limits);
  const auto rows = static_cast<unsigned>(limits.slice_rows);
  ScoreKernels k{
      .gather = cache.kernel<GatherResidual>(requests.gather, gather_residual_shape(rows)),
      .logits = {},
      .norm = {},
      .cap = {},
      .head = {},
      .record = cache.kernel<RecordChoice>(requests.record, record_choice_shape(rows, blocks_of_row(limits, device)))};
  if (limits.with_products) {
    k.norm = cache.kernel<NormRows>(*requests.norm, norm_rows_shape(rows));
    if (requests.cap) k.cap = cache.kernel<CapLogits>(*requests.cap, cap_logits_shape(rows, config.head_rows()));
    const int64_t stride = row_stride(config.hidden);
    k.head = MatmulPlanner(cache.device(), cache)
                 .plan("score.head", {.m = limits.slice_rows,
                                      .n = config.head_rows(),
                                      .k = config.hidden,
                                      .transpose_b = true,
                                      .output = Element::f32,
                                      .lda = stride,
                                      .ldb = stride,
                                      .ldy = row_stride(config.head_rows()),
                                      .alpha = config.logit_scale});
  } else {
    k.logits = cache.kernel<NormProject>(requests.logits->request, requests.logits->shape);
    k.holds = requests.holds;
  }
  return k;
}

Plan score_plan(Device& device, const DecoderModel& model, const ScoreKernels& k, const ScoreState& s,
                View<int32_t> counts, int64_t index, EdgePolicy policy) {
  const ModelConfig& config = model.config();
  const DecoderWeights& w = model.weights();
  GraphBuilder g(device, "score.s" + std::to_string(index), {{"bucket", std::to_string(s.rows)}});
  for (const NamedRange& range : w.ranges()) g.declare(range, {.live_in = true});
  g.declare(s.activations_range, {.live_in = true});
  g.declare({"choice.counts", counts.address(), counts.bytes(), "state"}, {.live_in = true, .live_out = true});
  g.declare(s.host_inputs_range, {.live_in = true});
  g.declare(s.inputs_range);
  g.declare(s.outputs_range, {.live_out = true});
  for (const NamedRange& range : s.scratch) g.declare(range, {.live_in = range.kind == "workspace"});

  const ScoreInputs& in = s.inputs;
  const int64_t stride = row_stride(config.hidden);
  g.copy("inputs", CopyEnd(s.inputs_range.address, s.inputs_range.bytes, false),
         CopyEnd(s.host_inputs_range.address, s.host_inputs_range.bytes, true), s.inputs_range.bytes);
  g.launch("gather", k.gather,
           {.from = s.activations,
            .places = in.places,
            .rows = in.rows,
            .n_live = in.n_live,
            .post_gain = w.layers().back().feed_forward_post_norm,
            .y = s.residual,
            .stride = stride,
            .eps = config.eps,
            .next = k.holds ? ResidualOut{.gain = w.final_norm().gain, .gained = s.normed, .squares = s.squares}
                            : ResidualOut{}},
           {.traffic = Traffic{s.residual.bytes(), s.residual.bytes()}});
  View<float> logits = s.logits;
  if (k.head) {
    logits = logits.subview(
        0, static_cast<uint64_t>((s.rows - 1) * s.logits_stride + config.head_rows()));  // as the product
    g.launch("norm", k.norm,
             {.from = {.x = s.residual, .gain = w.final_norm().gain, .shift = w.final_norm().shift, .eps = config.eps},
              .y = s.normed,
              .n_live = in.n_live});
    g.product("logits", k.head,
              {.a = s.normed,
               .b = w.head().data,
               .c = {},
               .bias = {},
               .y = s.logits,
               .workspace = k.head->workspace_bytes() > 0 ? s.workspace : View<uint8_t>{}});
    if (config.logit_cap != 0)
      g.launch("cap", k.cap,
               {.logits = logits, .n_live = in.n_live, .vocab = config.head_rows(), .stride = s.logits_stride});
  } else {
    ResidualIn from{.x = s.residual, .gain = w.final_norm().gain, .shift = w.final_norm().shift, .eps = config.eps};
    if (k.holds) from = {.gained = s.normed, .squares = s.squares, .eps = config.eps};
    g.launch("logits", k.logits,
             {.from = from,
              .w = {.weight = w.head().data, .outputs = config.head_rows()},
              .to = {s.logits, s.logits_stride},
              .n_live = in.n_live});
  }
  g.launch("record", k.record,
           {.logits = logits,
            .shaped = logits,
            .rows = in.indices,
            .sequences = in.zeros,
            .forced = in.tokens,
            .chosen = in.tokens,
            .counted = in.zeros,
            .logprobs = in.logprobs,
            .n_live = in.n_live,
            .counts = counts,
            .tokens = s.outputs.tokens,
            .kept = s.outputs.kept,
            .logprob = s.outputs.logprob,
            .top_tokens = s.outputs.top_tokens,
            .top_logprobs = s.outputs.top_logprobs,
            .vocab = config.head_rows(),
            .stride = s.logits_stride,
            .log_sum = s.log_sum});
  return std::move(g).finish(policy);
}

}  // namespace nodewright
