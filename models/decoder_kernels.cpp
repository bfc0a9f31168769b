#include "models/decoder_kernels.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "kernels_src/matvec_shape.h"
#include "kernels_src/tile_shape.h"
#include "models/kv_cache.h"
#include "models/row_stride.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

// A kernel as it will be asked for and launched.
struct Choice {
  KernelRequest request;
  LaunchShape shape;
};

template <class E>
Constant constant(const char* name, E value) {
  return {name, static_cast<int64_t>(value)};
}

// W [outputs, cols] times the bucket's rows.
Choice matvec(const char* name, MatvecShape shape, int sm_count, const std::vector<Constant>& of_family) {
  shape.fit_segment(sm_count);
  return {{name, constants_of(shape.constants(), of_family)}, shape.launch_shape(sm_count)};
}

// The same on tensor cores, or nothing where a block's shared memory, or its registers, do not hold it.
std::optional<Choice> tiled(const std::string& name, const TileShape& wanted, const DeviceProperties& device,
                            const std::vector<Constant>& of_family) {
  if (wanted.held && !wanted.holds()) return std::nullopt;
  const TileShape shape = wanted.fitting(device.sm_count, device.shared_optin_bytes);
  const int64_t ring = shape.ring(device.sm_count, device.shared_optin_bytes);
  if (ring == 0) return std::nullopt;
  return Choice{{"tile_" + name, constants_of(shape.constants(ring), of_family)},
                shape.launch_shape(device.sm_count, ring)};
}

// attention_out and down: project_add or, in a family with post norms, project. `projections` is empty where those are
// library products, `of_products` where none is.
struct Projections {
  Choice first_norm_qkv, norm_qkv, attention_out, norm_gate_up, down;
};
struct OfProducts {
  Choice norm, norm_sampled, gate;
};
struct OfAttention {
  Choice rope_append, attend;
  std::optional<Choice> attend_tiles;  // of products
};
struct Choices {
  Choice embed, sample;
  std::optional<OfAttention> of_attention;
  std::optional<Choice> rope_flash_decode;  // in place of those two
  std::optional<Projections> projections;
  std::optional<OfProducts> of_products;
  std::optional<Choice> norm_add, norm_logits, norm_hidden, advance;  // norm_add: of products and post norms
  bool gained = false, head_gained = false;                           // as of DecoderKernels
};

// What a projection norms: nothing, its input, or first what the block before adds to that; gained: its input, which
// comes times the gain.
enum class Norms : uint8_t { none, own, post_and_own, gained };

bool is_tiled(const Choice& choice) { return choice.request.name.starts_with("tile_"); }

// A warp holds one key at least: 32 lanes of 8 elements.
constexpr int64_t kLargestHeadDim = 256;

