// quant_method "fp8": E4M3 bytes with a scale for each block of 128 x 128, as Qwen and DeepSeek publish them, or with
// one for the matrix. A scale is a factor, although its name ends in _inv (transformers, integrations/finegrained_fp8).
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_file.h"
#include "models/config/config_fields.h"
#include "models/weights/formats/scaled_matrix.h"
#include "models/weights/formats/stored_tensor.h"
#include "models/weights/formats/weight_format.h"

namespace nodewright {
namespace {

constexpr int64_t kLargestBlock = 1 << 20;  // rows or columns

class Fp8Format : public WeightFormat {
 public:
  // 0 x 0: one scale for the whole matrix.
  Fp8Format(int64_t block_rows, int64_t block_cols)
      : WeightFormat(block_rows == 0 ? "fp8, a scale for each matrix"
                                     : fmt::format("fp8, blocks of {} x {}", block_rows, block_cols)),
        block_rows_(block_rows),
        block_cols_(block_cols) {}

  // modules_to_not_convert names matrices that stay as they were: the dtype of the tensor says the same.
  std::unique_ptr<EncodedMatrix> matrix(const std::string& name, const std::vector<int64_t>& shape,
                                        const Checkpoint& checkpoint) const override {
    const TensorInfo* codes = checkpoint.find(name);
    if (shape.size() != 2 || codes == nullptr || codes->dtype != Dtype::kF8E4M3) return nullptr;
    ScaledParts parts{.kind = CodeKind::e4m3, .rows = shape[0], .cols = shape[1]};
    parts.block_rows = block_rows_ == 0 ? shape[0] : block_rows_;
    parts.block_cols = block_cols_ == 0 ? shape[1] : block_cols_;
    parts.codes = &require_stored(checkpoint, name, {shape}, {Dtype::kF8E4M3}, name);
    const bool inverse = block_rows_ != 0 || checkpoint.find(name + "_scale_inv") != nullptr;
    const std::string scale = name + (inverse ? "_scale_inv" : "_scale");
    const std::vector<int64_t> grid = {parts.grid_rows(), parts.grid_cols()};
    const auto dtypes = {Dtype::kF32, Dtype::kBF16, Dtype::kF16, Dtype::kF8E8M0};
    parts.scales = block_rows_ == 0 ? &require_stored(checkpoint, scale, {{}, {1}, grid}, dtypes, name)
                                    : &require_stored(checkpoint, scale, {grid}, dtypes, name);
    return scaled_matrix("fp8", parts);
  }

  bool stores(const std::string&, const Checkpoint&) const override { return false; }  // under the same name

  std::unique_ptr<EncodedMatrix> drawn(const std::string&, const std::vector<int64_t>& shape) const override {
    return std::make_unique<DrawnMatrix>(
        block_rows_ == 0 ? ScaleBlock{shape[0], shape[1]} : ScaleBlock{block_rows_, block_cols_}, std::nullopt);
  }

 private:
  int64_t block_rows_, block_cols_;
};

}  // namespace

std::unique_ptr<WeightFormat> read_fp8_format(const ConfigFields& fields) {
  if (const std::string kind = fields.text("fmt", "e4m3"); kind != "e4m3" && kind != "float8_e4m3fn")
    fields.refuse(fmt::format("{}fmt is {}, expected e4m3", fields.prefix(), in_quotes(kind)));
  const std::string scheme = fields.text("activation_scheme", "dynamic");  // of activations, which stay bf16 here
  if (scheme != "dynamic" && scheme != "static")
    fields.refuse(
        fmt::format("{}activation_scheme is {}, expected dynamic or static", fields.prefix(), in_quotes(scheme)));
  if (fields.find("weight_block_size") == nullptr) return std::make_unique<Fp8Format>(0, 0);
  const std::vector<int64_t> block = fields.integers("weight_block_size");
  const auto fits = [](int64_t size) { return size >= 1 && size <= kLargestBlock; };
  if (block.size() != 2 || !fits(block[0]) || !fits(block[1]))
    fields.refuse(fmt::format("{}weight_block_size is {}, expected two numbers from 1 to {}", fields.prefix(),
                              in_quotes(fields.find("weight_block_size")->dump()), kLargestBlock));
  return std::make_unique<Fp8Format>(block[0], block[1]);
}

}  // namespace nodewright
