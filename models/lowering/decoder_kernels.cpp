#include "models/lowering/decoder_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "models/lowering/cluster_counter.h"
#include "models/weights/row_stride.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

// A stage gets its own part, chosen as for the whole network, so that its bits are the same.
LoweredStep lowered_step(KernelCache& cache, const ModelConfig& config, const StepShape& step) {
  ClusterCounter counter(cache);
  LoweredStep lowered =
      lower(network_of(config, step.adapters.any()),
            {config, step, cache.device().properties(), std::bind_front(&ClusterCounter::count, &counter)});
  if (!config.stage.is_first()) lowered.first.clear();
  if (!config.stage.is_last()) lowered.last.clear();
  const auto own = lowered.layers.begin() + config.stage.first_layer;
  lowered.layers = std::vector(own, own + config.layers);
  for (size_t kind = 0; kind < lowered.kinds.size(); ++kind)
    if (std::ranges::count(lowered.layers, kind) == 0) lowered.kinds[kind].clear();
  return lowered;
}

KernelChoice advance_choice(const StepShape& step) {
  return kernel_choice<Advance>({"advance", {}}, advance_shape(static_cast<unsigned>(step.rows)));
}

KernelChoice fetch_choice() { return kernel_choice<FetchInputs>({"fetch_inputs", {}}, fetch_inputs_shape(1)); }

// The plan as measured: of the algorithm that the tuning names, or of the one that the library proposes for other rows.
// Where this version of it has none such, of the first that it proposes, and `untaken` says why.
std::shared_ptr<const MatmulPlan> tuned_product(const MatmulPlanner& planner, const std::string& name,
                                                const MatmulShape& shape, const ProductTuning& tuning,
                                                std::vector<std::string>& untaken) {
  try {
    if (tuning.names_algorithm()) return planner.plan(name, shape, {.config = tuning.config});
    if (tuning.as_rows != 0 && tuning.as_rows != shape.m) {
      MatmulShape proposed = shape;
      proposed.m = tuning.as_rows;
      return planner.plan(name, shape, {.algorithm = planner.plan(name, proposed)->algorithm()});
    }
  } catch (const Error& error) {
    untaken.emplace_back(error.what());
  }
  return planner.plan(name, shape);
}

// x . W^T, of rows that lie as far apart as W's.
std::shared_ptr<const MatmulPlan> planned(const MatmulPlanner& planner, const ProductChoice& choice,
                                          std::vector<std::string>& untaken) {
  const int64_t stride = row_stride(choice.cols);
  const MatmulShape shape{.m = choice.rows,
                          .n = choice.outputs,
                          .k = choice.cols,
                          .transpose_b = true,
                          .output = choice.output,
                          .lda = stride,
                          .ldb = stride,
                          .ldy = choice.y_stride,
                          .alpha = choice.alpha,
                          .beta = choice.beta};
  return tuned_product(planner, choice.name, shape, choice.tuning, untaken);
}

std::pair<const LoadedKernel*, LaunchShape> loaded(KernelCache& cache, const KernelChoice& choice,
                                                   int64_t carveout_percent) {
  const LoadedKernel& kernel = cache.get(choice.request);
  check_kernel(kernel, choice.args_bytes, choice.shape);
  cache.allow_shared(kernel, choice.shape.shared_bytes);
  LaunchShape shape = choice.shape;
  if (carveout_percent > 0 && !choice.of_attention) shape.shared_carveout_percent = static_cast<int>(carveout_percent);
  return {&kernel, shape};
}

}  // namespace

std::vector<KernelRequest> decoder_kernel_requests(KernelCache& cache, const ModelConfig& config,
                                                   const StepShape& step) {
  const LoweredStep lowered = lowered_step(cache, config, step);
  std::vector<KernelRequest> requests;
  // In the order in which decoder_kernels() loads them where they were not prepared: where code lies in memory shows in
  // the step, and with the ends first eight rows of Gemma-3 1B take 1.4 % less on an H100
  // (bench/results/2026-11-26-h100-load-order.txt).
  const auto append = [&](const std::vector<LoweredRun>& runs) {
    for (const LoweredRun& run : runs)
      for (const KernelChoice& choice : run.kernels) requests.push_back(choice.request);
  };
  append(lowered.first);
  append(lowered.last);
  std::ranges::for_each(lowered.kinds, append);
  if (config.stage.is_first()) requests.push_back(fetch_choice().request);
  if (step.steps.several()) requests.push_back(advance_choice(step).request);
  return requests;
}

DecoderKernels decoder_kernels(KernelCache& cache, const ModelConfig& config, const StepShape& step) {
  LoweredStep lowered = lowered_step(cache, config, step);
  const int64_t carveout = step.tuning.shared.carveout;
  std::optional<MatmulPlanner> planner;  // opens the library
  DecoderKernels k{.shape = step, .form = lowered.form};
  const auto load_all = [&](std::vector<LoweredRun>& runs) {
    std::vector<DecoderKernels::Run> all;
    for (LoweredRun& run : runs) {
      LoadedRun loaded_run;
      for (const KernelChoice& choice : run.kernels) loaded_run.kernels.push_back(loaded(cache, choice, carveout));
      if (!run.products.empty() && !planner) planner.emplace(cache.device(), cache);
      for (const ProductChoice& choice : run.products)
        loaded_run.products.push_back(planned(*planner, choice, k.untaken));
      all.push_back({std::move(run), std::move(loaded_run)});
    }
    return all;
  };
  k.first = load_all(lowered.first);
  k.last = load_all(lowered.last);
  for (std::vector<LoweredRun>& kind : lowered.kinds) k.kinds.push_back(load_all(kind));
  k.layers = lowered.layers;
  if (config.stage.is_first()) {
    const auto [kernel, shape] = loaded(cache, fetch_choice(), carveout);
    k.fetch_inputs = {kernel, shape};
  }
  if (step.steps.several()) {
    const auto [kernel, shape] = loaded(cache, advance_choice(step), carveout);
    k.advance = {kernel, shape};
  }
  return k;
}

std::string lowering_text(KernelCache& cache, const ModelConfig& config, const StepShape& step) {
  const LoweredStep lowered = lowered_step(cache, config, step);
  std::string text = fmt::format("{} rows; the residual travels {}\n", step.rows, to_string(lowered.form));
  for (const auto& [form, why] : lowered.forms_passed) text += fmt::format("  not {}: {}\n", to_string(form), why);
  for (const LoweringNote& note : lowered.notes) {
    text += fmt::format("{}: {}\n", note.operations, note.row);
    for (const std::string& kernel : note.kernels) text += fmt::format("  {}\n", kernel);
    for (const auto& [row, why] : note.passed) text += fmt::format("  not {}: {}\n", row, why);
  }
  return text;
}

}  // namespace nodewright
