#include "bench/graph/foreign_chain.h"

#include <fmt/format.h>

#include "runtime/compilers/nvrtc.h"

namespace nodewright {
namespace {

constexpr const char* kForeignSaxpy = R"(
extern "C" __global__ void foreign_saxpy(const float* x, float* y, float a, unsigned long long n) {
  const unsigned long long i = blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
)";

void foreign_saxpy(const float* x, float* y, float a, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) y[i] += a * x[i];
}

ForeignKernel load_foreign_saxpy(Device& device) {
  std::vector<std::byte> cubin;
  if (!device.driver().is_cpu()) {
    const DeviceProperties& properties = device.properties();
    cubin =
        Nvrtc::load()
            ->compile({"foreign_saxpy.cu", kForeignSaxpy, {}}, nvrtc_options(properties.cc_major, properties.cc_minor))
            .cubin;
  }
  return load_kernel(device, cubin, "foreign_saxpy", foreign_saxpy);
}

}  // namespace

ForeignChain::ForeignChain(Device& device, const LaunchShape& shape, int nodes)
    : device_(device),
      shape_(shape),
      kernel_(load_foreign_saxpy(device)),
      x_(device, "foreign.x", shape.blocks() * shape.threads() * sizeof(float)),
      y_(device, "foreign.y", x_.bytes()) {
  for (int i = 0; i < nodes; ++i) names_.push_back(fmt::format("n{}", i));
  reset();
}

std::vector<ForeignChain::Node> ForeignChain::add_to(GraphBuilder& g, float a) const {
  g.declare(x_, {.live_in = true}, "input");
  g.declare(y_, {.live_in = true, .live_out = true}, "output");
  g.reserve(names_.size());
  std::vector<Node> nodes;
  nodes.reserve(names_.size());
  const View<float> x = view_of<float>(x_), y = view_of<float>(y_);
  for (const std::string& name : names_) nodes.push_back(launch_foreign_saxpy(g, name, kernel_, shape_, x, y, a));
  return nodes;
}

void ForeignChain::reset() {
  const std::vector<float> ones(x_.bytes() / sizeof(float), 1.0f);
  for (const DeviceBuffer* buffer : {&x_, &y_})
    write_view<float>(device_, view_of<float>(*buffer), ones, buffer->name());
}

std::vector<float> ForeignChain::values() const {
  std::vector<float> values(y_.bytes() / sizeof(float));
  read_view<float>(device_, values, view_of<float>(y_), y_.name());
  return values;
}

}  // namespace nodewright
