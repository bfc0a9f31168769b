#include "tests/kernels/shipped_steps.h"

#include <algorithm>
#include <filesystem>

#include "models/config/shard.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/test_places.h"

namespace nodewright::test {

StepShape prompt_step(const ModelConfig& config) {
  StepShape step{512, 16, Arithmetic::products};
  step.network = network_form(network_of(config));
  return step;
}

std::vector<RecordedStep> steps_on_hopper() {
  std::vector<RecordedStep> steps;
  for (const Card& card : {kH100, kH200})
    for (const NamedModel& model : shipped_models())
      for (const int64_t rows : kRecordedRows) steps.push_back({card, model, rows});
  steps.push_back({kH100, {"gpt2-xl", gpt2_xl()}, 8});
  for (const NamedModel& model : {NamedModel{"Llama-3.2-1B", llama_1b()}, {"Qwen3-4B", qwen3_4b()}})
    for (const int64_t rows : kRecordedRows) steps.push_back({kH100, model, rows, Numerics::invariant});
  for (const NamedModel& model : quantized_models())
    for (const int64_t rows : kRecordedRows) steps.push_back({kH100, model, rows});
  for (const NamedModel& model : models_with_fp8_cache())
    for (const int64_t rows : kRecordedRows) steps.push_back({kH100, model, rows});
  for (const NamedModel& model : {NamedModel{"Llama-3.2-1B", llama_1b()}, {"Qwen3-4B", qwen3_4b()}})
    for (const Numerics numerics : {Numerics::fast, Numerics::invariant}) steps.push_back({kH100, model, 16, numerics});
  steps.push_back({kH100, {"Gemma 3 1B", gemma3_1b()}, 64, Numerics::invariant});
  return steps;
}

std::vector<RecordedStep> steps_on(const Card& card) {
  std::vector<RecordedStep> steps;
  for (const NamedModel& model : shipped_models())
    for (const int64_t rows : kRecordedRows) steps.push_back({card, model, rows});
  steps.push_back({card, {"gpt2-xl", gpt2_xl()}, 8});
  for (const NamedModel& model : quantized_models())
    for (const int64_t rows : {1, 8, 32}) steps.push_back({card, model, rows});
  for (const NamedModel& model : models_with_fp8_cache())
    for (const int64_t rows : {1, 8, 64}) steps.push_back({card, model, rows});
  return steps;
}

std::vector<NamedModel> released_models() {
  std::vector<NamedModel> models;
  for (const auto& file : std::filesystem::directory_iterator(source_dir() / "tests/golden/configs")) {
    if (file.path().extension() != ".json") continue;
    const ScratchFolder folder;
    std::filesystem::copy(file.path(), folder.path() / "config.json");
    models.push_back({file.path().stem().string(), read_model_config(folder.path())});
  }
  std::ranges::sort(models, {}, &NamedModel::name);
  return models;
}

std::vector<RecordedStep> steps_on_ampere() {
  std::vector<RecordedStep> steps;
  for (const NamedModel& model : shipped_models())
    for (const int64_t rows : {1, 8})
      if (rows == 1 || model.config.head_dim != 128) steps.push_back({kA100, model, rows});
  return steps;
}

ShippedKernels kernels_of(const std::vector<RecordedStep>& steps) {
  ShippedKernels kernels;
  for (const RecordedStep& step : steps) add_step(kernels, step.card, step.model.config, step.shape());
  std::vector<ModelConfig> with_prompts = {llama_1b(), llama_3b(), gemma3_1b()};
  for (const NamedModel& model : models_with_fp8_cache()) with_prompts.push_back(model.config);
  for (const ModelConfig& config : with_prompts) add_step(kernels, steps.front().card, config, prompt_step(config));
  add_of_all_models(kernels, steps.front().card);
  add_of_some_steps(kernels, steps.front().card);
  return kernels;
}

void add_with_adapters(ShippedKernels& kernels, const Card& card, const ModelConfig& config, StepShape step) {
  step.adapters = adapter_limits(8, 16);
  add_step(kernels, card, config, step);
}

ShippedKernels kernels_with_adapters(const Card& card) {
  ShippedKernels kernels;
  const auto add = [&](const ModelConfig& config, const StepShape& step) {
    add_with_adapters(kernels, card, config, step);
  };
  for (const int64_t rows : {1, 8, 32}) add(llama_3b(), shipped_step(card, llama_3b(), rows));
  for (const int64_t rows : {1, 8})
    for (const ModelConfig& config : {gemma3_1b(), gpt2_small()}) add(config, shipped_step(card, config, rows));
  for (const ModelConfig& config : {llama_1b(), gpt2_small()}) add(config, prompt_step(config));
  return kernels;
}

ShippedKernels kernels_of_ranks(const Card& card) {
  ShippedKernels kernels;
  for (const ModelConfig& whole : {llama_1b(), llama_3b(), gemma3_1b()}) {
    if (whole.kv_heads < 2) continue;
    const ModelConfig part = shard_of(whole, {.rank = 0, .ranks = 2});
    for (const int64_t rows : {1, 8, 32, 64})
      for (const bool adapted : {false, true})
        for (const bool collectives : {false, true}) {
          StepShape step = shipped_step(card, part, rows);
          step.collectives = collectives;
          if (adapted) step.adapters = adapter_limits(8, 16);
          add_step(kernels, card, part, step);
        }
  }
  return kernels;
}

}  // namespace nodewright::test
