// quant_method "modelopt": NVIDIA's FP8, with a scale for each matrix, and NVFP4, whose second scale is a factor (that
// of compressed-tensors is a divisor).
#include <fmt/format.h>

#include <algorithm>

#include "base/json_file.h"
#include "models/config/config_fields.h"
#include "models/weights/formats/scaled_matrix.h"
#include "models/weights/formats/stored_tensor.h"
#include "models/weights/formats/weight_format.h"

namespace nodewright {
namespace {

constexpr int64_t kNvfp4Group = 16;

class ModelOptFormat : public WeightFormat {
 public:
  explicit ModelOptFormat(std::string words) : WeightFormat(std::move(words)) {}

  // Modules that are left out stay bf16: the dtype of the tensor says so.
  std::unique_ptr<EncodedMatrix> matrix(const std::string& name, const std::vector<int64_t>& shape,
                                        const Checkpoint& checkpoint) const override {
    const TensorInfo* codes = checkpoint.find(name);
    if (shape.size() != 2 || codes == nullptr) return nullptr;
    const bool is_fp8 = codes->dtype == Dtype::kF8E4M3, is_nvfp4 = codes->dtype == Dtype::kU8;
    if (!is_fp8 && !is_nvfp4) return nullptr;
    ScaledParts parts{.kind = CodeKind::e4m3, .rows = shape[0], .cols = shape[1]};
    if (is_fp8) {
      parts.block_rows = shape[0], parts.block_cols = shape[1];
      parts.codes = &require_stored(checkpoint, name, {shape}, {Dtype::kF8E4M3}, name);
      parts.scales = &require_stored(checkpoint, name + "_scale", {{}, {1}}, {Dtype::kF32, Dtype::kBF16}, name);
      return scaled_matrix("fp8", parts);
    }
    parts.kind = CodeKind::e2m1;
    parts.block_cols = kNvfp4Group;
    parts.codes = &require_stored(checkpoint, name, {{shape[0], (shape[1] + 1) / 2}}, {Dtype::kU8}, name);
    parts.scales =
        &require_stored(checkpoint, name + "_scale", {{parts.grid_rows(), parts.grid_cols()}}, {Dtype::kF8E4M3}, name);
    parts.global = &require_stored(checkpoint, name + "_scale_2", {{}, {1}}, {Dtype::kF32}, name);
    return scaled_matrix("nvfp4", parts);
  }

  bool stores(const std::string&, const Checkpoint&) const override { return false; }  // under the same name
};

}  // namespace

std::unique_ptr<WeightFormat> read_modelopt_format(const ConfigFields& fields) {
  const std::string algorithm = fields.text("quant_algo", "");
  if (algorithm != "FP8" && algorithm != "NVFP4")
    fields.refuse(fmt::format("{}quant_algo is {}", fields.prefix(), in_quotes(algorithm)), "supported: FP8, NVFP4");
  if (algorithm == "NVFP4" && fields.integer("group_size", kNvfp4Group, 1, 1 << 20) != kNvfp4Group)
    fields.refuse(fmt::format("{}group_size is not {}", fields.prefix(), kNvfp4Group));
  return std::make_unique<ModelOptFormat>(algorithm == "FP8" ? "fp8, a scale for each matrix" : "nvfp4, groups of 16");
}

}  // namespace nodewright
