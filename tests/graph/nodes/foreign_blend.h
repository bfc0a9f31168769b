// foreign_blend.cu for tests: loaded from a cubin on a GPU, a function of the host on the CPU driver.
#pragma once

#include <utility>
#include <vector>

#include "graph/graph_builder.h"
#include "runtime/compilers/nvrtc.h"
#include "tests/graph/kernel_text.h"

namespace nodewright {

struct ForeignSource {
  const uint32_t* words;
  uint64_t count;
};

inline void foreign_blend_on_host(uint8_t shift, ForeignSource a, const uint32_t* key, uint32_t salt, uint32_t* y,
                                  uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) y[i] = y[i] * 31u + ((a.words[i % a.count] << shift) ^ salt) + key[0];
}

// The kernel of tests/graph/kernels/<name>.cu.
inline ForeignKernel load_foreign(Device& device, const std::string& name, const HostStandIn& on_host) {
  std::vector<std::byte> cubin;
  if (!device.driver().is_cpu()) {
    const DeviceProperties& properties = device.properties();
    const NvrtcSource source{name + ".cu", kernel_text(name + ".cu"), {}};
    cubin = Nvrtc::load()->compile(source, nvrtc_options(properties.cc_major, properties.cc_minor)).cubin;
  }
  return load_kernel(device, cubin, name, on_host);
}
inline ForeignKernel load_foreign_blend(Device& device) {
  return load_foreign(device, "foreign_blend", foreign_blend_on_host);
}

// Another function of the same parameters: y = y * 17 + ((a << shift) ^ salt) + key[0]
inline void foreign_other_on_host(uint8_t shift, ForeignSource a, const uint32_t* key, uint32_t salt, uint32_t* y,
                                  uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) y[i] = y[i] * 17u + ((a.words[i % a.count] << shift) ^ salt) + key[0];
}

// `a` as the kernel takes it.
inline auto foreign_source(const View<uint32_t>& a) {
  return with_uses<"a">(ForeignSource{a.data, a.count}, reads<"words">(a));
}

// y = y * 31 + ((a << shift) ^ salt) + key[0]
inline auto launch_foreign_blend(GraphBuilder& g, std::string_view name, const ForeignKernel& kernel,
                                 const LaunchShape& shape, const View<uint32_t>& a, const View<uint32_t>& key,
                                 const View<uint32_t>& y, uint32_t salt, uint8_t shift = 3,
                                 const NodeOptions& options = {}) {
  return g.launch(name, kernel, shape, options, shift, foreign_source(a), reads<"key">(key), value<"salt">(salt),
                  updates<"y">(y), y.count);
}

using ForeignBlendNode =
    decltype(launch_foreign_blend(std::declval<GraphBuilder&>(), "", std::declval<ForeignKernel&>(), LaunchShape(),
                                  View<uint32_t>(), View<uint32_t>(), View<uint32_t>(), 0));

}  // namespace nodewright
