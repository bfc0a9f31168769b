// quant_method "compressed-tensors": FP8, integers packed or not, NVFP4 and MXFP4, each for the modules that its
// targets name (compressed-tensors 0.20, quantization/quant_scheme.py and compressors/).
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <set>

#include "base/json_file.h"
#include "models/config/config_fields.h"
#include "models/config/name_pattern.h"
#include "models/weights/formats/int4_words.h"
#include "models/weights/formats/scaled_matrix.h"
#include "models/weights/formats/stored_tensor.h"
#include "models/weights/formats/weight_format.h"

namespace nodewright {
namespace {

using nlohmann::json;

constexpr int64_t kLargestGroup = 1 << 20;  // columns
constexpr const char* kPattern = "re:";

enum class Compressor : uint8_t { dense, floats, integers, packed, nvfp4, mxfp4 };
enum class Strategy : uint8_t { tensor, channel, group, block };

struct Scheme {
  Compressor compressor = Compressor::dense;
  Strategy strategy = Strategy::channel;
  int64_t bits = 8;
  bool symmetric = true;
  bool ordered = false;                    // groups lie in any order, which weight_g_idx has
  int64_t block_rows = 1, block_cols = 1;  // of strategies group and block
  std::string words;                       // "int4, groups of 128"
};

// Names of modules, patterns of them ("re:..."), and classes, of which all matrices but the embedding are "Linear".
class ModuleList {
 public:
  ModuleList() = default;
  ModuleList(const ConfigFields& fields, const std::string& key) {
    const json* list = fields.find(key);
    if (list == nullptr) return;
    const bool are_texts = list->is_array() && std::ranges::all_of(*list, [](const json& v) { return v.is_string(); });
    if (!are_texts)
      fields.refuse(fmt::format("{}{} is {}, expected a list of names", fields.prefix(), key, in_quotes(list->dump())));
    for (const json& one : *list) {
      const auto& name = one.get_ref<const std::string&>();
      if (name.starts_with(kPattern))
        patterns_.push_back(name_pattern("read the quantization config of", fields.path(), fields.prefix() + key,
                                         name.substr(std::string_view(kPattern).size())));
      else
        names_.insert(name);
    }
  }

  bool has_name(const std::string& module) const { return names_.contains(module); }
  bool has_pattern(const std::string& module) const {  // from its beginning, as Python's re.match
    return std::ranges::any_of(patterns_, [&](const std::regex& pattern) {
      return std::regex_search(module, pattern, std::regex_constants::match_continuous);
    });
  }
  bool has_class(const std::string& module) const {
    return names_.contains(module.ends_with("embed_tokens") ? "Embedding" : "Linear");
  }
  bool has(const std::string& module) const { return has_name(module) || has_pattern(module) || has_class(module); }

