#include "examples/nanogpt/nanogpt_graph.h"

#include <cmath>
#include <string>
#include <utility>

#include "examples/nanogpt/kernels/projection_shape.h"
#include "examples/nanogpt/nanogpt_sources.h"

namespace nodewright {
namespace {

uint64_t unsigned_of(int64_t n) { return static_cast<uint64_t>(n); }

// A kernel as it will be asked for and launched.
struct Choice {
  KernelRequest request;
  LaunchShape shape;
};

Choice projection(const char* name, const ProjectionShape& shape, int sm_count) {
  return {{name,
           {{"kCols", shape.cols},
            {"kWeightBytes", shape.weight_bytes},
            {"kLanes", shape.lanes()},
            {"kThreads", ProjectionShape::kThreads}}},
          shape.launch_shape(sm_count)};
}

Choice norm_projection(const ProjectionShape& shape, Activation activation, int sm_count) {
  Choice choice = projection("layer_norm_project", shape, sm_count);
  choice.request.constants.push_back({"kActivation", static_cast<int64_t>(activation)});
  return choice;
}

// One plan's surroundings: what is the same in every layer. The plans differ in where tokens, positions and the number
// of live rows come from.
struct Pass {
  GraphBuilder& g;
  const NanogptConfig& config;
  const NanogptWeights& w;
  const NanogptKernels& k;
  const NanogptState& s;
  View<int32_t> tokens, positions, n_live;
  int32_t advance;
  // The activations of `rows` tokens.
  View<float> residual = rows_of(s.residual, s.embedding_stride), qkv = rows_of(s.qkv, s.qkv_stride),
              attended = rows_of(s.attended, s.embedding_stride),
              activated = rows_of(s.activated, s.feed_forward_stride);

