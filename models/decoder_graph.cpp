#include "models/decoder_graph.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>

#include "models/row_stride.h"

namespace nodewright {
namespace {

uint64_t unsigned_of(int64_t n) { return static_cast<uint64_t>(n); }

// What every layer needs besides its own weights.
struct LayerContext {
  GraphBuilder& g;
  const ModelConfig& config;
  const DecoderKernels& k;
  const DecodeState& s;
  int64_t hidden_stride;
  bool chooses;  // the plan has rows that choose a token

  // Of the splits that meet in global memory, if they do.
  View<int32_t> arrivals() const { return s.partials.count > 0 ? s.arrivals : View<int32_t>{}; }
  // y = x W^T, or y += x W^T, as the product was planned.
  template <class T, class U>
  void product(const std::string& name, const std::shared_ptr<const MatmulPlan>& plan, View<T> x, const WeightMatrix& w,
               View<U> y) const {
    g.product(name, plan,
              {.a = x,
               .b = w.data,
               .c = {},
               .bias = {},
               .y = y,
               .workspace = plan->workspace_bytes() > 0 ? s.workspace : View<uint8_t>{}});
  }
  // What the block before has left to the kernel that reads the residual next, and by what it is normed.
  bool folds() const { return k.shape.folds_post_norms(config); }
  View<float> projected() const { return folds() ? s.projected : View<float>{}; }
  Weight<bf16> folded(Weight<bf16> post_norm) const { return folds() ? post_norm : Weight<bf16>{}; }

  // The residual times a norm's gain, as a kernel of so many blocks leaves it for the kernel that norms it next.
  View<bf16> gained() const { return k.gained ? s.gained : View<bf16>{}; }
  View<float> squares(uint64_t blocks) const {
    return k.gained ? s.squares.subview(0, blocks * unsigned_of((s.rows + 7) / 8 * 8)) : View<float>{};
  }