 private:
  std::set<std::string, std::less<>> names_;
  std::vector<std::regex> patterns_;
};

struct TargetedScheme {
  ModuleList targets;
  Scheme scheme;
};

Compressor compressor_of(const ConfigFields& fields, const std::string& format, bool is_float, int64_t bits) {
  if (format == "dense") return Compressor::dense;
  if (format == "pack-quantized" && !is_float && 32 % bits == 0) return Compressor::packed;
  if (format == "int-quantized" && !is_float && bits == 8) return Compressor::integers;
  if (format == "float-quantized" && is_float && bits == 8) return Compressor::floats;
  if (format == "naive-quantized" && bits == 8) return is_float ? Compressor::floats : Compressor::integers;
  if (format == "nvfp4-pack-quantized" && is_float && bits == 4) return Compressor::nvfp4;
  if (format == "mxfp4-pack-quantized" && is_float && bits == 4) return Compressor::mxfp4;
  fields.refuse(fmt::format("{}format {} with {} of {} bits is not supported", fields.prefix(), in_quotes(format),
                            is_float ? "floats" : "integers", bits),
                "pack-quantized, int-quantized, float-quantized, nvfp4-pack-quantized or mxfp4-pack-quantized");
}

void read_strategy(const ConfigFields& weights, Scheme& scheme) {
  const int64_t group = weights.integer("group_size", 0, -1, kLargestGroup);
  std::string strategy = weights.text("strategy", "");
  if (strategy.empty()) strategy = group > 0 ? "group" : group == -1 ? "channel" : "tensor";
  if (strategy == "tensor") {
    scheme.strategy = Strategy::tensor;
    scheme.words += ", a scale for each matrix";
  } else if (strategy == "channel") {
    scheme.strategy = Strategy::channel;
    scheme.words += ", a scale for each row";
  } else if (strategy == "group" || strategy == "tensor_group") {
    if (group < 1) weights.refuse(fmt::format("{}group_size is {}, expected at least 1", weights.prefix(), group));
    scheme.strategy = Strategy::group;
    scheme.block_cols = group;
    scheme.words += fmt::format(", groups of {}", group);
  } else if (strategy == "block") {
    const std::vector<int64_t> block = weights.integers("block_structure");
    const auto fits = [](int64_t size) { return size >= 1 && size <= kLargestGroup; };
    if (block.size() != 2 || !fits(block[0]) || !fits(block[1]))
      weights.refuse(weights.prefix() + fmt::format("block_structure must be two numbers from 1 to {}", kLargestGroup));
    scheme.strategy = Strategy::block;
    scheme.block_rows = block[0], scheme.block_cols = block[1];
    scheme.words += fmt::format(", blocks of {} x {}", block[0], block[1]);
  } else {
    weights.refuse(fmt::format("{}strategy is {}", weights.prefix(), in_quotes(strategy)),
                   "supported: tensor, channel, group, tensor_group, block");
  }
}

Scheme read_scheme(const ConfigFields& group, const std::string& format) {
  const json* object = group.object("weights");
  if (object == nullptr) return {};  // activations alone
  const ConfigFields weights = group.inside(*object, group.prefix() + "weights.");
  const std::string type = weights.text("type", "int");
  if (type != "int" && type != "float")
    weights.refuse(fmt::format("{}type is {}, expected int or float", weights.prefix(), in_quotes(type)));
  Scheme scheme;
  scheme.bits = weights.integer("num_bits", 8, 1, 8);
  scheme.symmetric = weights.boolean("symmetric", true);
  const json* order = weights.find("actorder");
  scheme.ordered = order != nullptr && (*order == "group" || *order == "dynamic" || *order == true);
  scheme.compressor = compressor_of(group, group.text("format", format), type == "float", scheme.bits);
  scheme.words = scheme.compressor == Compressor::nvfp4 ? "nvfp4"
                 : scheme.compressor == Compressor::mxfp4
                     ? "mxfp4"
                     : fmt::format("{}{}", type == "float" ? "fp" : "int", scheme.bits);
  if (scheme.compressor != Compressor::dense) read_strategy(weights, scheme);
  const int64_t needed = scheme.compressor == Compressor::nvfp4 ? 16 : scheme.compressor == Compressor::mxfp4 ? 32 : 0;
  if (needed > 0 && (scheme.strategy != Strategy::group || scheme.block_cols != needed))
    weights.refuse(fmt::format("{}group_size must be {} in this format", weights.prefix(), needed));
  if (!scheme.symmetric && type == "float")
    weights.refuse(fmt::format("{}symmetric is false, which floats cannot be", weights.prefix()));
  if (!scheme.symmetric && (scheme.strategy == Strategy::block || scheme.strategy == Strategy::tensor))
    weights.refuse(weights.prefix() + "symmetric is false, which is supported for groups and channels alone");
  return scheme;
}

class CompressedTensorsFormat : public WeightFormat {
 public:
  CompressedTensorsFormat(std::string words, std::vector<TargetedScheme> schemes, ModuleList ignored)
      : WeightFormat(std::move(words)), schemes_(std::move(schemes)), ignored_(std::move(ignored)) {}