Choices choose(const ModelConfig& config, const StepShape& step, const DeviceProperties& device) {
  if (config.head_dim > kLargestHeadDim)
    throw Error({.doing = "build attention for",
                 .object = config.architecture,
                 .detail = "head_dim is " + std::to_string(config.head_dim) + ", the kernel takes at most " +
                           std::to_string(kLargestHeadDim)});
  const bool holds = step.may_hold() && step.may_leave_gained(config) && device.has_clusters();
  // W [outputs, cols] times `rows` rows.
  const auto projection = [&](const char* name, int64_t cols, int64_t outputs, int64_t unit, Norms norms, int64_t rows,
                              const ProjectionTuning& tuning, std::vector<Constant> of_tiles,
                              std::vector<Constant> of_matvec) {
    const int64_t stride = row_stride(cols);
    const bool holds_rows = holds && rows > kTilesToRows;
    const bool normed = norms != Norms::none, post_normed = norms == Norms::post_and_own;
    const bool gained = norms == Norms::gained;
    if (normed)
      for (std::vector<Constant>* constants : {&of_tiles, &of_matvec})
        constants->insert(constants->end(), {constant("kNorm", config.norm), constant("kPostNorm", post_normed)});
    if (normed) of_tiles.push_back(constant("kGained", gained));
    if (step.takes_tiles(rows) || holds_rows)
      if (auto choice =
              tiled(name, {rows, cols, stride, outputs, unit, normed, post_normed, gained, holds_rows, tuning.tile},
                    device, of_tiles))
        return *std::move(choice);
    return matvec(name, {rows, cols, stride, outputs, unit, normed, tuning.matvec}, device.sm_count, of_matvec);
  };
  AttendShape attend{step.single_rows(config), config.heads, config.kv_heads, config.head_dim,
                     attention_splits(config, step, device)};
  const FlashDecodeShape flash = flash_decode_shape(config, step, device);
  const std::vector<Constant> heads = {{"kHeads", config.heads},
                                       {"kKvHeads", config.kv_heads},
                                       {"kHeadDim", config.head_dim},
                                       {"kPaddedHeadDim", attend.padded_head_dim()},
                                       {"kPageSize", kPageTokens}};
  const std::vector<Constant> of_rotation = {constant("kRotate", !config.learned_positions),
                                             constant("kHeadNorm", config.head_norm), constant("kNorm", config.norm)};
  std::vector<Constant> rotation = heads;
  rotation.insert(rotation.end(), of_rotation.begin(), of_rotation.end());
  const auto n = static_cast<unsigned>(step.rows), sampled = static_cast<unsigned>(step.sampled_rows);
  const Constant norm = constant("kNorm", config.norm), bias = constant("kBias", config.biases),
                 activation = constant("kActivation", config.activation);
  Choices c{
      .embed = {},
      .sample = {},
      .of_attention = {},
      .rope_flash_decode = {},
      .projections = {},
      .of_products = {},
      .norm_add = {},
      .norm_logits = {},
      .norm_hidden = {},
      .advance = {},
  };
  if (step.takes_rope_flash_decode(config)) {
    c.rope_flash_decode = {{"rope_flash_decode", constants_of(flash.constants(), rotation)}, flash.rope_launch_shape()};
  } else {
    c.of_attention = {
        .rope_append = {{"rope_append", rotation},
                        rope_append_shape(n, static_cast<unsigned>(config.heads),
                                          static_cast<unsigned>(config.kv_heads), config.head_norm)},
        .attend = step.takes_flash_decode(config)
                      ? Choice{{"flash_decode", constants_of(flash.constants(), heads)}, flash.launch_shape()}
                      : Choice{{"attend", constants_of(attend.constants(), heads)}, attend.launch_shape()},
        .attend_tiles = {}};
    if (step.with_products()) {
      const AttendTilesShape tiles{step.rows, config.heads, config.kv_heads, config.head_dim,
                                   device.shared_optin_bytes};
      std::vector<Constant> of_tiles = heads;
      of_tiles.push_back({"kStages", tiles.stages()});
      c.of_attention->attend_tiles = {{"attend_tiles", std::move(of_tiles)}, tiles.launch_shape()};
    }
  }
  const Norms norms = step.folds_post_norms(config) ? Norms::post_and_own : Norms::own;
  const auto normed = [&](int64_t outputs, Norms of, int64_t rows, const ProjectionTuning& tuning,
                          const Constant& with_bias) {
    return projection("norm_project", config.hidden, outputs, 1, of, rows, tuning, {}, {with_bias});
  };
  if (step.with_products()) {
    const KernelRequest norm_rows{"norm_rows", {norm, {"kCols", config.hidden}}};
    c.of_products = {.norm = {norm_rows, norm_rows_shape(n)},
                     .norm_sampled = {norm_rows, norm_rows_shape(sampled)},
                     .gate = {{"gate", {activation}}, gate_shape(n, config.intermediate)}};
  }
  if (!step.with_products() || holds) {
    const auto output = [&](int64_t cols, const ProjectionTuning& tuning, bool leaves_gained) {
      std::vector<Constant> of_tiles;
      if (!config.post_norms) of_tiles.push_back(constant("kLeavesGained", leaves_gained));
      return projection(config.post_norms ? "project" : "project_add", cols, config.hidden, 1, Norms::none, step.rows,
                        tuning, std::move(of_tiles), {bias});
    };
    const int64_t unit = config.gated ? 2 : 1;  // a gate row and its up row
    const auto projections = [&](Norms first, Norms others) {
      const bool gained = others == Norms::gained;
      return Projections{.first_norm_qkv = normed(config.qkv_width(), first, step.rows, step.tuning.qkv, bias),
                         .norm_qkv = normed(config.qkv_width(), others, step.rows, step.tuning.qkv, bias),
                         .attention_out = output(config.query_width(), step.tuning.out, gained),
                         .norm_gate_up = projection("norm_gate_up", config.hidden, unit * config.intermediate, unit,
                                                    others, step.rows, step.tuning.gate_up, {activation},
                                                    {bias, constant("kGated", config.gated), activation}),
                         .down = output(config.intermediate, step.tuning.down, gained)};
    };
    if (step.may_leave_gained(config)) {
      c.projections = projections(Norms::gained, Norms::gained);
      const Projections& p = *c.projections;
      c.gained = is_tiled(p.norm_qkv) && is_tiled(p.attention_out) && is_tiled(p.norm_gate_up) && is_tiled(p.down);
    }
    if (!c.gained && !holds) c.projections = projections(Norms::own, norms);
    if (!c.gained && holds) c.projections.reset();
  }
  const auto head = [&](Norms of) {
    return normed(config.vocab, of, step.sampled_rows, step.tuning.head, {"kBias", 0});
  };
  if (c.gained && (step.sampled_rows + 7) / 8 == (step.rows + 7) / 8 &&  // squares of as many rows
      step.tuning.head.product.algorithm == 0) {
    const Choice gained = head(Norms::gained);
    c.head_gained = is_tiled(gained);
    if (c.head_gained) c.norm_logits = gained;
  }
  if (!c.norm_logits && !step.has_head_product()) c.norm_logits = head(norms);
  const unsigned blocks_of_row =
      device.has_clusters() ? blocks_of_logit_row(sampled, static_cast<unsigned>(device.sm_count)) : 1;
  c.sample = {{"sample", {constant("kBlocksOfRow", blocks_of_row)}}, sample_shape(sampled, blocks_of_row)};
  c.embed = {{"embed",
              {constant("kScaled", config.embedding_scale != 1), constant("kPositions", config.learned_positions),
               constant("kLeavesGained", c.gained)}},
             embed_shape(n, c.gained)};
  if (step.is_one_row()) c.norm_logits->shape = with_best(c.norm_logits->shape);
  if (config.post_norms && step.with_products()) c.norm_add = {{"norm_add", {norm}}, norm_add_shape(n)};
  if (const auto rows = static_cast<unsigned>(step.hidden_rows()); rows > 0)
    c.norm_hidden = {{"norm_hidden", {norm, constant("kPostNorm", step.folds_post_norms(config))}},
                     norm_hidden_shape(rows)};
  if (step.steps.several()) c.advance = {{"advance", {}}, advance_shape(n)};
  return c;
}

