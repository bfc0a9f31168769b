// Where the ranks of a team need each other's values: the embedding's rows, the sums after out and down, the logits.
#include <algorithm>
#include <optional>
#include <type_traits>

#include "graph/team/team_plan.h"
#include "kernels_src/adapters/adapted_exchange.h"
#include "kernels_src/exchange/embed_exchange.h"
#include "kernels_src/exchange/exchange_add.h"
#include "kernels_src/exchange/gather_logits.h"
#include "kernels_src/projection/project.h"
#include "kernels_src/projection/project_exchange.h"
#include "kernels_src/projection/project_exchange_shape.h"
#include "models/lowering/embed_args.h"
#include "models/lowering/lowering_rows.h"
#include "models/weights/row_stride.h"

namespace nodewright {
namespace {

constexpr const char* kSeveralWaves = "its blocks do not run at once";

Constant ranks_constant(const Situation& at) { return {"kRanks", at.config.shard.ranks}; }

void emit_embed_exchange(const LoadedRun& run, Emission& e, Travel travel) {
  auto args = embed_args<EmbedExchange>(e, travel);
  args.exchange = e.rank->exchange(1 + count_of(e.s.rows * args.stride));
  e.g.launch("embed", run.kernel<EmbedExchange>(), args);
}

// What stands behind a product that is split: the sum over the ranks, a norm of it or none, and the residual.
struct Behind {
  size_t operations = 0;  // with the product; 0: another run
  std::optional<Part> norm = {};
  bool adds() const { return !norm; }
};
Behind behind(std::span<const Op> ops) {
  if (begins(ops, {OpKind::product, OpKind::reduce, OpKind::add})) return {3};
  if (begins(ops, {OpKind::product, OpKind::reduce, OpKind::norm, OpKind::add})) return {4, ops[2].part};
  return {};
}

// What the residual is when the sums are there.
void settle(Emission& e, const Behind& of, View<float> summed) {
  if (of.adds())
    e.residual = PlainResidual{e.s.residual};
  else
    e.residual = DeferredResidual{std::get<PlainResidual>(e.residual).x, summed, e.post_gain(*of.norm)};
}

// Why a run cannot be an exchange of kernels of the step's own, or nothing.
std::string why_not(const Situation& at, const Behind& of, Travel travel) {
  if (is_library_used(at, travel)) return "the step's products are a library's";
  if (of.adds() == (travel == Travel::deferred)) return "its norm is left to the next kernel";
  return {};
}

// After those of the product's shape.
std::vector<Constant> sum_constants(const Situation& at, const Behind& of) {
  return {factor_constant("kScale", of.adds() ? at.config.residual_scale : 1), ranks_constant(at),
          constant("kAdds", of.adds())};
}

uint64_t values_of(const Emission& e) { return count_of(e.s.rows * e.config.hidden); }

// The constants of kernels that add adapters' sums: those of the kernels without, and kRank.
std::vector<Constant> with_rank(const Situation& at, std::vector<Constant> constants) {
  if (at.step.adapters.any()) constants.push_back(rank_constant(at));
  return constants;
}

template <class Args>
void launch_project_exchange(const LoadedRun& run, Emission& e, const Op& product, const Behind& of, Travel travel) {
  const WeightMatrix& w = e.matrix(product.part);
  const auto kernel = run.kernel<Args>();
  Args args{.x = e.input_of(product.part),
            .weight = w.data,
            .bias = w.bias,
            .n_live = e.s.inputs.n_live,
            .outputs = w.rows,
            .x_stride = w.stride,
            .residual_stride = row_stride(e.config.hidden),
            .exchange = e.rank->exchange(values_of(e))};
  if constexpr (std::is_same_v<Args, AdaptedProjectExchange>) args.adapter = adapter_in(e, product.part);
  if (of.adds())
    args.residual = e.s.residual;
  else
    args.y = e.s.projected;
  settle(e, of, e.s.projected);
  if (travel == Travel::gained) {
    const GainedResidual gained{e.s.gained, e.squares(kernel.shape.grid[0])};
    args.next = {e.gain_behind(product.part), gained.gained, gained.squares};
    e.residual = gained;
  }
  e.g.launch(node_name(product), kernel, args);
}

void emit_project_exchange(const LoadedRun& run, Emission& e, const Op& product, const Behind& of, Travel travel) {
  if (e.adapters != nullptr) return launch_project_exchange<AdaptedProjectExchange>(run, e, product, of, travel);
  launch_project_exchange<ProjectExchange>(run, e, product, of, travel);
}

template <class Args>
void launch_exchange_add(const LoadedRun& run, size_t kernel, Emission& e, const Op& product, View<float> y,
                         const ExchangedSum& of, Travel travel) {
  const auto loaded = run.kernel<Args>(kernel);
  Args args{.n_live = e.s.inputs.n_live,
            .cols = e.config.hidden,
            .stride = row_stride(e.config.hidden),
            .exchange = of.bulk ? e.rank->bulk_exchange(values_of(e)) : e.rank->exchange(values_of(e))};
  if (of.bias) args.bias = e.matrix(product.part).bias;
  if (of.bulk && of.chosen == 0)
    args.y_bf16 = as_bf16(y);
  else
    args.y = y;
  if constexpr (std::is_same_v<Args, AdaptedExchangeAdd>)
    args.adapter = adapter_in(e, product.part);
  else if (of.chosen > 0)
    args.weights = e.s.experts.weights;
  if (of.adds)
    args.residual = e.s.residual;
  else
    args.sum = e.s.projected;
  if (travel == Travel::gained) {
    const GainedResidual gained{e.s.gained, e.squares(loaded.shape.grid[0])};
    args.next = {e.gain_behind(product.part), gained.gained, gained.squares};
    e.residual = gained;
  }
  LaunchOptions<Args> how;
  // A lane's few blocks come before what the other lane's products have left.
  if (e.step.is_lane) how.attributes.priority = e.g.device().properties().greatest_priority;
  e.g.launch(node_name(product) + "_sum", loaded, args, how);
}

// The product of such a kernel in a node of its own, and after it what brings all ranks' values.
Lowered gathered_project(const Situation& at, const Behind& of, const Op& product, Travel travel, KernelChoice kernel,
                         const TileOrder& order) {
  const ExchangedSum sum{.adds = of.adds()};
  std::vector<KernelChoice> kernels = gathered_sum_choices(at, sum, travel, order);
  kernels.insert(kernels.begin(), std::move(kernel));
  return {.operations = of.operations,
          .kernels = std::move(kernels),
          .emit = [product, of, sum, travel](const LoadedRun& run, Emission& e) {
            launch_project(run, e, product, e.s.partial);
            settle(e, of, e.s.projected);
            emit_gathered_sum(run, 1, e, node_name(product), product, e.s.partial, sum, travel);
          }};
}

}  // namespace

bool sends_bulk(const ModelConfig& config, const StepShape& step, Travel travel) {
  return step.with_products() && travel != Travel::gained && config.hidden % 8 == 0;
}

void emit_exchange(const LoadedRun& run, size_t kernel, Emission& e, const Op& product, View<float> y,
                   const ExchangedSum& of, Travel travel) {
  if (e.collectives != nullptr) return emit_gathered_sum(run, kernel, e, node_name(product), product, y, of, travel);
  if (of.adapted) return launch_exchange_add<AdaptedExchangeAdd>(run, kernel, e, product, y, of, travel);
  launch_exchange_add<ExchangeAdd>(run, kernel, e, product, y, of, travel);
}

static KernelChoice exchange_add_choice(const Situation& at, const ExchangedSum& of, Travel travel) {
  const bool gained = travel == Travel::gained, sums_more = of.adapted || of.chosen > 0;
  const bool in_lane = at.step.is_lane;
  const auto ranks = static_cast<unsigned>(at.config.shard.ranks), sm_count = static_cast<unsigned>(at.device.sm_count);
  const std::vector<Constant> constants = {ranks_constant(at),
                                           constant("kAdds", of.adds),
                                           constant("kBias", of.bias),
                                           factor_constant("kScale", of.adds ? at.config.residual_scale : 1),
                                           constant("kLeavesGained", gained),
                                           constant("kBulk", !of.bulk  ? 0
                                                             : in_lane ? lane_exchange_multiple(ranks, sums_more)
                                                                       : 1),
                                           {"kChosen", of.chosen}};
  const LaunchShape shape =
      of.bulk ? exchange_bulk_shape(count_of(at.step.rows * at.config.hidden), ranks, sm_count, sums_more, in_lane)
              : exchange_add_shape(static_cast<unsigned>(at.step.rows), static_cast<unsigned>(at.config.hidden), ranks,
                                   sm_count, gained, sums_more);
  return of.adapted ? kernel_choice<AdaptedExchangeAdd>({"adapted_exchange_add", with_rank(at, constants)}, shape)
                    : kernel_choice<ExchangeAdd>({"exchange_add", constants}, shape);
}

std::vector<KernelChoice> exchange_choices(const Situation& at, const ExchangedSum& of, Travel travel) {
  if (at.step.collectives) return gathered_sum_choices(at, of, travel);
  return {exchange_add_choice(at, of, travel)};
}

std::vector<KernelChoice> with_exchange(const Situation& at, const ExchangedSum& of, Travel travel,
                                        KernelChoice product) {
  std::vector<KernelChoice> choices = exchange_choices(at, of, travel);
  choices.insert(choices.begin(), std::move(product));
  return choices;
}

Attempt lower_embed_exchange(const Situation& at, std::span<const Op> ops, Travel travel) {
  if (!begins(ops, {OpKind::embed_shared})) return {};
  if (at.step.collectives) return gathered_embedding(at, travel);
  const bool gained = travel == Travel::gained;
  return Lowered{.operations = 1,
                 .kernels = {kernel_choice<EmbedExchange>(
                     {"embed_exchange",
                      {ranks_constant(at), constant("kScaled", at.config.embedding_scale != 1),
                       constant("kPositions", at.config.learned_positions), constant("kLeavesGained", gained)}},
                     embed_exchange_shape(static_cast<unsigned>(at.step.rows),
                                          static_cast<unsigned>(at.device.sm_count), gained))},
                 .emit = [travel](const LoadedRun& run, Emission& e) { emit_embed_exchange(run, e, travel); }};
}

// x += the sum over the ranks of W y + b, in the product's epilogue.
Attempt lower_project_exchange(const Situation& at, std::span<const Op> ops, Travel travel) {
  const Behind of = behind(ops);
  if (of.operations == 0) return {};
  if (std::string why = why_not(at, of, travel); !why.empty()) return why;
  if (travel == Travel::gained) return "rows do not leave it times the next gain";
  if (at.step.takes_tiles(at.step.rows)) return "the step's products are in tiles";
  const Op& product = ops[0];
  const MatvecShape plain{at.step.rows,
                          product.cols,
                          row_stride(product.cols),
                          product.outputs,
                          1,
                          false,
                          tuning_of(at.step.tuning, product.part).matvec};
  MatvecShape shape = project_exchange_shape(plain);
  shape.fit_segment(at.device.sm_count);
  const LaunchShape launch = shape.launch_shape(at.device.sm_count);
  if (launch.grid[1] > 1) return kSeveralWaves;
  if (at.step.collectives)
    return gathered_project(
        at, of, product, travel,
        kernel_choice<Project>({"project", constants_of(shape.constants(), {constant("kBias", product.bias)})}, launch),
        {});
  std::vector<Constant> constants = with_rank(at, sum_constants(at, of));
  constants.insert(constants.begin(), constant("kBias", product.bias));
  constants = constants_of(shape.constants(), constants);
  return Lowered{
      .operations = of.operations,
      .kernels = {at.step.adapters.any()
                      ? kernel_choice<AdaptedProjectExchange>({"adapted_project_exchange", constants}, launch)
                      : kernel_choice<ProjectExchange>({"project_exchange", constants}, launch)},
      .emit = [product, of, travel](const LoadedRun& run, Emission& e) {
        emit_project_exchange(run, e, product, of, travel);
      }};
}

// The same in tiles.
Attempt lower_tile_project_exchange(const Situation& at, std::span<const Op> ops, Travel travel) {
  const Behind of = behind(ops);
  if (of.operations == 0) return {};
  if (std::string why = why_not(at, of, travel); !why.empty()) return why;
  const Op& product = ops[0];
  const bool adapted = at.step.adapters.any();
  std::vector<Constant> constants = with_rank(at, sum_constants(at, of));
  constants.push_back(constant("kLeavesGained", travel == Travel::gained));
  std::variant<KernelChoice, std::string> choice =
      at.step.collectives
          ? tiled(at, "project", product, 1, {}, at.step.rows, {}, sizeof(Project), true)
          : tiled(at, adapted ? "adapted_project_exchange" : "project_exchange", product, 1, {}, at.step.rows,
                  constants, adapted ? sizeof(AdaptedProjectExchange) : sizeof(ProjectExchange), true);
  if (auto* why = std::get_if<std::string>(&choice)) return *why;
  KernelChoice& kernel = std::get<KernelChoice>(choice);
  if (kernel.shape.blocks() > count_of(at.device.sm_count)) return kSeveralWaves;
  if (at.step.collectives) return gathered_project(at, of, product, travel, kernel, tile_order(kernel));
  return Lowered{.operations = of.operations,
                 .kernels = {std::move(kernel)},
                 .emit = [product, of, travel](const LoadedRun& run, Emission& e) {
                   emit_project_exchange(run, e, product, of, travel);
                 }};
}

// The same in two nodes: the product of kernels of its own, and the exchange.
Attempt lower_project_then_exchange(const Situation& at, std::span<const Op> ops, Travel travel) {
  const Behind of = behind(ops);
  if (of.operations == 0) return {};
  if (std::string why = why_not(at, of, travel); !why.empty()) return why;
  const Op& product = ops[0];
  std::variant<KernelChoice, std::string> choice =
      tiled(at, "project", product, 1, {}, at.step.rows, {}, sizeof(Project));
  if (std::holds_alternative<std::string>(choice)) {
    if (travel == Travel::gained) return std::get<std::string>(choice);
    choice = matvec(at, "project", product, 1, {}, at.step.rows, {}, sizeof(Project));
  }
  const ExchangedSum sum{.adds = of.adds(), .adapted = at.step.adapters.any()};
  return Lowered{.operations = of.operations,
                 .kernels = with_exchange(at, sum, travel, std::get<KernelChoice>(std::move(choice))),
                 .emit = [product, of, sum, travel](const LoadedRun& run, Emission& e) {
                   launch_project(run, e, product, e.s.partial);
                   settle(e, of, e.s.projected);
                   emit_exchange(run, 1, e, product, e.s.partial, sum, travel);
                 }};
}

// The largest logits of the head's blocks, where it leaves them, are gathered if all ranks have as many.
Attempt lower_gather(const Situation& at, std::span<const Op> ops, Travel) {
  if (!begins(ops, {OpKind::gather})) return {};
  if (at.step.collectives) return gathered_head(at);
  const int64_t most = at.config.shard.most_of(at.config.vocab);
  const bool alike = at.config.vocab % at.config.shard.ranks == 0;
  Lowered lowered{.operations = 1, .emit = [most, alike](const LoadedRun& run, Emission& e) {
                    const bool best = alike && e.best.count > 0;
                    const int64_t rows = e.s.sampled_rows;
                    const uint64_t parts = best ? e.best.count / count_of(rows) : 0;
                    GatherLogits args{.part = e.logits,
                                      .logits = e.s.logits,
                                      .n_live = e.s.inputs.n_sampled,
                                      .vocab = e.config.vocab,
                                      .most = most,
                                      .parts = static_cast<int64_t>(parts),
                                      .part_stride = e.s.logits_part_stride,
                                      .logits_stride = e.s.logits_stride,
                                      .rows = rows,
                                      .exchange = e.rank->exchange(count_of(rows * most) + 2 * count_of(rows) * parts)};
                    const View<ScoredToken> all =
                        e.s.team_best.subview(0, count_of(rows * e.config.shard.ranks) * parts);
                    if (best) {
                      args.best = e.best;
                      args.all_best = all;
                      args.temperature = e.s.inputs.temperature;
                      args.keeps_all = e.s.inputs.keeps_logits;
                    }
                    e.g.launch("gather", run.kernel<GatherLogits>(best ? 1 : 0), args);
                    e.logits = e.s.logits;
                    e.best = all;
                  }};
  for (const bool best : {false, true})
    lowered.kernels.push_back(kernel_choice<GatherLogits>(
        {"gather_logits", {ranks_constant(at), constant("kBest", best)}},
        gather_logits_shape(count_of(at.step.sampled_rows * most), static_cast<unsigned>(at.device.sm_count))));
  return lowered;
}

}  // namespace nodewright
