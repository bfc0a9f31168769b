// quant_method "mxfp4", as gpt-oss stores its experts: one tensor of blocks and one of scales for all experts of a
// layer, `experts.gate_up_proj_blocks` and `experts.gate_up_proj_scales` (transformers, integrations/mxfp4.py). The
// network's name of expert 3's matrix is `experts.3.gate_up_proj.weight`.
#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "models/config/config_fields.h"
#include "models/weights/formats/scaled_matrix.h"
#include "models/weights/formats/stored_tensor.h"
#include "models/weights/formats/weight_format.h"

namespace nodewright {
namespace {

constexpr int64_t kMxfp4Group = 32;  // elements of a scale

// What "layers.0.mlp.experts.3.gate_up_proj.weight" names.
struct ExpertName {
  std::string tensors;  // "layers.0.mlp.experts.gate_up_proj"
  int64_t expert = 0;
};

std::optional<ExpertName> expert_name(const std::string& name) {
  constexpr std::string_view kExperts = ".experts.";
  const std::string module = module_of(name);
  const size_t found = module.find(kExperts);
  if (found == std::string::npos) return std::nullopt;
  const size_t begin = found + kExperts.size(), end = module.find('.', begin);
  if (end == std::string::npos) return std::nullopt;
  ExpertName parts{module.substr(0, begin) + module.substr(end + 1)};
  const auto [after, error] = std::from_chars(module.data() + begin, module.data() + end, parts.expert);
  if (error != std::errc() || after != module.data() + end || parts.expert < 0) return std::nullopt;
  return parts;
}

// Expert `index` of a tensor whose first dimension is theirs, with its other dimensions as `shape`.
TensorInfo slice_of(const TensorInfo& all, int64_t index, std::vector<int64_t> shape) {
  TensorInfo one = all;
  one.bytes /= static_cast<uint64_t>(all.shape[0]);
  one.offset += static_cast<uint64_t>(index) * one.bytes;
  one.shape = std::move(shape);
  return one;
}

class ExpertMatrix : public EncodedMatrix {
 public:
  ExpertMatrix(const TensorInfo& blocks, const TensorInfo& scales, int64_t expert, int64_t rows, int64_t cols)
      : EncodedMatrix("mxfp4", {&blocks, &scales}),
        codes_(slice_of(blocks, expert, {rows, cols / 2})),
        scales_(slice_of(scales, expert, {rows, cols / kMxfp4Group})) {
    ScaledParts parts{.kind = CodeKind::e2m1, .bits = 4, .rows = rows, .cols = cols};
    parts.block_cols = kMxfp4Group;
    parts.codes = &codes_, parts.scales = &scales_;
    matrix_ = scaled_matrix("mxfp4", parts);
  }

  void decode(int64_t first, int64_t rows, std::span<float> to) const override { matrix_->decode(first, rows, to); }
  uint64_t bytes() const override { return matrix_->bytes(); }

 private:
  TensorInfo codes_, scales_;
  std::unique_ptr<EncodedMatrix> matrix_;
};

class Mxfp4Format : public WeightFormat {
 public:
  Mxfp4Format() : WeightFormat("mxfp4, groups of 32, of experts") {}

  std::unique_ptr<EncodedMatrix> matrix(const std::string& name, const std::vector<int64_t>& shape,
                                        const Checkpoint& checkpoint) const override {
    if (shape.size() != 2 || !stores(name, checkpoint)) return nullptr;
    const ExpertName expert = *expert_name(name);
    const TensorInfo& found = *checkpoint.find(expert.tensors + "_blocks");
    const int64_t rows = shape[0], groups = shape[1] / kMxfp4Group;
    const int64_t count = found.shape.empty() ? 0 : found.shape[0];
    if (shape[1] % kMxfp4Group != 0)
      refuse_stored(found,
                    fmt::format("the matrix is {}, expected a multiple of {} columns", shape_text(shape), kMxfp4Group));
    if (expert.expert >= count)
      refuse_stored(found, fmt::format("it has shape {}, and no expert {}", shape_text(found.shape), expert.expert));
    const TensorInfo& blocks =
        require_stored(checkpoint, found.name, {{count, rows, groups, kMxfp4Group / 2}}, {Dtype::kU8}, name);
    const TensorInfo& scales = require_stored(checkpoint, expert.tensors + "_scales", {{count, rows, groups}},
                                              {Dtype::kU8, Dtype::kF8E8M0}, name);
    return std::make_unique<ExpertMatrix>(blocks, scales, expert.expert, rows, shape[1]);
  }

  bool stores(const std::string& name, const Checkpoint& checkpoint) const override {
    const std::optional<ExpertName> expert = expert_name(name);
    return expert && checkpoint.find(expert->tensors + "_blocks") != nullptr;
  }
};

}  // namespace

// It has no parameters. modules_to_not_convert names what stays as it was: the tensors say the same.
std::unique_ptr<WeightFormat> read_mxfp4_format(const ConfigFields&) { return std::make_unique<Mxfp4Format>(); }

}  // namespace nodewright
