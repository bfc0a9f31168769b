#include "models/weights/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file_to_read.h"
#include "base/gguf_file.h"
#include "base/json_file.h"
#include "models/weights/formats/gguf_format.h"
#include "models/weights/formats/stored_tensor.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr uint64_t kLargestIndex = 100'000'000;  // bytes; as much as one safetensors header may have

[[noreturn]] void refuse(const fs::path& path, std::string detail, std::string advice = {}) {
  throw Error({.doing = "open the checkpoint",
               .object = path.string(),
               .detail = std::move(detail),
               .advice = std::move(advice)});
}

// A plain file name: an index must not reach outside its folder.
void check_shard_name(const fs::path& index, const std::string& shard) {
  const bool has_separator = shard.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos;
  if (has_separator || shard.empty() || shard == "." || shard == "..")
    refuse(index, fmt::format("shard name {} is not a plain file name", in_quotes(shard)));
}

// Tensor name to shard name.
std::map<std::string, std::string> read_index(const fs::path& index) {
  const nlohmann::json object = read_json_object(index, "open the checkpoint", kLargestIndex);
  const auto weight_map = object.find("weight_map");
  if (weight_map == object.end() || !weight_map->is_object()) refuse(index, "it has no object weight_map");
  std::map<std::string, std::string> shard_of;
  for (const auto& [name, shard] : weight_map->items()) {
    if (!shard.is_string()) refuse(index, fmt::format("the shard of tensor {} is not text", in_quotes(name)));
    check_shard_name(index, shard.get_ref<const std::string&>());
    shard_of.emplace(name, shard.get<std::string>());
  }
  return shard_of;
}

bool loadable(Dtype dtype) { return dtype == Dtype::kBF16 || dtype == Dtype::kF16 || dtype == Dtype::kF32; }

}  // namespace

Checkpoint Checkpoint::open(const fs::path& folder) {
  Checkpoint checkpoint(folder);
  if (is_gguf(folder)) {
    checkpoint.format_ = open_gguf(folder, checkpoint.files_, checkpoint.tensors_);
    checkpoint.sort();
    return checkpoint;
  }
  checkpoint.format_ = weight_format_of(folder);
  const fs::path index = folder / kIndexFile;
  if (is_present(folder / kSingleFile)) {
    checkpoint.add(folder / kSingleFile);
    checkpoint.sort();
    return checkpoint;
  }
  if (const std::vector<fs::path> others = gguf_files_in(folder); !is_present(index) && !others.empty())
    refuse(folder,
           fmt::format("it holds no safetensors file, and the GGUF file {}",
                       in_quotes(others.front().filename().string())),
           "--model " + others.front().string());
  if (!is_present(index))
    refuse(folder, fmt::format("it holds neither {} nor {}", kSingleFile, kIndexFile),
           is_present(folder / "pytorch_model.bin") ? "save the model again with safe_serialization=True"
                                                    : "check the path");

  const std::map<std::string, std::string> shard_of = read_index(index);
  std::set<std::string> shards;
  for (const auto& [name, shard] : shard_of) shards.insert(shard);
  for (const std::string& shard : shards) {
    if (!is_present(folder / shard))
      refuse(index, fmt::format("shard {} is missing", in_quotes(shard)), "download the missing file");
    checkpoint.add(folder / shard);
  }
  checkpoint.sort();
  for (const auto& [name, shard] : shard_of) {
    const TensorInfo* tensor = checkpoint.find(name);
    if (!tensor || tensor->file->path().filename() != shard)
      refuse(index, fmt::format("tensor {} is not in shard {}", in_quotes(name), in_quotes(shard)));
  }
  return checkpoint;
}