  // s.normed = norm(s.residual) of all rows, or of those that choose.
  void norm(const std::string& name, const Kernel<NormRows>& kernel, Weight<bf16> gain, View<int32_t> n_live) const {
    g.launch(name, kernel, {.x = s.residual, .gain = gain, .y = s.normed, .n_live = n_live, .eps = config.eps});
  }
};

// What differs from layer to layer of one network.
struct Layer {
  const LayerWeights& w;
  const LayerWeights* before;  // of the layer before, or null
  Weight<bf16> next_gain;      // of the norm behind the layer: the next layer's, or the head's
  View<bf16> kv;
  View<int32_t> table;
  Weight<float> frequencies;  // empty where positions are learned
  int64_t window;             // keys attended; 0: all
};

// x += W y + b or, in a family with post norms, x += norm(W y), which is left to the next kernel where those are
// folded. next_gain: of the norm of x that comes next.
void add_to_residual(const LayerContext& c, const std::string& name, const OutputKernels& k,
                     const std::shared_ptr<const MatmulPlan>& product, View<bf16> y, const WeightMatrix& w,
                     Weight<bf16> post_norm, Weight<bf16> next_gain) {
  const auto& [g, config, kernels, s, hidden_stride, chooses] = c;
  if (product) {
    c.product(name, product, y, w, config.post_norms ? s.projected : s.residual);
    if (!config.post_norms) return;
  } else if (!config.post_norms) {
    g.launch(name, k.project_add,
             {.x = y,
              .weight = w.data,
              .bias = w.bias,
              .residual = s.residual,
              .n_live = s.inputs.n_live,
              .outputs = w.rows,
              .x_stride = w.stride,
              .residual_stride = hidden_stride,
              .next_gain = kernels.gained ? next_gain : Weight<bf16>{},
              .gained = c.gained(),
              .squares = c.squares(k.project_add.shape.grid[0])});
    return;
  } else {
    g.launch(name, k.project,
             {.x = y,
              .weight = w.data,
              .bias = w.bias,
              .y = s.projected,
              .n_live = s.inputs.n_live,
              .outputs = w.rows,
              .x_stride = w.stride,
              .y_stride = hidden_stride});
    return;
  }
  // A product writes no padding behind its last row.
  const uint64_t projected = unsigned_of((s.rows - 1) * hidden_stride + config.hidden);
  g.launch(name + "_norm", k.norm_add,
           {.x = s.projected.subview(0, projected),
            .gain = post_norm,
            .residual = s.residual,
            .n_live = s.inputs.n_live,
            .stride = hidden_stride,
            .eps = config.eps});
}

// s.qkv = Wqkv norm(x)
void project_qkv(const LayerContext& c, const Layer& layer) {
  const auto& [g, config, k, s, hidden_stride, chooses] = c;
  const LayerWeights& w = layer.w;
  if (k.products.qkv) {
    c.norm("norm", k.products.norm, w.attention_norm.gain, s.inputs.n_live);
    return c.product("qkv", k.products.qkv, s.normed, w.qkv, s.qkv);
  }
  const bool adds = c.folds() && layer.before != nullptr;
  const auto blocks_before = layer.before == nullptr ? 1 : k.down.project_add.shape.grid[0];  // embed's, or down's
  g.launch("qkv", adds ? k.norm_qkv : k.first_norm_qkv,
           {.x = k.gained ? View<float>{}
                 : adds   ? s.mid_residual
                          : s.residual,
            .gain = k.gained ? Weight<bf16>{} : w.attention_norm.gain,
            .shift = w.attention_norm.shift,
            .weight = w.qkv.data,
            .bias = w.qkv.bias,
            .y = s.qkv,
            .best = {},
            .n_live = s.inputs.n_live,
            .outputs = w.qkv.rows,
            .y_stride = config.qkv_width(),
            .eps = config.eps,
            .projected = adds ? s.projected : View<float>{},
            .post_gain = adds ? layer.before->feed_forward_post_norm : Weight<bf16>{},
            .x_next = adds ? s.residual : View<float>{},
            .gained = c.gained(),
            .squares = c.squares(blocks_before)});
}

// Keys that a row attends to, at most: those of the longest context, or of its window.
int64_t most_keys(const LayerContext& c, const Layer& layer) {
  const int64_t context = c.s.table_stride * kPageTokens;
  return layer.window ? std::min(layer.window, context) : context;
}

// Of q . k, for powers of two.
float score_scale(const ModelConfig& config) {
  return static_cast<float>(M_LOG2E * config.query_scale.value_or(1 / std::sqrt(static_cast<double>(config.head_dim))));
}

// s.attended = attention(rope(s.qkv)).
void rope_and_attend(const LayerContext& c, const Layer& layer) {
  const auto& [g, config, k, s, hidden_stride, chooses] = c;
  const StepInputs& in = s.inputs;
  g.launch("attend", k.rope_flash_decode,
           {.qkv = s.qkv,
            .frequencies = layer.frequencies,
            .q_gain = layer.w.q_norm,
            .k_gain = layer.w.k_norm,
            .positions = in.positions,
            .sequences = in.sequences,
            .block_table = layer.table,
            .n_live = in.n_live,
            .kv = layer.kv,
            .y = s.attended,
            .partials = s.partials,
            .arrivals = c.arrivals(),
            .qkv_stride = config.qkv_width(),
            .table_stride = s.table_stride,
            .y_stride = layer.w.out.stride,
            .window = layer.window,
            .eps = config.eps,
            .scale = score_scale(config)},
           Traffic{s.qkv.bytes() + sizeof(bf16) * unsigned_of(2 * s.rows * most_keys(c, layer) * config.kv_width()),
                   s.attended.bytes() + sizeof(bf16) * unsigned_of(2 * s.rows * config.kv_width())});
}

// s.attended = attention(s.q): with products each row that chooses by itself, and the others in tiles.
void attend(const LayerContext& c, const Layer& layer) {
  const auto& [g, config, k, s, hidden_stride, chooses] = c;
  const StepInputs& in = s.inputs;
  const int64_t keys = most_keys(c, layer);
  const float scale = score_scale(config);
  const bool with_products = k.shape.with_products();
  if (!with_products || chooses) {
    const int64_t rows = s.sampled_rows;
    g.launch("attend", k.attend,
             {.q = s.q,
              .kv = layer.kv,
              .positions = in.positions,
              .sequences = in.sequences,
              .block_table = layer.table,
              .n_live = with_products ? in.n_sampled : in.n_live,
              .y = s.attended,
              .partials = s.partials,
              .arrivals = c.arrivals(),
              .table_stride = s.table_stride,
              .y_stride = layer.w.out.stride,
              .window = layer.window,
              .scale = scale},
             Traffic{sizeof(float) * unsigned_of(rows * config.query_width()) +
                         sizeof(bf16) * unsigned_of(2 * rows * keys * config.kv_width()),
                     sizeof(bf16) * unsigned_of(rows * layer.w.out.stride)});
  }
  if (with_products)
    g.launch("attend_tiles", k.products.attend_tiles,
             {.q = s.q,
              .kv = layer.kv,
              .positions = in.positions,
              .sequences = in.sequences,
              .block_table = layer.table,
              .n_first = in.n_sampled,
              .n_live = in.n_live,
              .y = s.attended,
              .table_stride = s.table_stride,
              .y_stride = layer.w.out.stride,
              .window = layer.window,
              .scale = scale},
             Traffic{s.q.bytes() + sizeof(bf16) * unsigned_of(2 * keys * config.kv_width()), s.attended.bytes()});
}

// x += Wo attention(rope(Wqkv norm(x)))
void attention_block(const LayerContext& c, const Layer& layer) {
  const auto& [g, config, k, s, hidden_stride, chooses] = c;
  const LayerWeights& w = layer.w;
  const StepInputs& in = s.inputs;
  project_qkv(c, layer);
  if (k.shape.takes_rope_flash_decode(config)) {
    rope_and_attend(c, layer);
  } else {
    g.launch(config.learned_positions ? "append" : "rope", k.rope_append,
             {.qkv = s.qkv,
              .frequencies = layer.frequencies,
              .q_gain = w.q_norm,
              .k_gain = w.k_norm,
              .positions = in.positions,
              .sequences = in.sequences,
              .block_table = layer.table,
              .n_live = in.n_live,
              .q = s.q,
              .kv = layer.kv,
              .qkv_stride = config.qkv_width(),
              .table_stride = s.table_stride,
              .eps = config.eps},
             Traffic{s.qkv.bytes(), s.q.bytes() + sizeof(bf16) * unsigned_of(2 * s.rows * config.kv_width())});
    attend(c, layer);
  }
  add_to_residual(c, "out", k.attention_out, k.products.out, s.attended, w.out, w.attention_post_norm,
                  w.feed_forward_norm.gain);
}

// x += Wdown (f(Wgate norm(x)) * (Wup norm(x))), or without a gate x += Wdown f(Wup norm(x) + b) + b
void feed_forward_block(const LayerContext& c, const Layer& layer) {
  const auto& [g, config, k, s, hidden_stride, chooses] = c;
  const LayerWeights& w = layer.w;
  if (k.products.gate_up) {
    c.norm("feed_forward_norm", k.products.norm, w.feed_forward_norm.gain, s.inputs.n_live);
    c.product("gate_up", k.products.gate_up, s.normed, w.gate_up, s.gate_up);
    g.launch("gate", k.products.gate,
             {.x = s.gate_up,
              .y = s.activated,
              .n_live = s.inputs.n_live,
              .outputs = config.intermediate,
              .x_stride = row_stride(2 * config.intermediate),
              .y_stride = w.down.stride});
  } else {
    g.launch(config.gated ? "gate_up" : "up", k.norm_gate_up,
             {.x = k.gained ? View<float>{} : s.residual,
              .gain = k.gained ? Weight<bf16>{} : w.feed_forward_norm.gain,
              .shift = w.feed_forward_norm.shift,
              .weight = w.gate_up.data,
              .bias = w.gate_up.bias,
              .y = s.activated,
              .n_live = s.inputs.n_live,
              .outputs = w.gate_up.rows,
              .y_stride = w.down.stride,
              .eps = config.eps,
              .projected = c.projected(),
              .post_gain = c.folded(w.attention_post_norm),
              .x_next = s.mid_residual,
              .gained = c.gained(),
              .squares = c.squares(k.attention_out.project_add.shape.grid[0])});
  }
  add_to_residual(c, "down", k.down, k.products.down, s.activated, w.down, w.feed_forward_post_norm, layer.next_gain);
}

void declare_buffers(GraphBuilder& g, const DecoderModel& model, const KvCache& cache, const DecodeState& s,
                     DecodePurpose purpose) {
  for (const NamedRange& range : model.weights().ranges()) g.declare(range, {.live_in = true});
  for (const NamedRange& range : model.frequencies_ranges()) g.declare(range, {.live_in = true});
  for (int64_t l = 0; l < model.config().layers; ++l) g.declare(cache.range(l), {.live_in = true, .live_out = true});
  g.declare(s.host_inputs_range, {.live_in = true});
  g.declare(s.inputs_range);
  // A workspace is written and read back within one launch, and a loop's body might never run: a plan cannot see that
  // what they read has been written, so it counts as always valid.
  const bool loops = purpose == DecodePurpose::step && s.steps.loop;
  for (const NamedRange& range : s.scratch)
    g.declare(range, {.live_in = loops || range.kind == "workspace", .live_out = range.kind == "output"});
  for (const NamedRange& range : s.kept) g.declare(range, {.live_in = true, .live_out = true});
  // Of several steps the host says beforehand that nothing was chosen.
  if (purpose == DecodePurpose::step) g.declare(s.host_tokens_range, {.live_in = s.steps.several(), .live_out = true});
}

// The first layer's input: of the tokens that the host named or the last step chose.
void embed(const LayerContext& c, const DecoderWeights& w) {
  const auto& [g, config, k, s, hidden_stride, chooses] = c;
  g.launch("embed", k.embed,
           {.tokens = s.inputs.tokens,
            .sequences = s.inputs.sequences,
            .last_token = s.last_token,
            .n_live = s.inputs.n_live,
            .positions = config.learned_positions ? s.inputs.positions : View<int32_t>{},
            .embedding = w.embedding().data,
            .position_table = w.positions().data,
            .x = s.residual,
            .stride = hidden_stride,
            .vocab = config.vocab,
            .scale = config.embedding_scale,
            .next_gain = k.gained ? w.layers().front().attention_norm.gain : Weight<bf16>{},
            .gained = c.gained(),
            .squares = c.squares(1)},
           Traffic{sizeof(bf16) * unsigned_of(s.rows * hidden_stride), s.residual.bytes() + c.gained().bytes()});
}

// s.hidden = norm(x), s.logits = Whead norm(x), s.tokens: what each row chooses; x: the residual behind the last layer.
void head(const LayerContext& c, const DecoderWeights& w, View<int32_t> delivered) {
  const auto& [g, config, k, s, hidden_stride, chooses] = c;
  const View<float> x = c.folds() ? s.mid_residual : s.residual;
  const Weight<bf16> post_norm = c.folded(w.layers().back().feed_forward_post_norm);
  if (s.hidden.count > 0)
    g.launch("hidden", k.norm_hidden,
             {.x = x,
              .gain = w.final_norm().gain,
              .shift = w.final_norm().shift,
              .y = s.hidden,
              .n_live = k.shape.hidden == HiddenStates::full ? s.inputs.n_live : s.inputs.n_sampled,
              .stride = hidden_stride,
              .eps = config.eps,
              .projected = c.projected(),
              .post_gain = post_norm});
  View<float> logits = s.logits;
  const View<ScoredToken> best = s.best.subview(0, unsigned_of(s.sampled_rows) * k.head_parts);
  if (k.products.head) {
    logits = logits.subview(0, unsigned_of((s.sampled_rows - 1) * s.logits_stride + config.vocab));  // as the product
    c.norm("norm", k.products.norm_sampled, w.final_norm().gain, s.inputs.n_sampled);
    c.product("logits", k.products.head, s.normed, w.head(), s.logits);
  } else {
    const bool may_leave_out = k.head_parts > 0 && !k.shape.is_one_row();
    g.launch("logits", k.norm_logits,
             {.x = k.head_gained ? View<float>{} : x,
              .gain = k.head_gained ? Weight<bf16>{} : w.final_norm().gain,
              .shift = w.final_norm().shift,
              .weight = w.head().data,
              .bias = {},
              .y = s.logits,
              .best = best,
              .n_live = s.inputs.n_sampled,
              .outputs = config.vocab,
              .y_stride = s.logits_stride,
              .eps = config.eps,
              .projected = c.projected(),
              .post_gain = post_norm,
              .x_next = {},
              .gained = k.head_gained ? c.gained() : View<bf16>{},
              .squares = k.head_gained ? c.squares(k.down.project_add.shape.grid[0]) : View<float>{},
              .temperature = may_leave_out ? s.inputs.temperature : View<float>{},
              .keeps_all = may_leave_out ? s.inputs.keeps_logits : View<int32_t>{}});
  }
  g.launch("sample", k.sample,
           {.logits = logits,
            .best = best,
            .sequences = s.inputs.sequences,
            .temperature = s.inputs.temperature,
            .min_p = s.inputs.min_p,
            .top_k = s.inputs.top_k,
            .top_p = s.inputs.top_p,
            .seed = s.inputs.seed,
            .output_index = s.inputs.output_index,
            .n_live = s.inputs.n_sampled,
            .tokens = s.tokens,
            .last_token = s.last_token,
            .delivered = delivered,
            .vocab = config.vocab,
            .logits_stride = s.logits_stride});
}

// `again`: of the loop that the step is the body of; empty outside one.
void advance(const LayerContext& c, Condition again) {
  const auto& [g, config, k, s, hidden_stride, chooses] = c;
  const StepInputs& in = s.inputs;
  g.launch("advance", k.advance,
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
           Traffic{s.inputs_range.bytes, s.inputs.positions.bytes()});  // a row moves only where one ends
}

// At most, to make room for.
constexpr size_t kNodesOfBlock = 10, kNodesAroundBlocks = 8;

}  // namespace

Plan decoder_plan(Device& device, const DecoderModel& model, const DecoderKernels& k, const KvCache& cache,
                  const DecodeState& s, DecodePurpose purpose, EdgePolicy policy) {
  const ModelConfig& config = model.config();
  const DecoderWeights& w = model.weights();
  const bool chooses = purpose != DecodePurpose::prefill;
  GraphBuilder g(device, (chooses ? "decode.b" : "prefill.b") + std::to_string(s.rows),
                 {{"bucket", std::to_string(s.rows)}});
  declare_buffers(g, model, cache, s, purpose);
  const LaunchSteps steps = purpose == DecodePurpose::step ? s.steps : LaunchSteps{};
  g.reserve(unsigned_of(steps.loop ? 1 : steps.most) * kNodesOfBlock * unsigned_of(config.layers) + kNodesAroundBlocks);

  const auto step = [&](GraphBuilder& builder, View<int32_t> delivered) {
    const LayerContext context{builder, config, k, s, w.embedding().stride, chooses};
    embed(context, w);
    for (int64_t l = 0; l < config.layers; ++l) {
      const auto scope = builder.scope("l" + std::to_string(l));
      const LayerWeights* own = &w.layers()[unsigned_of(l)];
      const Layer layer{*own,
                        l > 0 ? own - 1 : nullptr,
                        l + 1 < config.layers ? own[1].attention_norm.gain : w.final_norm().gain,
                        cache.layer(l),
                        s.table_of_group(config.page_group(l)),
                        model.frequencies(l),
                        config.window_of(l)};
      attention_block(context, layer);
      feed_forward_block(context, layer);
    }
    if (chooses) head(context, w, delivered);
    return context;
  };

  g.copy("inputs", CopyEnd(s.inputs_range.address, s.inputs_range.bytes, false),
         CopyEnd(s.host_inputs_range.address, s.host_inputs_range.bytes, true), s.inputs_range.bytes);
  if (steps.loop) {
    const ConditionHandle again = g.condition("again", 1);
    g.while_loop("steps", again, [&](GraphBuilder& body) { advance(step(body, {}), again); });
  } else if (steps.several()) {
    for (int64_t i = 0; i < steps.most; ++i) {
      const auto scope = g.scope("s" + std::to_string(i));
      advance(step(g, {}), {});
    }
  } else {
    step(g, purpose == DecodePurpose::step ? s.host_tokens : View<int32_t>{});
  }
  return std::move(g).finish(policy);
}

bool is_attention(const PlanNode& node) {
  static const std::set<std::string_view> kNames = {"attend", "attend_tiles", "flash_decode", "rope_attend",
                                                    "rope_flash_decode"};
  return kNames.contains(node.kernel_name());
}

}  // namespace nodewright
