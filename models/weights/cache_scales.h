// The scales that a checkpoint has for a cache in FP8.
#pragma once

#include <string>

#include "models/config/tensor_names.h"
#include "models/weights/checkpoint.h"

namespace nodewright {

// What codes of an FP8 cache are multiplied by (kernels_src/attention/kv_pages.h).
struct CacheScales {
  float key = 1, value = 1;
};

// The tensors that have them, of one layer; null: there is none, and the scale is 1. They live as long as the
// checkpoint.
struct CacheScaleTensors {
  const TensorInfo *key = nullptr, *value = nullptr;
};

// `layer`: what the names of its tensors begin with, "model.layers.3.".
CacheScaleTensors find_cache_scales(const Checkpoint& checkpoint, const TensorNames& names, const std::string& layer);

// Throws Error where the checkpoint's scales are of another cache than one in FP8 with a scale for each layer.
void check_cache_scheme(const Checkpoint& checkpoint);

// Throws Error, with the name of the tensor, unless each is one number, finite and above 0.
CacheScales read_cache_scales(const CacheScaleTensors& tensors);

}  // namespace nodewright
