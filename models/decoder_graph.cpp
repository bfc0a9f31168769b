#include "models/decoder_graph.h"

#include <cmath>
#include <string>

namespace nodewright {
namespace {

uint64_t unsigned_of(int64_t n) { return static_cast<uint64_t>(n); }

// What every layer needs besides its own weights.
struct LayerContext {
  GraphBuilder& g;
  const ModelConfig& config;
  const DecoderKernels& k;
  const DecodeState& s;
  Weight<float> frequencies;
  int64_t hidden_stride;
};

// x += Wo attention(rope(Wqkv norm(x)))
void attention_block(const LayerContext& c, const LayerWeights& w, View<bf16> kv) {
  const auto& [g, config, k, s, frequencies, hidden_stride] = c;
  const StepInputs& in = s.inputs;
  g.launch("qkv", k.norm_qkv,
           {.x = s.residual,
            .gain = w.attention_norm,
            .weight = w.qkv.data,
            .y = s.qkv,
            .n_live = in.n_live,
            .outputs = w.qkv.rows,
            .y_stride = config.qkv_width(),
            .eps = config.eps});
  g.launch("rope", k.rope_append,
           {.qkv = s.qkv,
            .frequencies = frequencies,
            .positions = in.positions,
            .block_table = in.block_table,
            .n_live = in.n_live,
            .q = s.q,
            .kv = kv,
            .qkv_stride = config.qkv_width(),
            .table_stride = in.table_stride},
           Traffic{s.qkv.bytes(), s.q.bytes() + sizeof(bf16) * unsigned_of(2 * s.rows * config.kv_width())});
  // At most: every row at the end of the longest context.
  const uint64_t context_bytes =
      sizeof(bf16) * unsigned_of(2 * s.rows * in.table_stride * kPageTokens * config.kv_width());
  g.launch("attend", k.attend,
           {.q = s.q,
            .kv = kv,
            .positions = in.positions,
            .block_table = in.block_table,
            .n_live = in.n_live,
            .y = s.attended,
            .partials = s.partials,
            .arrivals = s.arrivals,
            .table_stride = in.table_stride,
            .y_stride = w.out.stride,
            .scale = static_cast<float>(M_LOG2E / std::sqrt(static_cast<double>(config.head_dim)))},
           Traffic{s.q.bytes() + context_bytes, s.attended.bytes()});
  g.launch("out", k.attention_out,
           {.x = s.attended,
            .weight = w.out.data,
            .residual = s.residual,
            .n_live = in.n_live,
            .outputs = w.out.rows,
            .x_stride = w.out.stride,
            .residual_stride = hidden_stride});
}

// x += Wdown (silu(Wgate norm(x)) * (Wup norm(x)))
void feed_forward_block(const LayerContext& c, const LayerWeights& w) {
  const auto& [g, config, k, s, frequencies, hidden_stride] = c;
  g.launch("gate_up", k.norm_gate_up,
           {.x = s.residual,
            .gain = w.feed_forward_norm,
            .weight = w.gate_up.data,
            .y = s.activated,
            .n_live = s.inputs.n_live,
            .outputs = w.gate_up.rows,
            .y_stride = w.down.stride,
            .eps = config.eps});
  g.launch("down", k.down,
           {.x = s.activated,
            .weight = w.down.data,
            .residual = s.residual,
            .n_live = s.inputs.n_live,
            .outputs = w.down.rows,
            .x_stride = w.down.stride,
            .residual_stride = hidden_stride});
}

void declare_buffers(GraphBuilder& g, const DecoderModel& model, const KvCache& cache, const DecodeState& s) {
  for (const NamedRange& range : model.weights().ranges()) g.declare(range, {.live_in = true});
  g.declare(model.frequencies_range(), {.live_in = true});
  for (int64_t l = 0; l < model.config().layers; ++l) g.declare(cache.range(l), {.live_in = true, .live_out = true});
  g.declare(s.host_inputs_range, {.live_in = true});
  g.declare(s.inputs_range);
  // A workspace is written and read back within one launch, which a plan cannot see: it counts as always valid.
  for (const NamedRange& range : s.scratch)
    g.declare(range, {.live_in = range.kind == "workspace", .live_out = range.kind == "output"});
  for (const NamedRange& range : s.kept) g.declare(range, {.live_in = true, .live_out = true});
  g.declare(s.host_tokens_range, {.live_out = true});
}

}  // namespace

Plan decoder_plan(Device& device, const DecoderModel& model, const DecoderKernels& k, const KvCache& cache,
                  const DecodeState& s, DecodePurpose purpose, EdgePolicy policy) {
  const ModelConfig& config = model.config();
  const DecoderWeights& w = model.weights();
  const bool step = purpose == DecodePurpose::step;
  GraphBuilder g(device, (step ? "decode.b" : "prefill.b") + std::to_string(s.rows), static_cast<int>(s.rows));
  declare_buffers(g, model, cache, s);

  g.copy("inputs", CopyEnd(s.inputs_range.address, s.inputs_range.bytes, false),
         CopyEnd(s.host_inputs_range.address, s.host_inputs_range.bytes, true), s.inputs_range.bytes);
  g.launch("embed", k.embed,
           {.tokens = s.inputs.tokens,
            .sequences = s.inputs.sequences,
            .last_token = s.last_token,
            .n_live = s.inputs.n_live,
            .embedding = w.embedding().data,
            .x = s.residual,
            .stride = w.embedding().stride,
            .vocab = config.vocab},
           Traffic{sizeof(bf16) * unsigned_of(s.rows * w.embedding().stride), s.residual.bytes()});
  const LayerContext context{g, config, k, s, model.frequencies(), w.embedding().stride};
  for (int64_t l = 0; l < config.layers; ++l) {
    const auto scope = g.scope("l" + std::to_string(l));
    attention_block(context, w.layers()[unsigned_of(l)], cache.layer(l));
    feed_forward_block(context, w.layers()[unsigned_of(l)]);
  }
  if (step) {
    g.launch("logits", k.norm_logits,
             {.x = s.residual,
              .gain = w.final_norm(),
              .weight = w.head().data,
              .y = s.logits,
              .n_live = s.inputs.n_live,
              .outputs = config.vocab,
              .y_stride = s.logits_stride,
              .eps = config.eps});
    g.launch("sample", k.sample,
             {.logits = s.logits,
              .sequences = s.inputs.sequences,
              .temperature = s.inputs.temperature,
              .top_k = s.inputs.top_k,
              .top_p = s.inputs.top_p,
              .seed = s.inputs.seed,
              .output_index = s.inputs.output_index,
              .n_live = s.inputs.n_live,
              .tokens = s.tokens,
              .last_token = s.last_token,
              .vocab = config.vocab,
              .logits_stride = s.logits_stride});
    g.copy("outputs", CopyEnd(s.host_tokens.address(), s.host_tokens.bytes(), true), CopyEnd(s.tokens),
           s.host_tokens.bytes());
  }
  return std::move(g).finish(policy);
}

}  // namespace nodewright
