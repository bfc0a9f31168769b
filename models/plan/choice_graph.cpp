#include "models/plan/choice_graph.h"

#include <string>

namespace nodewright {

namespace {

unsigned blocks_of_row(int64_t rows, const DeviceProperties& device) {
  return blocks_of_logit_row(static_cast<unsigned>(rows), static_cast<unsigned>(device.sm_count),
                             device.cluster_blocks());
}

KernelRequest of_row(const char* kernel, int64_t rows, const DeviceProperties& device) {
  return {kernel, {{"kBlocksOfRow", blocks_of_row(rows, device)}}};
}

}  // namespace

std::vector<KernelRequest> choice_kernel_requests(int64_t rows, const DeviceProperties& device) {
  return {{"shape_logits", {}}, of_row("sample", rows, device), of_row("record_choice", rows, device)};
}

ChoiceKernels choice_kernels(KernelCache& cache, const ChoiceState& state) {
  const DeviceProperties& device = cache.device().properties();
  const auto n = static_cast<unsigned>(state.rows);
  const unsigned blocks = blocks_of_row(state.rows, device);
  return {cache.kernel<ShapeLogits>("shape_logits", shape_logits_shape(n, static_cast<unsigned>(state.parts))),
          cache.kernel<Sample>(of_row("sample", state.rows, device), sample_shape(n, blocks)),
          cache.kernel<RecordChoice>(of_row("record_choice", state.rows, device), record_choice_shape(n, blocks))};
}

Plan choice_plan(Device& device, int64_t vocab, const ChoiceKernels& k, const DecodeState& step, const ChoiceState& s,
                 EdgePolicy policy) {
  GraphBuilder g(device, "choice.b" + std::to_string(s.rows), {{"bucket", std::to_string(s.rows)}});
  const auto declare = [&](const char* name, const auto& view, const char* kind, bool live_out) {
    g.declare({name, view.address(), view.bytes(), kind}, {.live_in = true, .live_out = live_out});
  };
  declare("logits", step.logits, "output", false);
  declare("last_token", step.last_token, "state", true);
  declare("choice.counts", s.counts, "state", true);
  g.declare(s.host_inputs_range, {.live_in = true});
  g.declare(s.asked_range, {.live_in = true});
  g.declare(s.inputs_range);
  g.declare(s.outputs_range, {.live_out = true});
  // Written first by the kernel that then reads it, which a plan cannot see: it counts as always valid.
  for (const NamedRange& range : s.scratch) g.declare(range, {.live_in = true});

  g.copy("inputs", CopyEnd(s.inputs_range.address, s.inputs_range.bytes, false),
         CopyEnd(s.host_inputs_range.address, s.host_inputs_range.bytes, true), s.inputs_range.bytes);
  const ChoiceInputs& in = s.inputs;
  g.launch("shape", k.shape,
           {.logits = step.logits,
            .rows = in.rows,
            .sequences = in.sequences,
            .forced = in.forced,
            .constrained = in.constrained,
            .masks = s.host_inputs.masks,
            .biases = in.biases,
            .bias_tokens = s.host_inputs.bias_tokens,
            .bias_values = s.host_inputs.bias_values,
            .repetition_penalty = in.repetition_penalty,
            .presence_penalty = in.presence_penalty,
            .frequency_penalty = in.frequency_penalty,
            .counts = s.counts,
            .n_live = in.n_live,
            .shaped = s.shaped,
            .best = s.best,
            .vocab = vocab,
            .stride = step.logits_stride,
            .mask_words = in.mask_words});
  g.launch("sample", k.sample,
           {.logits = s.shaped,
            .best = s.best,
            .sequences = in.sequences,
            .temperature = in.temperature,
            .min_p = in.min_p,
            .top_k = in.top_k,
            .top_p = in.top_p,
            .seed = in.seed,
            .output_index = in.output_index,
            .n_live = in.n_live,
            .tokens = s.chosen,
            .last_token = step.last_token,
            .delivered = {},
            .vocab = vocab,
            .logits_stride = step.logits_stride});
  g.launch("record", k.record,
           {.logits = step.logits,
            .shaped = s.shaped,
            .rows = in.rows,
            .sequences = in.sequences,
            .forced = in.forced,
            .chosen = s.chosen,
            .counted = in.counted,
            .logprobs = in.logprobs,
            .n_live = in.n_live,
            .counts = s.counts,
            .tokens = s.outputs.tokens,
            .kept = s.outputs.kept,
            .logprob = s.outputs.logprob,
            .top_tokens = s.outputs.top_tokens,
            .top_logprobs = s.outputs.top_logprobs,
            .vocab = vocab,
            .stride = step.logits_stride});
  return std::move(g).finish(policy);
}

}  // namespace nodewright