  View<float> rows_of(View<float> view, int64_t stride) const { return view.subview(0, unsigned_of(k.rows * stride)); }
};

void embed(const Pass& p) {
  p.g.launch("embed", p.k.embed,
             {.tokens = p.tokens,
              .sequences = p.s.inputs.sequence,
              .last_token = p.s.last_token,
              .n_live = p.n_live,
              .positions = p.positions,
              .token_table = p.w.tokens,
              .position_table = p.w.positions,
              .x = p.residual,
              .cols = p.config.embedding,
              .vocab = p.config.vocab,
              .context = p.config.context,
              .x_stride = p.s.embedding_stride,
              .advance = p.advance},
             {.traffic = Traffic{2 * sizeof(float) * unsigned_of(p.k.rows * p.config.embedding),
                                 sizeof(float) * unsigned_of(p.k.rows * p.config.embedding)}});
}

// x += Wo attention(Wqkv norm(x)) + b
void attention_block(const Pass& p, const NanogptLayer& w, View<float> cache) {
  p.g.launch("qkv", p.k.norm_qkv,
             {.x = p.residual,
              .n_live = p.n_live,
              .gain = w.attention_gain,
              .shift = w.attention_shift,
              .weight = w.qkv,
              .bias = {},
              .y = p.qkv,
              .outputs = 3 * p.config.embedding,
              .x_stride = p.s.embedding_stride,
              .y_stride = p.s.qkv_stride,
              .eps = p.config.eps});
  // At most: every key of the context.
  const uint64_t kept_bytes = 2 * sizeof(float) * unsigned_of(p.k.rows * p.config.embedding);
  p.g.launch("attend", p.k.attend,
             {.qkv = p.qkv,
              .positions = p.positions,
              .n_live = p.n_live,
              .cache = cache,
              .y = p.attended,
              .context = p.config.context,
              .qkv_stride = p.s.qkv_stride,
              .y_stride = p.s.embedding_stride,
              .scale = static_cast<float>(M_LOG2E / std::sqrt(static_cast<double>(p.config.head_dim())))},
             {.traffic = Traffic{p.qkv.bytes() + cache.bytes(), p.attended.bytes() + kept_bytes}});
  p.g.launch("out", p.k.out,
             {.x = p.attended,
              .n_live = p.n_live,
              .weight = w.out,
              .bias = w.out_bias,
              .residual = p.residual,
              .outputs = p.config.embedding,
              .x_stride = p.s.embedding_stride,
              .residual_stride = p.s.embedding_stride});
}

// x += Wdown gelu(Wup norm(x) + b) + b
void feed_forward_block(const Pass& p, const NanogptLayer& w) {
  p.g.launch("up", p.k.norm_up,
             {.x = p.residual,
              .n_live = p.n_live,
              .gain = w.feed_forward_gain,
              .shift = w.feed_forward_shift,
              .weight = w.up,
              .bias = w.up_bias,
              .y = p.activated,
              .outputs = p.config.feed_forward(),
              .x_stride = p.s.embedding_stride,
              .y_stride = p.s.feed_forward_stride,
              .eps = p.config.eps});
  p.g.launch("down", p.k.down,
             {.x = p.activated,
              .n_live = p.n_live,
              .weight = w.down,
              .bias = w.down_bias,
              .residual = p.residual,
              .outputs = p.config.embedding,
              .x_stride = p.s.feed_forward_stride,
              .residual_stride = p.s.embedding_stride});
}

// The last row's logits, and the token they lead to. The random stream is keyed by the seed and that row's position.
void choose(const Pass& p) {
  const NanogptInputs& in = p.s.inputs;
  const uint64_t last = unsigned_of(p.k.rows - 1), stride = unsigned_of(p.s.embedding_stride);
  p.g.launch("logits", p.k.norm_logits,
             {.x = p.residual.subview(last * stride, stride),
              .n_live = in.one,
              .gain = p.w.final_gain,
              .shift = p.w.final_shift,
              .weight = p.w.head,
              .bias = p.w.head_bias,
              .y = p.s.logits,
              .outputs = p.config.vocab,
              .x_stride = p.s.embedding_stride,
              .y_stride = p.config.vocab,
              .eps = p.config.eps});
  p.g.launch("sample", p.k.sample,
             {.logits = p.s.logits,
              .best = {},
              .sequences = in.sequence,
              .temperature = in.temperature,
              .min_p = {},
              .top_k = in.top_k,
              .top_p = in.top_p,
              .seed = in.seed,
              .output_index = p.positions.subview(last, 1),
              .n_live = in.one,
              .tokens = p.s.chosen,
              .last_token = p.s.last_token,
              .delivered = {},
              .vocab = p.config.vocab,
              .logits_stride = p.config.vocab});
  p.g.copy("chosen", CopyEnd(p.s.host_chosen.address(), p.s.host_chosen.bytes(), true), CopyEnd(p.s.chosen),
           p.s.host_chosen.bytes());
}

void declare_buffers(GraphBuilder& g, const NanogptWeights& w, const NanogptState& s, bool prompt) {
  for (const NamedRange& range : w.ranges()) g.declare(range, {.live_in = true});
  if (prompt) g.declare(s.host_inputs_range, {.live_in = true});
  g.declare(s.inputs_range, {.live_in = !prompt, .live_out = true});
  for (const NamedRange& range : s.scratch()) g.declare(range, {.live_out = range.kind == "output"});
  for (const NamedRange& range : s.kept()) g.declare(range, {.live_in = true, .live_out = true});
  g.declare(s.host_chosen_range, {.live_out = true});
}

void network(const Pass& p) {
  embed(p);
  for (int64_t l = 0; l < p.config.layers; ++l) {
    const auto scope = p.g.scope("l" + std::to_string(l));
    attention_block(p, p.w.layers()[unsigned_of(l)], p.s.cache[unsigned_of(l)]);
    feed_forward_block(p, p.w.layers()[unsigned_of(l)]);
  }
  choose(p);
}

}  // namespace

NanogptKernels nanogpt_kernels(KernelCache& cache, const NanogptConfig& config, int64_t rows) {
  const int sm_count = cache.device().properties().sm_count;
  const auto over = [&](int64_t cols, int64_t outputs, int64_t times) {
    return ProjectionShape{times, cols, outputs, sizeof(float)};
  };
  const DenseAttendShape attend{rows, config.heads, config.head_dim()};
  const int64_t n = config.embedding;
  const Choice choices[] = {
      {{"embed_positions", {{"kWeightBytes", sizeof(float)}}}, embed_positions_shape(static_cast<unsigned>(rows))},
      norm_projection(over(n, 3 * n, rows), Activation::none, sm_count),
      {{"dense_attend", {{"kHeads", config.heads}, {"kHeadDim", config.head_dim()}, {"kSlices", attend.slices()}}},
       attend.launch_shape()},
      projection("project_bias_add", over(n, n, rows), sm_count),
      norm_projection(over(n, config.feed_forward(), rows), Activation::gelu_erf, sm_count),
      projection("project_bias_add", over(config.feed_forward(), n, rows), sm_count),
      norm_projection(over(n, config.vocab, 1), Activation::none, sm_count),
      {{"sample", {{"kBlocksOfRow", 1}}}, sample_shape(1)}};
  std::vector<KernelRequest> requests;
  for (const Choice& choice : choices) requests.push_back(choice.request);
  add_nanogpt_sources(cache);
  cache.prepare(requests);

  NanogptKernels k;
  k.rows = rows;
  size_t next = 0;
  const auto get = [&]<class A>(Kernel<A>& kernel) {
    const Choice& choice = choices[next++];
    kernel = cache.kernel<A>(choice.request, choice.shape);
  };
  get(k.embed), get(k.norm_qkv), get(k.attend), get(k.out), get(k.norm_up), get(k.down), get(k.norm_logits),
      get(k.sample);
  return k;
}

Plan nanogpt_prompt_plan(Device& device, const NanogptWeights& weights, const NanogptKernels& kernels,
                         const NanogptState& state, EdgePolicy policy) {
  GraphBuilder g(device, "nanogpt.prompt" + std::to_string(kernels.rows), {{"bucket", std::to_string(kernels.rows)}});
  declare_buffers(g, weights, state, true);
  g.copy("inputs", CopyEnd(state.inputs_range.address, state.inputs_range.bytes, false),
         CopyEnd(state.host_inputs_range.address, state.host_inputs_range.bytes, true), state.inputs_range.bytes);
  const uint64_t rows = unsigned_of(kernels.rows);
  network({g, weights.config(), weights, kernels, state, state.inputs.prompt.subview(0, rows),
           state.inputs.prompt_positions.subview(0, rows), state.inputs.prompt_length, 0});
  return std::move(g).finish(policy);
}

Plan nanogpt_step_plan(Device& device, const NanogptWeights& weights, const NanogptKernels& kernels,
                       const NanogptState& state, EdgePolicy policy) {
  GraphBuilder g(device, "nanogpt.step", {{"bucket", "1"}});
  declare_buffers(g, weights, state, false);
  network(
      {g, weights.config(), weights, kernels, state, state.inputs.token, state.inputs.position, state.inputs.one, 1});
  return std::move(g).finish(policy);
}

}  // namespace nodewright
