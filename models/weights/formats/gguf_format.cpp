#include "models/weights/formats/gguf_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "kernels_src/experts/expert_shape.h"
#include "models/weights/formats/stored_tensor.h"

namespace nodewright {
namespace {

Dtype dtype_of(const GgufType& type) {
  if (type.name == "F32") return Dtype::kF32;
  if (type.name == "F16") return Dtype::kF16;
  if (type.name == "BF16") return Dtype::kBF16;
  return Dtype::kU8;
}
bool is_plain(const GgufType& type) { return dtype_of(type) != Dtype::kU8; }

class GgufMatrix : public EncodedMatrix {
 public:
  GgufMatrix(const GgufType& type, const TensorInfo& tensor)
      : EncodedMatrix(std::string(type.name), {&tensor}), type_(type) {}

  void decode(int64_t first, int64_t rows, std::span<float> to) const override {
    dequantize_blocks(type_, blocks(first, rows).data(), to);
  }
  std::optional<WeightLayout> group_layout() const override { return group_layout_of(type_, tensor().shape[1]); }
  void group_codes(int64_t first, int64_t rows, std::span<uint8_t> to) const override {
    group_codes_of(type_, blocks(first, rows).data(), *group_layout(), to);
  }
  std::vector<uint32_t> group_words(int64_t first, int64_t rows) const override {
    return group_words_of(type_, blocks(first, rows).data(), rows * of_row(), *group_layout(), tensor());
  }

 private:
  const TensorInfo& tensor() const { return *stored().front(); }
  int64_t of_row() const { return tensor().shape[1] / type_.elements; }
  std::vector<std::byte> blocks(int64_t first, int64_t rows) const {
    const auto row_bytes = static_cast<uint64_t>(of_row()) * type_.bytes;
    std::vector<std::byte> bytes(static_cast<uint64_t>(rows) * row_bytes);
    tensor().file->read(tensor().offset + static_cast<uint64_t>(first) * row_bytes, bytes);
    return bytes;
  }

  const GgufType& type_;
};

// A norm's gains, less the one that the file has added to them.
class GgufGains : public EncodedMatrix {
 public:
  explicit GgufGains(const TensorInfo& tensor) : EncodedMatrix(std::string(dtype_name(tensor.dtype)), {&tensor}) {}

  void decode(int64_t first, int64_t, std::span<float> to) const override {
    read_values(*stored().front(), static_cast<uint64_t>(first), to);
    for (float& gain : to) gain -= 1;
  }
};

// "blk.0.ffn_up_exps.weight" holds all experts, of which models/config/gguf_config.cpp calls one
// "blk.0.experts.3.ffn_up_exps.weight". Of any other tensor itself.
std::vector<TensorInfo> parts_of(const TensorInfo& tensor) {
  const size_t at = tensor.name.find(".ffn_");
  const bool is_of_experts =
      tensor.shape.size() == 3 && at != std::string::npos && tensor.name.ends_with("_exps.weight");
  if (!is_of_experts || tensor.shape[0] < 1 || tensor.shape[0] > kMostExperts) return {tensor};
  std::vector<TensorInfo> experts;
  for (int64_t i = 0; i < tensor.shape[0]; ++i) {
    TensorInfo one = tensor;
    one.name.insert(at, fmt::format(".experts.{}", i));
    one.shape.erase(one.shape.begin());
    one.bytes /= static_cast<uint64_t>(tensor.shape[0]);
    one.offset += static_cast<uint64_t>(i) * one.bytes;
    experts.push_back(std::move(one));
  }
  return experts;
}

class GgufFormat : public WeightFormat {
 public:
  GgufFormat(std::string words, std::map<std::string, const GgufType*, std::less<>> types, bool norms_hold_one)
      : WeightFormat(std::move(words)), types_(std::move(types)), norms_hold_one_(norms_hold_one) {}

  std::unique_ptr<EncodedMatrix> matrix(const std::string& name, const std::vector<int64_t>& shape,
                                        const Checkpoint& checkpoint) const override {
    const auto type = types_.find(name);
    const TensorInfo* tensor = checkpoint.find(name);
    if (type == types_.end() || tensor == nullptr) return nullptr;
    const bool plain = is_plain(*type->second);
    if (norms_hold_one_ && plain && shape.size() == 1 && tensor->shape == shape && name.ends_with("norm.weight"))
      return std::make_unique<GgufGains>(*tensor);
    if (plain) return nullptr;
    if (shape.size() != 2) refuse_stored(*tensor, fmt::format("it is stored as {}, expected F32", type->second->name));
    if (tensor->shape != shape)
      refuse_stored(*tensor, fmt::format("expected shape {}, found {}", shape_text(shape), shape_text(tensor->shape)));
    return std::make_unique<GgufMatrix>(*type->second, *tensor);
  }

  bool stores(const std::string&, const Checkpoint&) const override { return false; }  // under the same name

  // Factors of frequencies, which models/config/gguf_config.cpp reads.
  bool is_spare(const TensorInfo& tensor, const Checkpoint&) const override {
    return tensor.name == "rope_freqs.weight" || tensor.name == "rope_factors_long.weight" ||
           tensor.name == "rope_factors_short.weight";
  }

 private:
  std::map<std::string, const GgufType*, std::less<>> types_;
  bool norms_hold_one_;
};

}  // namespace

std::unique_ptr<WeightFormat> open_gguf(const std::filesystem::path& path,
                                        std::vector<std::unique_ptr<CheckedFile>>& files,
                                        std::vector<TensorInfo>& tensors) {
  GgufModel model = GgufModel::open(path, kGgufTokenizer);
  std::map<std::string, const GgufType*, std::less<>> types;
  std::set<std::string_view> used;
  for (const GgufTensor& tensor : model.tensors()) {
    if (tensor.shape.size() > 1) used.insert(tensor.type->name);
    const Dtype dtype = dtype_of(*tensor.type);
    for (TensorInfo& part : parts_of({tensor.name, dtype, tensor.shape, tensor.file, tensor.offset, tensor.bytes})) {
      types.emplace(part.name, tensor.type);
      tensors.push_back(std::move(part));
    }
  }
  std::string words;
  for (const std::string_view type : used) words += (words.empty() ? "GGUF of " : ", ") + std::string(type);
  const bool is_gemma = model.text("general.architecture").value_or("").starts_with("gemma");
  files = std::move(model).take_files();
  return std::make_unique<GgufFormat>(std::move(words), std::move(types), is_gemma);
}

}  // namespace nodewright
