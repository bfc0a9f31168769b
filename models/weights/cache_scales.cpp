#include "models/weights/cache_scales.h"

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>

#include "models/weights/formats/stored_tensor.h"
#include "models/weights/formats/weight_format.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr const char* kAdvice = "--kv-cache-dtype bf16";

const TensorInfo* first_of(const Checkpoint& checkpoint, std::initializer_list<std::string> names) {
  for (const std::string& name : names)
    if (const TensorInfo* tensor = checkpoint.find(name)) return tensor;
  return nullptr;
}

float read_scale(const TensorInfo* tensor) {
  if (tensor == nullptr) return 1;
  for (const int64_t size : tensor->shape)
    if (size != 1)
      refuse_stored(*tensor,
                    fmt::format("a cache in FP8 has one scale for a layer's keys and one for its values, and "
                                "the tensor has shape {}",
                                shape_text(tensor->shape)),
                    kAdvice);
  float scale;
  read_values(*tensor, 0, {&scale, 1});
  if (!std::isfinite(scale) || scale <= 0)
    refuse_stored(*tensor, fmt::format("{} is no scale of a cache in FP8", scale), kAdvice);
  return scale;
}

}  // namespace

CacheScaleTensors find_cache_scales(const Checkpoint& checkpoint, const TensorNames& names, const std::string& layer) {
  const auto find = [&](const std::string& module, const char* scale) {
    const std::string attention = layer + module.substr(0, module.rfind('.') + 1);  // "model.layers.3.self_attn."
    return first_of(checkpoint, {attention + scale, attention + "attn." + scale, layer + module + "." + scale,
                                 attention + "kv_scale"});
  };
  return {find(names.qkv.size() == 3 ? names.qkv[1] : names.qkv[0], "k_scale"), find(names.qkv.back(), "v_scale")};
}

void check_cache_scheme(const Checkpoint& checkpoint) {
  if (checkpoint.format() == nullptr || checkpoint.format()->other_cache().empty()) return;
  throw Error({.doing = "keep keys and values in FP8 for",
               .object = checkpoint.folder().string(),
               .detail = fmt::format("its scales are those of {}, not of FP8 with a scale for each layer",
                                     checkpoint.format()->other_cache()),
               .advice = kAdvice});
}

CacheScales read_cache_scales(const CacheScaleTensors& tensors) {
  return {read_scale(tensors.key), read_scale(tensors.value)};
}

}  // namespace nodewright