  std::unique_ptr<EncodedMatrix> matrix(const std::string& name, const std::vector<int64_t>& shape,
                                        const Checkpoint& checkpoint) const override {
    if (shape.size() != 2 || module_of(name).empty()) return nullptr;
    const Scheme* scheme = scheme_of(module_of(name));
    if (scheme == nullptr || scheme->compressor == Compressor::dense) return nullptr;
    const TensorInfo* plain = checkpoint.find(name);
    if (plain != nullptr && plain->dtype != Dtype::kF8E4M3 && plain->dtype != Dtype::kI8) return nullptr;
    return scaled_matrix(scheme->words, parts_of(name, shape, *scheme, checkpoint));
  }

  bool stores(const std::string& name, const Checkpoint& checkpoint) const override {
    return checkpoint.find(name + "_packed") != nullptr;
  }

  std::unique_ptr<EncodedMatrix> drawn(const std::string& name, const std::vector<int64_t>& shape) const override {
    const Scheme* scheme = scheme_of(module_of(name));
    if (scheme == nullptr) return nullptr;
    const ScaleBlock block = block_of(*scheme, shape);
    if (scheme->compressor == Compressor::floats) return std::make_unique<DrawnMatrix>(block, std::nullopt);
    if (scheme->compressor != Compressor::packed || scheme->bits != 4 || scheme->ordered) return nullptr;
    return std::make_unique<DrawnMatrix>(std::nullopt, int4_layout_of(block.cols, shape[1]));
  }

 private:
  // The scheme that names the module comes before one whose pattern fits, and both before one of its class.
  const Scheme* scheme_of(const std::string& module) const {
    if (ignored_.has(module)) return nullptr;
    for (const auto fits : {&ModuleList::has_name, &ModuleList::has_pattern, &ModuleList::has_class})
      for (const TargetedScheme& one : schemes_)
        if ((one.targets.*fits)(module)) return &one.scheme;
    return nullptr;
  }

  static ScaleBlock block_of(const Scheme& scheme, const std::vector<int64_t>& shape) {
    const bool whole_rows = scheme.strategy == Strategy::tensor || scheme.strategy == Strategy::channel;
    return {scheme.strategy == Strategy::tensor ? shape[0] : scheme.block_rows,
            whole_rows ? shape[1] : scheme.block_cols};
  }

  static ScaledParts parts_of(const std::string& name, const std::vector<int64_t>& shape, const Scheme& scheme,
                              const Checkpoint& checkpoint) {
    const auto require = [&](const char* ending, std::initializer_list<std::vector<int64_t>> shapes,
                             std::initializer_list<Dtype> dtypes) {
      return &require_stored(checkpoint, name + ending, shapes, dtypes, name);
    };
    const int64_t rows = shape[0], cols = shape[1];
    const ScaleBlock block = block_of(scheme, shape);
    ScaledParts parts{
        .bits = scheme.bits, .rows = rows, .cols = cols, .block_rows = block.rows, .block_cols = block.cols};
    switch (scheme.compressor) {
      case Compressor::dense:
        break;
      case Compressor::floats:
        parts.kind = CodeKind::e4m3;
        parts.codes = require("", {shape}, {Dtype::kF8E4M3});
        break;
      case Compressor::integers:
        parts.kind = CodeKind::int8;
        parts.codes = require("", {shape}, {Dtype::kI8});
        break;
      case Compressor::packed:
        parts.kind = CodeKind::packed;
        parts.codes =
            require("_packed", {{rows, (cols + parts.codes_of_word() - 1) / parts.codes_of_word()}}, {Dtype::kI32});
        if (checkpoint.find(name + "_shape")) parts.whole_shape = require("_shape", {{2}}, {Dtype::kI64, Dtype::kI32});
        if (scheme.ordered || checkpoint.find(name + "_g_idx"))
          parts.groups = require("_g_idx", {{cols}}, {Dtype::kI32});
        break;
      case Compressor::nvfp4:
      case Compressor::mxfp4:
        parts.kind = CodeKind::e2m1;
        parts.codes = require("_packed", {{rows, (cols + 1) / 2}}, {Dtype::kU8});
        if (scheme.compressor != Compressor::nvfp4) break;
        parts.global = require("_global_scale", {{1}, {}}, {Dtype::kF32});
        parts.global_divides = true;
        break;
    }
    read_grid(name, scheme, checkpoint, parts);
    return parts;
  }

