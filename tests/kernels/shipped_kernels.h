// The kernels that ship: which ones each card takes for the steps of released models, and how it launches them. Needs
// no device.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/lowering/lowering.h"
#include "models/network/network.h"
#include "models/plan/choice_graph.h"
#include "models/tuning/step_tuning.h"

namespace nodewright::test {

// The shapes of the released checkpoints' config.json.
inline ModelConfig llama_1b() {
  ModelConfig c;
  c.hidden = 2048, c.layers = 16, c.heads = 32, c.kv_heads = 8, c.head_dim = 64, c.intermediate = 8192,
  c.vocab = 128256;
  return c;
}
inline ModelConfig llama_3b() {
  ModelConfig c;
  c.hidden = 3072, c.layers = 28, c.heads = 24, c.kv_heads = 8, c.head_dim = 128, c.intermediate = 8192,
  c.vocab = 128256;
  return c;
}

inline ModelConfig qwen3_4b() {
  ModelConfig c;
  c.hidden = 2560, c.layers = 36, c.heads = 32, c.kv_heads = 8, c.head_dim = 128, c.intermediate = 9728,
  c.vocab = 151936;
  c.head_norm = HeadNorm::head;
  return c;
}
inline ModelConfig qwen3_30b_a3b() {
  ModelConfig c;
  c.hidden = 2048, c.layers = 48, c.heads = 32, c.kv_heads = 4, c.head_dim = 128, c.vocab = 151936;
  c.head_norm = HeadNorm::head;
  c.experts = {128, 8, true, 768};
  return c;
}
inline ModelConfig gemma3_1b() {
  ModelConfig c;
  c.hidden = 1152, c.layers = 26, c.heads = 4, c.kv_heads = 1, c.head_dim = 256, c.intermediate = 6912,
  c.vocab = 262144;
  c.norm = Norm::rms_one_plus, c.head_norm = HeadNorm::head, c.post_norms = true, c.activation = Activation::gelu_tanh;
  c.embedding_scale = 34;
  return c;
}
// GPT-2 as a checkpoint, through the paged cache; also with nanoGPT's gelu and the width of GPT-2 XL.
inline ModelConfig gpt2_small() {
  ModelConfig c;
  c.hidden = 768, c.layers = 12, c.heads = c.kv_heads = 12, c.head_dim = 64, c.intermediate = 3072, c.vocab = 50257;
  c.norm = Norm::layer, c.biases = {true, true, true, true}, c.learned_positions = true, c.gated = false,
  c.activation = Activation::gelu_tanh;
  return c;
}
inline ModelConfig gpt2_xl() {
  ModelConfig c = gpt2_small();
  c.hidden = 1600, c.heads = c.kv_heads = 25, c.intermediate = 6400, c.activation = Activation::gelu_erf;
  return c;
}

struct NamedModel {
  std::string name;
  ModelConfig config;
};
inline std::vector<NamedModel> shipped_models() {
  return {{"Llama-3.2-1B", llama_1b()},       {"Llama-3.2-3B", llama_3b()}, {"Qwen3-4B", qwen3_4b()},
          {"Qwen3-30B-A3B", qwen3_30b_a3b()}, {"gemma-3-1b", gemma3_1b()},  {"gpt2", gpt2_small()}};
}

// The same with FP8 weights: a scale a row, of the head, too, or of blocks.
inline ModelConfig with_fp8(ModelConfig config, bool in_blocks) {
  const WeightLayout layout{WeightCode::fp8, in_blocks, 1}, of_gates{WeightCode::fp8, in_blocks, config.gated ? 2 : 1};
  config.layouts = {layout, layout, of_gates, layout, in_blocks ? WeightLayout{} : layout};
  return config;
}
// And with codes in groups.
inline ModelConfig with_groups(ModelConfig config, const WeightLayout& layout) {
  config.layouts = {layout, layout, layout, layout};
  return config;
}
inline ModelConfig with_int4(const ModelConfig& config, int64_t group) {
  return with_groups(config, {WeightCode::int4, false, 1, group});
}
inline std::vector<NamedModel> quantized_models() {
  return {{"Llama-3.2-3B, FP8 rows", with_fp8(llama_3b(), false)},
          {"Qwen3-4B, FP8 blocks", with_fp8(qwen3_4b(), true)},
          {"Llama-3.2-3B, int4", with_int4(llama_3b(), 128)},
          {"Llama-3.2-3B, q8", with_groups(llama_3b(), {WeightCode::q8, false, 1, 32})},
          {"Llama-3.2-3B, q4_offset", with_groups(llama_3b(), {WeightCode::q4_offset, false, 1, 32})}};
}

// With an FP8 cache.
inline std::vector<NamedModel> models_with_fp8_cache() {
  std::vector<NamedModel> models = {{"Llama-3.2-1B, FP8 cache", llama_1b()},
                                    {"Llama-3.2-3B, FP8 cache", llama_3b()},
                                    {"gemma-3-1b, FP8 cache", gemma3_1b()}};
  for (NamedModel& model : models) model.config.cache = CacheFormat::fp8;
  return models;
}

// As the driver reports it. An SM is of the programming guide's technical specifications of its compute capability.
struct Card {
  const char* name;         // short
  const char* driver_name;  // by which shipped tunings know it
  int cc_major, cc_minor, sm_count;
  unsigned shared_optin_bytes;       // of a block
  unsigned shared_bytes;             // of an SM
  uint64_t most_warps, most_blocks;  // of an SM
  // Clusters of 2, 4 and 8 blocks that run at once; 0: nobody has counted them.
  std::array<int64_t, 3> clusters = {};