// The plan as measured: of another algorithm than the first that the library proposes, or of one that it proposes for
// other rows; null where this version of it has none such.
std::shared_ptr<const MatmulPlan> tuned_product(const MatmulPlanner& planner, const char* name,
                                                const MatmulShape& shape, const ProductTuning& tuning) {
  const MatmulOptions candidate{.candidate = static_cast<int>(std::max<int64_t>(tuning.algorithm, 1)) - 1};
  try {
    if (tuning.as_rows == 0 || tuning.as_rows == shape.m) return planner.plan(name, shape, candidate);
    MatmulShape proposed = shape;
    proposed.m = tuning.as_rows;
    return planner.plan(name, shape, {.algorithm = planner.plan(name, proposed, candidate)->algorithm()});
  } catch (const Error&) {
    return nullptr;
  }
}

// x . W^T, of `rows` rows that lie as far apart as W's, and of f32 or bf16 results.
std::shared_ptr<const MatmulPlan> product(const MatmulPlanner& planner, const char* name, int64_t rows, int64_t cols,
                                          int64_t outputs, Element output, int64_t y_stride,
                                          const ProductTuning& tuning, float beta = 0) {
  const int64_t stride = row_stride(cols);
  const MatmulShape shape{.m = rows,
                          .n = outputs,
                          .k = cols,
                          .transpose_b = true,
                          .output = output,
                          .lda = stride,
                          .ldb = stride,
                          .ldy = y_stride,
                          .beta = beta};
  if (tuning != ProductTuning{})
    if (auto plan = tuned_product(planner, name, shape, tuning)) return plan;
  return planner.plan(name, shape);
}