  static void read_grid(const std::string& name, const Scheme& scheme, const Checkpoint& checkpoint,
                        ScaledParts& parts) {
    const std::vector<int64_t> grid = {parts.grid_rows(), parts.grid_cols()};
    const auto floats = {Dtype::kF32, Dtype::kBF16, Dtype::kF16};
    const std::string scale = name + "_scale";
    if (scheme.strategy == Strategy::tensor)
      parts.scales = &require_stored(checkpoint, scale, {{1}, {}, grid}, floats, name);
    else if (scheme.compressor == Compressor::nvfp4)
      parts.scales = &require_stored(checkpoint, scale, {grid}, {Dtype::kF8E4M3}, name);
    else if (scheme.compressor == Compressor::mxfp4)
      parts.scales = &require_stored(checkpoint, scale, {grid}, {Dtype::kU8, Dtype::kF8E8M0}, name);
    else if (scheme.strategy == Strategy::channel)
      parts.scales = &require_stored(checkpoint, scale, {grid, {parts.rows}}, floats, name);
    else
      parts.scales = &require_stored(checkpoint, scale, {grid}, floats, name);
    if (scheme.symmetric) return;
    const std::string zero = name + "_zero_point";
    const TensorInfo* stored = checkpoint.find(zero);
    if (stored != nullptr && stored->dtype == Dtype::kI8) {
      parts.zeros = &require_stored(checkpoint, zero, {grid}, {Dtype::kI8}, name);
    } else {
      const int64_t in_word = parts.codes_of_word();
      parts.zeros =
          &require_stored(checkpoint, zero, {{(grid[0] + in_word - 1) / in_word, grid[1]}}, {Dtype::kI32}, name);
    }
  }

  std::vector<TargetedScheme> schemes_;
  ModuleList ignored_;
};

// Whether an object under `key` says anything: {} and a format "dense" do not.
void refuse_object(const ConfigFields& fields, const char* key, const char* why) {
  const json* object = fields.object(key);
  if (object == nullptr) return;
  const auto format = object->find("format");
  if (std::string_view(key) == "sparsity_config" && format != object->end() && *format == "dense") return;
  fields.refuse(fmt::format("{}{}: {}", fields.prefix(), key, why), "the checkpoint without it");
}

}  // namespace

std::unique_ptr<WeightFormat> read_compressed_tensors_format(const ConfigFields& fields) {
  refuse_object(fields, "sparsity_config", "sparse weights are not supported");
  refuse_object(fields, "transform_config", "rotated weights are not supported");
  const std::string status = fields.text("quantization_status", "compressed");
  if (status != "compressed" && status != "frozen")
    fields.refuse(fmt::format("{}quantization_status is {}, expected compressed", fields.prefix(), in_quotes(status)));
  const std::string format = fields.text("format", "dense");
  std::vector<TargetedScheme> schemes;
  std::string words;
  if (const json* groups = fields.object("config_groups"))
    for (const auto& [name, value] : groups->items()) {
      const std::string key = fmt::format("{}config_groups.{}", fields.prefix(), name);
      if (!value.is_object()) fields.refuse(fmt::format("{} is {}, expected an object", key, in_quotes(value.dump())));
      const ConfigFields group = fields.inside(value, key + ".");
      schemes.push_back({ModuleList(group, "targets"), read_scheme(group, format)});
      const std::string& one = schemes.back().scheme.words;
      if (!one.empty()) words += (words.empty() ? "" : "; ") + one;
    }
  return std::make_unique<CompressedTensorsFormat>(words, std::move(schemes), ModuleList(fields, "ignore"));
}

}  // namespace nodewright