  std::string target() const { return "sm_" + std::to_string(cc_major) + std::to_string(cc_minor); }
  DeviceProperties properties() const {
    DeviceProperties device;
    device.name = driver_name;
    device.cc_major = cc_major;
    device.cc_minor = cc_minor;
    device.sm_count = sm_count;
    device.shared_optin_bytes = shared_optin_bytes;
    return device;
  }
};
// As counted on an H200 (bench/results/2026-11-23-h200-held-rows.txt).
inline constexpr std::array<int64_t, 3> kHopperClusters = {66, 30, 15};
inline constexpr Card kA100{"A100", "NVIDIA A100-SXM4-80GB", 8, 0, 108, 163 << 10, 164 << 10, 64, 32};
inline constexpr Card kA10{"A10", "NVIDIA A10", 8, 6, 72, 99 << 10, 100 << 10, 48, 16};
inline constexpr Card kRtx3090{"RTX 3090", "NVIDIA GeForce RTX 3090", 8, 6, 82, 99 << 10, 100 << 10, 48, 16};
inline constexpr Card kL4{"L4", "NVIDIA L4", 8, 9, 58, 99 << 10, 100 << 10, 48, 24};
inline constexpr Card kRtx4090{"RTX 4090", "NVIDIA GeForce RTX 4090", 8, 9, 128, 99 << 10, 100 << 10, 48, 24};
inline constexpr Card kH100{"H100", "NVIDIA H100 80GB HBM3", 9, 0, 132, 227 << 10, 228 << 10, 64, 32, kHopperClusters};
inline constexpr Card kH200{"H200", "NVIDIA H200", 9, 0, 132, 227 << 10, 228 << 10, 64, 32, kHopperClusters};
inline constexpr Card kB200{"B200", "NVIDIA B200", 10, 0, 148, 227 << 10, 228 << 10, 64, 32};
inline constexpr Card kRtx5090{"RTX 5090", "NVIDIA GeForce RTX 5090", 12, 0, 170, 99 << 10, 100 << 10, 48, 32};
// One of each compute capability, the smaller one where there are two; and all of them.
inline constexpr std::array<Card, 6> kCardOfEachTarget = {kA100, kA10, kL4, kH100, kB200, kRtx5090};
inline constexpr std::array<Card, 9> kCards = {kA100, kA10, kRtx3090, kL4, kRtx4090, kH100, kH200, kB200, kRtx5090};

// A step of decoding as the engine asks for it on this card: with the tuning that the library ships, if it does.
inline StepShape shipped_step(const Card& card, const ModelConfig& config, int64_t rows,
                              Numerics numerics = Numerics::fast) {
  const Tuning tuning = shipped_tuning({card.driver_name, model_sizes(config)});
  return step_shape(network_form(network_of(config)), rows, rows, {}, numerics, tuning.of(rows));
}

inline LoweredStep lowered_on(const Card& card, const ModelConfig& config, const StepShape& step) {
  const auto clusters = [&](int64_t blocks) {
    return card.clusters.at(static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(blocks))) - 1);
  };
  LoweringContext at{config, step, card.properties()};
  if (card.clusters[0] > 0) at.clusters = clusters;
  return lower(network_of(config, step.adapters.any()), at);
}

