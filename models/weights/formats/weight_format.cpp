#include "models/weights/formats/weight_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file_to_read.h"
#include "base/json_file.h"
#include "base/visible_text.h"
#include "models/config/config_fields.h"

namespace nodewright {
namespace {

using nlohmann::json;

constexpr uint64_t kLargestQuantConfig = 16 << 20;  // bytes, as of config.json (models/config/model_config.cpp)
constexpr const char* kModelOptFile = "hf_quant_config.json";

struct Method {
  std::string_view name;
  std::unique_ptr<WeightFormat> (*read)(const ConfigFields& fields);
  bool other_name = false;  // of the one above
};
constexpr Method kMethods[] = {{"fp8", read_fp8_format},
                               {"compressed-tensors", read_compressed_tensors_format},
                               {"gptq", read_gptq_format},
                               {"awq", read_awq_format},
                               {"auto-round", read_auto_round_format},
                               {"intel/auto-round", read_auto_round_format, true},
                               {"bitsandbytes", read_bitsandbytes_format},
                               {"mxfp4", read_mxfp4_format},
                               {"modelopt", read_modelopt_format},
                               {"modelopt_fp4", read_modelopt_format, true}};

// What config.json lacks where one of these lies beside it.
struct OlderFile {
  const char *name, *method, *renamed;
};
constexpr OlderFile kOlderFiles[] = {{"quantize_config.json", "gptq", ""},
                                     {"quant_config.json", "awq", ", w_bit as bits and q_group_size as group_size"}};

std::unique_ptr<WeightFormat> read_method(const ConfigFields& fields) {
  std::string method = fields.text("quant_method", "");
  // ModelOpt's own file, and what older versions of compressed-tensors wrote, name no method.
  if (method.empty() && fields.has("quant_algo")) method = "modelopt";
  if (method.empty() && fields.has("config_groups")) method = "compressed-tensors";
  std::string supported;
  for (const Method& one : kMethods) {
    if (one.name == method) return one.read(fields);
    if (!one.other_name) supported += (supported.empty() ? "" : ", ") + std::string(one.name);
  }
  if (method.empty()) fields.refuse(fields.prefix() + "quant_method is missing", "supported: " + supported);
  fields.refuse(fmt::format("{}quant_method {} is not supported", fields.prefix(), in_quotes(method)),
                fmt::format("a checkpoint without quantization, or with one of {}", supported));
}

// How the checkpoint's cache is quantized, where its scales are of codes that an FP8 cache has not; empty: they are
// FP8's, or there are none. compressed-tensors means int of 8 bits where it names neither.
std::string other_cache_scheme(const ConfigFields& fields) {
  const std::string algorithm = fields.text("kv_cache_quant_algo", "");
  if (!algorithm.empty() && algorithm != "FP8")
    return fmt::format("{}kv_cache_quant_algo {}", fields.prefix(), in_quotes(algorithm));
  const json* scheme = fields.object("kv_cache_scheme");
  if (scheme == nullptr) return {};
  const ConfigFields of = fields.inside(*scheme, fields.prefix() + "kv_cache_scheme.");
  const std::string type = of.text("type", "int"), strategy = of.text("strategy", "tensor");
  const int64_t bits = of.integer("num_bits", 8, 1, 64);
  if (type == "float" && bits == 8 && strategy == "tensor") return {};
  return fmt::format("{}kv_cache_scheme, {} of {} bits by {}", fields.prefix(), visible_text(type), bits,
                     visible_text(strategy));
}

std::unique_ptr<WeightFormat> read_format(const ConfigFields& fields) {
  std::unique_ptr<WeightFormat> format = read_method(fields);
  if (std::string other = other_cache_scheme(fields); !other.empty())
    format->set_other_cache(std::move(other));
  else if (fields.object("kv_cache_scheme") != nullptr || !fields.text("kv_cache_quant_algo", "").empty())
    format->add_words("; its cache is quantized with --kv-cache-dtype fp8 alone");
  return format;
}

std::unique_ptr<WeightFormat> declared_in(const ConfigFields& config) {
  for (const char* key : {"quantization_config", "compression_config"})
    if (const json* found = config.object(key)) return read_format(config.inside(*found, config.prefix() + key + "."));
  return nullptr;
}

}  // namespace

std::unique_ptr<EncodedMatrix> WeightFormat::drawn(const std::string&, const std::vector<int64_t>&) const {
  return nullptr;
}

bool WeightFormat::is_spare(const TensorInfo& tensor, const Checkpoint&) const {
  constexpr std::string_view kSpare[] = {".input_scale",  ".input_zero_point",  ".input_global_scale",
                                         ".input_g_idx",  ".activation_scale",  ".activation_scale_inv",
                                         ".output_scale", ".output_zero_point", ".q_scale",
                                         ".k_scale",      ".v_scale",           ".kv_scale"};
  return std::ranges::any_of(kSpare, [&](std::string_view ending) { return tensor.name.ends_with(ending); });
}

std::unique_ptr<WeightFormat> weight_format_of(const std::filesystem::path& folder) {
  const std::string doing = "read the quantization config of";
  const std::filesystem::path path = folder / "config.json", other = folder / kModelOptFile;
  if (!is_present(path)) return nullptr;
  const json object = read_json_object(path, doing, kLargestQuantConfig);
  const ConfigFields config(object, path.string(), doing);
  if (std::unique_ptr<WeightFormat> format = declared_in(config)) return format;
  if (const json* text = config.object("text_config"))
    if (std::unique_ptr<WeightFormat> format = declared_in(config.inside(*text, "text_config."))) return format;
  if (!is_present(other)) {
    for (const OlderFile& one : kOlderFiles)
      if (is_present(folder / one.name))
        config.refuse(fmt::format("it has no quantization_config, and {} lies beside it", one.name),
                      fmt::format("that file's object as quantization_config, with \"quant_method\": \"{}\"{}",
                                  one.method, one.renamed));
    return nullptr;
  }
  const json about = read_json_object(other, doing, kLargestQuantConfig);
  const ConfigFields fields(about, other.string(), doing);
  const json* found = fields.object("quantization");
  if (found == nullptr) return nullptr;
  const ConfigFields quantization = fields.inside(*found, "quantization.");
  const bool cache_alone = quantization.has("quant_algo") && quantization.find("quant_algo") == nullptr;
  return cache_alone ? nullptr : read_format(quantization);
}

}  // namespace nodewright
