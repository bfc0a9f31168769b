#include "models/adapters/lora_adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/file_to_read.h"
#include "base/json_file.h"
#include "models/adapters/adapter_layout.h"
#include "models/config/gguf_config.h"
#include "models/weights/bf16_conversion.h"
#include "models/weights/weights.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr std::string_view kBase = "base_model.model.";  // before the names of all modules
constexpr const char* kAdapterTensors = "adapter_model.safetensors";

[[noreturn]] void refuse_tensor(const std::filesystem::path& path, std::string_view tensor, std::string detail,
                                std::string advice = {}) {
  throw Error({.doing = fmt::format("load tensor {} of the adapter", in_quotes(tensor)),
               .object = path.string(),
               .detail = std::move(detail),
               .advice = std::move(advice)});
}

// A matrix of the model's layers as the checkpoint stores it.
struct BaseMatrix {
  int64_t rows = 0, cols = 0;
};

// By name without prefix.
std::map<std::string, BaseMatrix, std::less<>> matrices_of(const ModelConfig& config) {
  std::map<std::string, BaseMatrix, std::less<>> matrices;
  std::set<std::string> adapted;  // names of sources
  for (int64_t layer = 0; layer < config.layers; ++layer)
    for (const Part part : kAdaptedParts)
      if (AdapterLayout::adapts(config, layer, part))
        adapted.insert(fmt::format("l{}.{}", layer, weight_name(config, part)));
  const Checkpoint any = Checkpoint::dummy("");
  for (const WeightSource& source : weight_sources(any, config)) {
    if (!adapted.contains(source.name)) continue;
    for (const WeightPart& part : source.parts) {
      std::string_view name = without_prefix(part.tensor->name, config.names);
      name.remove_suffix(std::string_view(".weight").size());
      const std::vector<int64_t>& shape = part.tensor->shape;
      matrices.try_emplace(std::string(name),
                           part.transposed ? BaseMatrix{shape[1], shape[0]} : BaseMatrix{shape[0], shape[1]});
    }
  }
  return matrices;
}

// "model.layers.0.mlp.up_proj" and whether it is A or B.
struct LoraName {
  std::string_view module;
  bool is_a = false;
};
LoraName lora_name(const TensorInfo& tensor) {
  std::string_view name = tensor.name;
  const auto refuse = [&](std::string detail) { refuse_tensor(tensor.file->path(), tensor.name, std::move(detail)); };
  if (name.find("lora_embedding_") != std::string_view::npos) refuse("it changes an embedding, which is not supported");
  if (!name.starts_with(kBase)) refuse(fmt::format("its name does not begin with {}", kBase));
  name.remove_prefix(kBase.size());
  for (const std::string_view ending : {".lora_A.weight", ".lora_B.weight"})
    if (name.ends_with(ending)) return {name.substr(0, name.size() - ending.size()), ending == ".lora_A.weight"};
  refuse("its name ends neither with .lora_A.weight nor with .lora_B.weight");
  return {};
}

void check_shape(const TensorInfo& tensor, const std::vector<int64_t>& shape) {
  if (tensor.shape != shape)
    refuse_tensor(tensor.file->path(), tensor.name,
                  fmt::format("expected shape {}, found {}", shape_text(shape), shape_text(tensor.shape)),
                  "check that the adapter was made for this model");
  if (tensor.dtype != Dtype::kBF16 && tensor.dtype != Dtype::kF16 && tensor.dtype != Dtype::kF32)
    refuse_tensor(tensor.file->path(), tensor.name,
                  fmt::format("its dtype is {}, supported are BF16, F16 and F32", dtype_name(tensor.dtype)));
}

}  // namespace

std::string_view without_prefix(std::string_view name, const TensorNames& names) {
  for (const std::string& prefix : {names.prefix, names.other_prefix})
    if (!prefix.empty() && name.starts_with(prefix)) return name.substr(prefix.size());
  return name;
}