// A kernel compiled for a target, with all the ways in which cards of that target launch it.
struct ShippedKernel {
  Card card;  // one of the target
  KernelRequest request;
  std::vector<LaunchShape> launches = {};        // empty: its grid follows from what a test or a bench does
  std::span<const EmbeddedSource> sources = {};  // beside the embedded ones
};
using ShippedKernels = std::map<std::string, ShippedKernel>;  // by target and request

inline std::string kernel_key(const Card& card, const KernelRequest& request) {
  return card.target() + " " + to_string(request);
}

inline void add_kernel(ShippedKernels& kernels, const Card& card, const KernelRequest& request) {
  kernels.try_emplace(kernel_key(card, request), ShippedKernel{card, request});
}

inline void add_step(ShippedKernels& kernels, const Card& card, const ModelConfig& config, const StepShape& step) {
  const LoweredStep lowered = lowered_on(card, config, step);
  const auto add = [&](const std::vector<LoweredRun>& runs) {
    for (const LoweredRun& run : runs)
      for (const KernelChoice& kernel : run.kernels) {
        add_kernel(kernels, card, kernel.request);
        kernels.at(kernel_key(card, kernel.request)).launches.push_back(kernel.shape);
      }
  };
  add(lowered.first);
  std::ranges::for_each(lowered.kinds, add);
  add(lowered.last);
}

// The rows whose steps are recorded.
inline constexpr std::array<int64_t, 4> kRecordedRows = {1, 8, 32, 64};

// What any model's steps take besides: the choice of constrained and penalized rows, several steps a launch, benches.
inline void add_of_all_models(ShippedKernels& kernels, const Card& card) {
  for (const int64_t rows : kRecordedRows)
    for (const KernelRequest& request : choice_kernel_requests(rows, card.properties()))
      add_kernel(kernels, card, request);
  for (const char* name : {"read_stream", "saxpy", "stamp", "repeat_until", "advance", "fetch_inputs", "update_tables"})
    add_kernel(kernels, card, {name, {}});
}

// What some steps take that are not recorded: rows with penalties and logprobs, samples of many blocks, hidden states.
inline void add_of_some_steps(ShippedKernels& kernels, const Card& card) {
  const auto add = [&](const char* name, std::vector<Constant> constants) {
    add_kernel(kernels, card, {name, std::move(constants)});
  };
  add("shape_logits", {});
  for (const int64_t blocks : {1, 4, 16}) {
    add("record_choice", {{"kBlocksOfRow", blocks}});
    add("sample", {{"kBlocksOfRow", blocks}});
  }
  for (const Norm norm : {Norm::rms, Norm::rms_one_plus, Norm::layer})
    for (const int64_t post_norm : {0, 1})
      if (post_norm == 0 || norm != Norm::layer)
        add("norm_hidden", {{"kNorm", static_cast<int64_t>(norm)}, {"kPostNorm", post_norm}});
}

}  // namespace nodewright::test