void plan_products(ProductKernels& k, KernelCache& cache, const ModelConfig& config, const StepShape& step,
                   bool has_tiles, bool has_head) {
  const MatmulPlanner planner(cache.device(), cache);
  const float added = config.post_norms ? 0 : 1;  // to the residual, in place
  if (!has_tiles) {
    k.qkv = product(planner, "qkv", step.rows, config.hidden, config.qkv_width(), Element::f32, config.qkv_width(),
                    step.tuning.qkv.product);
    k.out = product(planner, "out", step.rows, config.query_width(), config.hidden, Element::f32,
                    row_stride(config.hidden), step.tuning.out.product, added);
    k.gate_up = product(planner, "gate_up", step.rows, config.hidden, 2 * config.intermediate, Element::bf16,
                        row_stride(2 * config.intermediate), step.tuning.gate_up.product);
    k.down = product(planner, "down", step.rows, config.intermediate, config.hidden, Element::f32,
                     row_stride(config.hidden), step.tuning.down.product, added);
  }
  if (!has_head) {
    ProductTuning head = step.tuning.head.product;
    if (step.sampled_rows != step.rows) head.as_rows = 0;  // that of all rows
    k.head = product(planner, "head", step.sampled_rows, config.hidden, config.vocab, Element::f32,
                     row_stride(config.vocab), head);
  }
}

}  // namespace

std::vector<KernelRequest> decoder_kernel_requests(const ModelConfig& config, const StepShape& step,
                                                   const DeviceProperties& device) {
  const Choices c = choose(config, step, device);
  std::vector<KernelRequest> requests = {c.embed.request, c.sample.request};
  const auto add = [&](const Choice& choice) { requests.push_back(choice.request); };
  if (const auto& a = c.of_attention) {
    for (const Choice* choice : {&a->rope_append, &a->attend}) add(*choice);
    if (a->attend_tiles) add(*a->attend_tiles);
  }
  if (c.rope_flash_decode) add(*c.rope_flash_decode);
  if (const auto& p = c.projections)
    for (const Choice* choice : {&p->first_norm_qkv, &p->norm_qkv, &p->attention_out, &p->norm_gate_up, &p->down})
      add(*choice);
  if (const auto& p = c.of_products) {
    add(p->norm);
    if (!c.projections) add(p->gate);
  }
  if (c.norm_logits) add(*c.norm_logits);
  if (c.norm_add) add(*c.norm_add);
  if (c.norm_hidden) add(*c.norm_hidden);
  if (c.advance) add(*c.advance);
  return requests;
}

DecoderKernels decoder_kernels(KernelCache& cache, const ModelConfig& config, const StepShape& step) {
  const Choices c = choose(config, step, cache.device().properties());
  const auto get_attention = [&]<class A>(Kernel<A>& kernel, const Choice& choice) {
    kernel = cache.kernel<A>(choice.request, choice.shape);
  };
  const auto get = [&]<class A>(Kernel<A>& kernel, const Choice& choice) {
    get_attention(kernel, choice);
    if (const int64_t percent = step.tuning.shared.carveout; percent > 0)
      kernel.shape.shared_carveout_percent = static_cast<int>(percent);
  };
  DecoderKernels k;
  k.shape = step;
  k.gained = c.gained;
  k.head_gained = c.head_gained;
  get(k.embed, c.embed);
  if (const auto& a = c.of_attention) {
    get(k.rope_append, a->rope_append);
    get_attention(k.attend, a->attend);
    if (a->attend_tiles) get_attention(k.products.attend_tiles, *a->attend_tiles);
  }
  if (c.rope_flash_decode) get_attention(k.rope_flash_decode, *c.rope_flash_decode);
  get(k.sample, c.sample);
  const auto get_output = [&](OutputKernels& kernels, const Choice& choice) {
    if (config.post_norms)
      get(kernels.project, choice);
    else
      get(kernels.project_add, choice);
  };
  if (const auto& p = c.projections) {
    get(k.first_norm_qkv, p->first_norm_qkv);
    get(k.norm_qkv, p->norm_qkv);
    get_output(k.attention_out, p->attention_out);
    get(k.norm_gate_up, p->norm_gate_up);
    get_output(k.down, p->down);
  }
  if (const auto& p = c.of_products) {
    get(k.products.norm, p->norm);
    get(k.products.norm_sampled, p->norm_sampled);
    if (!c.projections) get(k.products.gate, p->gate);
    plan_products(k.products, cache, config, step, c.gained, c.norm_logits.has_value());
  }
  if (c.norm_logits) {
    get(k.norm_logits, *c.norm_logits);
    if (step.is_one_row() || is_tiled(*c.norm_logits)) k.head_parts = c.norm_logits->shape.grid[0];
  }
  if (c.norm_hidden) get(k.norm_hidden, *c.norm_hidden);
  if (c.advance) get(k.advance, *c.advance);
  if (c.norm_add)
    for (OutputKernels* kernels : {&k.attention_out, &k.down}) get(kernels->norm_add, *c.norm_add);
  return k;
}

}  // namespace nodewright
