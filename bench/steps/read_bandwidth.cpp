#include "bench/steps/read_bandwidth.h"

#include "kernels_src/read_stream.h"

namespace nodewright {

uint64_t usual_read_bytes(const Device& device) { return uint64_t{device.driver().is_cpu() ? 1u : 64u} << 26; }

ReadBandwidth::ReadBandwidth(Device& device, const Stream& stream, KernelCache& kernels, uint64_t bytes)
    : stream_(stream),
      data_(device, "read_stream.data", bytes),
      sum_(device, "read_stream.sum", sizeof(uint32_t)),
      start_(device, "read_stream.start", true),
      end_(device, "read_stream.end", true) {
  fill_device(device, data_.address(), std::byte{0x3c}, bytes, data_.name());
  GraphBuilder g(device, "read_stream");
  g.declare(range_of(data_, "weight"), {.live_in = true});
  g.declare(range_of(sum_, "output"), {.live_out = true});
  const auto kernel =
      kernels.kernel<ReadStream>("read_stream", read_stream_shape(static_cast<unsigned>(device.properties().sm_count)));
  g.launch("read", kernel, {.data = weight_of<uint32_t>(data_), .sum = view_of<uint32_t>(sum_)});
  plan_ = std::move(g).finish(EdgePolicy::full);
}

double ReadBandwidth::sample() {
  start_.record(stream_);
  run_eager(plan_, stream_);
  end_.record(stream_);
  end_.synchronize();
  return static_cast<double>(data_.bytes()) / (end_.ms_since(start_) * 1e-3);
}

}  // namespace nodewright