std::vector<float> read_floats(const TensorInfo& tensor) {
  std::vector<std::byte> bytes(tensor.bytes);
  tensor.file->read(tensor.offset, bytes);
  std::vector<float> values(bytes.size() * 8 / dtype_bits(tensor.dtype));
  convert_to_floats(tensor.dtype, bytes.data(), values.data(), static_cast<int64_t>(values.size()));
  const auto wrong = std::ranges::find_if(values, [](float v) { return !std::isfinite(v); });
  if (wrong != values.end())
    refuse_tensor(tensor.file->path(), tensor.name,
                  fmt::format("element {} is {}, expected a finite number", wrong - values.begin(), *wrong));
  return values;
}

LoraAdapter LoraAdapter::open(const std::filesystem::path& folder, const ModelConfig& config, int64_t most_rank) {
  if (config.names.layers == kGgufLayers)
    throw Error({.doing = "use the adapter",
                 .object = folder.string(),
                 .detail = "the model is a GGUF file, whose matrices have other names than PEFT's",
                 .advice = "the checkpoint in the Hugging Face layout"});
  LoraAdapter adapter(folder);
  const AdapterConfig about = AdapterConfig::read(folder);
  if (!is_present(folder / kAdapterTensors))
    throw Error({.doing = "read the adapter",
                 .object = folder.string(),
                 .detail = fmt::format("it holds no {}", kAdapterTensors),
                 .advice = is_present(folder / "adapter_model.bin")
                               ? "save the adapter again with safe_serialization=True"
                               : "check the path"});
  adapter.file_ = std::make_unique<CheckedFile>(folder / kAdapterTensors);
  adapter.tensors_ = read_safetensors_header(*adapter.file_);
  const std::map<std::string, BaseMatrix, std::less<>> matrices = matrices_of(config);
  std::map<std::string, std::string, std::less<>> called;  // the file's name of a module, with its prefix
  for (const TensorInfo& tensor : adapter.tensors_) {
    const LoraName name = lora_name(tensor);
    const std::string_view module = without_prefix(name.module, config.names);
    if (!matrices.contains(module))
      refuse_tensor(adapter.file_->path(), tensor.name, "the model's layers have no such matrix",
                    "an adapter of this model; of embedding and head none is supported");
    if (!about.targets(name.module))
      refuse_tensor(adapter.file_->path(), tensor.name,
                    "target_modules of adapter_config.json does not name its module");
    called.try_emplace(std::string(module), name.module);
    AdapterModule& own = adapter.modules_[std::string(module)];
    (name.is_a ? own.a : own.b) = &tensor;
  }
  // A module that the file leaves out is called as one that it has, or as the model's own prefix says.
  const bool others = !config.names.other_prefix.empty() && std::ranges::any_of(called, [&](const auto& one) {
    return one.second.starts_with(config.names.other_prefix);
  });
  for (const auto& [module, matrix] : matrices) {
    const auto found = called.find(module);
    const std::string name =
        found != called.end() ? found->second : (others ? config.names.other_prefix : config.names.prefix) + module;
    if (!about.targets(name)) continue;
    AdapterModule& own = adapter.modules_[module];
    if (own.a == nullptr || own.b == nullptr)
      throw Error({.doing = "read the adapter",
                   .object = adapter.file_->path().string(),
                   .detail = fmt::format("adapter_config.json names {}, and its lora_{} is missing", in_quotes(name),
                                         own.a == nullptr ? 'A' : 'B')});
    own.rank = about.rank_of(name);
    own.scale = about.scale_of(name);
    check_shape(*own.a, {own.rank, matrix.cols});
    check_shape(*own.b, {matrix.rows, own.rank});
    if (own.rank > most_rank)
      throw Error({.doing = "read the adapter",
                   .object = about.path().string(),
                   .detail = fmt::format("the rank of {} is {}, and at most {} is allowed", in_quotes(name), own.rank,
                                         most_rank),
                   .advice = fmt::format("--max-adapter-rank {}", own.rank)});
    adapter.rank_ = std::max(adapter.rank_, own.rank);
  }
  if (adapter.modules_.empty())
    throw Error({.doing = "read the adapter",
                 .object = about.path().string(),
                 .detail = "target_modules names no matrix of the model's layers"});
  return adapter;
}

const AdapterModule* LoraAdapter::find(std::string_view module) const {
  const auto found = modules_.find(module);
  return found == modules_.end() ? nullptr : &found->second;
}

}  // namespace nodewright
