#include "models/lowering/device_forms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "models/config/shard.h"
#include "models/lowering/lowering.h"
#include "models/network/network.h"

namespace nodewright {
namespace {

constexpr int64_t kMostRows = 65, kPromptRows = 512;  // one more than any kernel of a step's own has

ModelConfig llama_1b() {
  ModelConfig c;
  c.hidden = 2048, c.layers = 16, c.heads = 32, c.kv_heads = 8, c.head_dim = 64, c.intermediate = 8192;
  c.vocab = 128256;
  return c;
}

// The kernels of a layer, and how many of its products a library computes.
struct Layer {
  std::vector<KernelChoice> kernels;
  size_t products = 0;
};
Layer layer_of(const DeviceProperties& device, const ModelConfig& config, const StepShape& step) {
  const LoweredStep lowered = lower(network_of(config), {config, step, device});
  Layer layer;
  for (const LoweredRun& run : lowered.kinds.front()) {
    layer.kernels.insert(layer.kernels.end(), run.kernels.begin(), run.kernels.end());
    layer.products += run.products.size();
  }
  return layer;
}

const Constant* find_constant(const KernelChoice& kernel, std::string_view name) {
  const auto found = std::ranges::find(kernel.request.constants, name, &Constant::name);
  return found == kernel.request.constants.end() ? nullptr : &*found;
}
bool has(const KernelChoice& kernel, std::string_view name, int64_t value) {
  const Constant* constant = find_constant(kernel, name);
  return constant != nullptr && constant->value == ConstantValue(value);
}
bool any(const Layer& layer, auto&& is_so) { return std::ranges::any_of(layer.kernels, is_so); }

// The most blocks of a cluster, where kernels like this one come in clusters.
std::string in_clusters(const Layer& layer, auto&& is_so) {
  unsigned most = 1;
  for (const KernelChoice& kernel : layer.kernels)
    if (is_so(kernel)) most = std::max(most, kernel.shape.cluster_blocks());
  return most > 1 ? fmt::format(", in clusters of up to {} blocks", most) : "";
}

// By the constants of TileShape and MatvecShape.
std::string products_of(const Layer& layer, bool emulated) {
  const auto holds = [](const KernelChoice& k) { return find_constant(k, "kHeld") != nullptr && !has(k, "kHeld", 0); };
  std::vector<std::string> forms;
  if (any(layer, holds)) forms.push_back("tiles on tensor cores, x in registers" + in_clusters(layer, holds));
  if (any(layer, [](const KernelChoice& k) { return has(k, "kHeld", 0); })) forms.push_back("tiles on tensor cores");
  if (any(layer, [](const KernelChoice& k) { return find_constant(k, "kBatch") != nullptr; }))
    forms.push_back("dot products");
  const bool in_bf16 = any(layer, [](const KernelChoice& k) { return k.request.name == "dequantize"; });
  if (layer.products > 0)
    forms.push_back(std::string(emulated ? "the driver's own products" : "cuBLASLt") + (in_bf16 ? " in bf16" : ""));
  return fmt::format("{}", fmt::join(forms, " and "));
}

// By the constants of FlashDecodeShape and AttendTilesShape.
std::string attention_of(const Layer& layer) {
  if (any(layer, [](const KernelChoice& k) {
        return find_constant(k, "kWarpgroups") != nullptr && !has(k, "kWarpgroups", 0);
      }))
    return "tensor cores, a prompt's rows by warpgroups";
  const auto meets = [](const KernelChoice& k) { return has(k, "kInCluster", 1); };
  const auto flash = [](const KernelChoice& k) { return find_constant(k, "kInCluster") != nullptr; };
  if (any(layer, meets)) return "tensor cores, the parts of a row in a cluster";
  if (any(layer, [&](const KernelChoice& k) { return flash(k) && !has(k, "kSplits", 1); }))
    return "tensor cores, the parts of a row merged through global memory";
  return any(layer, flash) ? "tensor cores" : "dot products";
}

std::string sums_of(const Layer& layer) {
  const auto named = [&](std::string_view name) {
    return any(layer, [&](const KernelChoice& k) { return k.request.name.find(name) != std::string::npos; });
  };
  if (named("project_exchange")) return "packets, within the product";
  return any(layer, [](const KernelChoice& k) { return has(k, "kBulk", 1); }) ? "bulk exchange after the product"
                                                                              : "packets after the product";
}

// "1 to 2 rows: a; from 3, and prompts: b". `form(rows)`: of a step with these rows; at kPromptRows of a prompt.
std::string by_rows(auto&& form) {
  const std::string prompts = form(kPromptRows);
  std::string text, now;
  for (int64_t first = 1, last = 1; first <= kMostRows; first = last + 1) {
    now = form(first);
    for (last = first; last < kMostRows && form(last + 1) == now;) ++last;
    const std::string_view unit = first > 1 ? "" : last > 1 ? " rows" : " row";
    const std::string range = last - first == kMostRows - 1 ? "any number of"
                              : last == kMostRows           ? fmt::format("from {}", first)
                              : first == last               ? fmt::format("{}", first)
                                                            : fmt::format("{} to {}", first, last);
    text += fmt::format("{}{}{}{}: {}", text.empty() ? "" : "; ", range, unit,
                        last == kMostRows && now == prompts ? ", and prompts" : "", now);
  }
  return now == prompts ? text : text + "; prompts: " + prompts;
}

StepShape step_of(const ModelConfig& config, int64_t rows) {
  const int64_t sampled = rows == kPromptRows ? 16 : rows;
  return step_shape(network_form(network_of(config)), rows, sampled, {}, Numerics::fast);
}

std::string compute_capability(int major, int minor) { return fmt::format("{}.{}", major, minor); }

}  // namespace

std::vector<std::string> device_forms(const DeviceProperties& device, bool emulated) {
  const ModelConfig whole = llama_1b(), part = shard_of(whole, {.rank = 0, .ranks = 2});
  const auto layer = [&](const ModelConfig& config, int64_t rows) {
    return layer_of(device, config, step_of(config, rows));
  };
  const auto products_in = [&](const WeightLayout& layout) {
    ModelConfig config = whole;
    for (WeightLayout* of : {&config.layouts.qkv, &config.layouts.out, &config.layouts.gate_up, &config.layouts.down})
      *of = layout;
    config.layouts.gate_up.unit = 2;
    return by_rows([&](int64_t rows) { return products_of(layer(config, rows), emulated); });
  };
  return {
      device.has_programmatic_launch() ? "edges: programmatic, where the kernels allow it, and full" : "edges: full",
      device.has_clusters() ? fmt::format("clusters: up to {} blocks", device.cluster_blocks()) : "clusters: none",
      device.has_bulk_copies() && !emulated ? "tiles of weights: bulk copies" : "tiles of weights: copies by threads",
      "products: " + products_in({}),
      "products in FP8: " + products_in({WeightCode::fp8}),
      "products in int4: " + products_in({WeightCode::int4, false, 1, 128}),
      "attention: " + by_rows([&](int64_t rows) { return attention_of(layer(whole, rows)); }),
      "sums over ranks: " + by_rows([&](int64_t rows) { return sums_of(layer(part, rows)); }),
  };
}

std::string untried_on(const DeviceProperties& device) {
  std::vector<std::string> all;
  bool compiled = false;
  for (const int capability : kCompiledFor) {
    all.push_back(compute_capability(capability / 10, capability % 10));
    compiled |= capability == 10 * device.cc_major + device.cc_minor;
  }
  const std::string own = compute_capability(device.cc_major, device.cc_minor);
  if (device.cc_major < 8)
    return fmt::format("the kernels need compute capability 8.0, and {} has {}", device.name, own);
  for (const std::string_view card : {"H100", "H200"})
    if ((" " + device.name + " ").find(fmt::format(" {} ", card)) != std::string::npos) return "";
  return fmt::format("the tests compile the kernels for {}, and they have never run on {}: only on H100 and H200",
                     compiled ? "compute capability " + own : fmt::format("{}, not for {}", fmt::join(all, ", "), own),
                     device.name);
}

}  // namespace nodewright