Checkpoint Checkpoint::dummy(const fs::path& folder) {
  Checkpoint checkpoint(folder);
  checkpoint.draws_ = true;
  if (!folder.empty() && !is_gguf(folder)) checkpoint.format_ = weight_format_of(folder);
  return checkpoint;
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto found = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                      [](const TensorInfo& tensor, std::string_view n) { return tensor.name < n; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

const TensorInfo* Checkpoint::find_encoded(std::string_view name, const std::vector<int64_t>& shape) const {
  const auto known = encoded_.find(name);
  if (known != encoded_.end()) {
    if (known->second.tensor.shape != shape)
      refuse_stored(known->second.tensor, fmt::format("expected shape {}, and {} before", shape_text(shape),
                                                      shape_text(known->second.tensor.shape)));
    return &known->second.tensor;
  }
  if (!format_) return nullptr;
  Encoded encoded;
  encoded.matrix = format_->matrix(std::string(name), shape, *this);
  if (!encoded.matrix) return nullptr;
  const std::span<const TensorInfo* const> stored = encoded.matrix->stored();
  TensorInfo& tensor = encoded.tensor;
  tensor.name = name;
  tensor.dtype = stored.front()->dtype;
  tensor.shape = shape;
  tensor.file = stored.front()->file;
  tensor.offset = stored.front()->offset;
  tensor.bytes = encoded.matrix->bytes();
  tensor.encoded = encoded.matrix.get();
  return &encoded_.emplace(name, std::move(encoded)).first->second.tensor;
}

const TensorInfo& Checkpoint::draw(const std::string& name, const std::vector<int64_t>& shape) const {
  const auto [entry, added] = drawn_.try_emplace(name, Encoded{TensorInfo{name, Dtype::kBF16, shape}, nullptr});
  Encoded& drawn = entry->second;
  if (!added || !format_ || shape.size() != 2) return drawn.tensor;
  drawn.matrix = format_->drawn(name, shape);
  drawn.tensor.encoded = drawn.matrix.get();
  return drawn.tensor;
}

bool Checkpoint::has(const std::string& name) const {
  return find(name) != nullptr || (format_ && format_->stores(name, *this));
}

const TensorInfo& Checkpoint::require(std::string_view name, const std::vector<int64_t>& shape) const {
  if (draws_) return draw(std::string(name), shape);
  if (const TensorInfo* encoded = find_encoded(name, shape)) return *encoded;
  const TensorInfo* tensor = find(name);
  const auto refuse_tensor = [&](const fs::path& where, std::string detail, std::string advice) {
    throw Error({.doing = fmt::format("load tensor {} of", in_quotes(name)),
                 .object = where.string(),
                 .detail = std::move(detail),
                 .advice = std::move(advice)});
  };
  if (!tensor)
    refuse_tensor(folder_, fmt::format("it is missing; expected shape {}", shape_text(shape)),
                  "check that config.json belongs to these weights");
  if (tensor->shape != shape)
    refuse_tensor(tensor->file->path(),
                  fmt::format("expected shape {}, found {}", shape_text(shape), shape_text(tensor->shape)),
                  "check that config.json belongs to these weights");
  if (!loadable(tensor->dtype))
    refuse_tensor(tensor->file->path(),
                  fmt::format("its dtype is {}, supported are BF16, F16 and F32", dtype_name(tensor->dtype)),
                  format_ ? "check that config.json belongs to these weights"
                          : "a config.json with the quantization_config of these weights");
  return *tensor;
}

void Checkpoint::add(const fs::path& file) {
  files_.push_back(std::make_unique<CheckedFile>(file));
  std::vector<TensorInfo> tensors = read_safetensors_header(*files_.back());
  tensors_.insert(tensors_.end(), std::make_move_iterator(tensors.begin()), std::make_move_iterator(tensors.end()));
}

void Checkpoint::sort() {
  std::sort(tensors_.begin(), tensors_.end(), [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(tensors_.begin(), tensors_.end(),
                                        [](const TensorInfo& a, const TensorInfo& b) { return a.name == b.name; });
  if (twice != tensors_.end())
    refuse(folder_, fmt::format("tensor {} is in two shards, {} and {}", in_quotes(twice->name),
                                in_quotes(twice->file->path().filename().string()),
                                in_quotes(std::next(twice)->file->path().filename().string())));
}

}  // namespace nodewright
