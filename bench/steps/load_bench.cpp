#include "bench/steps/load_bench.h"

#include <chrono>
#include <cstring>

#include "models/config/model_config.h"
#include "models/weights/checkpoint.h"
#include "models/weights/weights.h"
#include "runtime/event.h"
#include "runtime/memory/memory.h"

namespace nodewright {
namespace {

// Host to device, as fast as it goes: one large pinned buffer, copied again and again.
class Link {
 public:
  Link(Device& device, Stream& stream, uint64_t bytes, int copies)
      : stream_(stream),
        copies_(copies),
        from_(device, "link.from", bytes),
        to_(device, "link.to", bytes),
        start_(device, "link.start", true),
        end_(device, "link.end", true) {
    std::memset(from_.data(), 0x3c, bytes);
  }

  // Bytes per second.
  double sample() {
    start_.record(stream_);
    for (int i = 0; i < copies_; ++i) write_device_async(stream_, to_.address(), from_.data(), to_.bytes(), to_.name());
    end_.record(stream_);
    end_.synchronize();
    return static_cast<double>(to_.bytes()) * copies_ / (end_.ms_since(start_) * 1e-3);
  }

 private:
  Stream& stream_;
  int copies_;
  PinnedBuffer from_;
  DeviceBuffer to_;
  Event start_, end_;
};

}  // namespace

LoadBenchResult bench_load(Device& device, Stream& stream, const std::filesystem::path& model,
                           const LoadBenchOptions& options, const Progress& progress) {
  const ModelConfig config = read_model_config(model);
  LoadBenchResult result;
  const auto load_ms = [&] {
    const auto start = std::chrono::steady_clock::now();
    const Checkpoint checkpoint = Checkpoint::open(model);
    const DecoderWeights weights = DecoderWeights::load(device, stream, checkpoint, config, progress, options.form);
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  result.first_ms = load_ms();
  {
    const Checkpoint checkpoint = Checkpoint::open(model);
    const WeightFootprint footprint = weight_footprint(checkpoint, config);
    result.device_bytes = footprint.bytes;
    for (const TensorInfo* tensor : footprint.tensors) result.file_bytes += tensor->bytes;
  }
  const uint64_t usual = uint64_t{device.driver().is_cpu() ? 16u : 256u} << 20;
  Link link(device, stream, options.link_bytes ? options.link_bytes : usual, options.copies);
  link.sample();  // the first copy touches the pages
  std::vector<double> links, times, rates;
  for (int i = 0; i < options.samples; ++i) {
    links.push_back(link.sample());
    times.push_back(load_ms());
    rates.push_back(static_cast<double>(result.device_bytes) / (times.back() * 1e-3));
  }
  result.link_bytes_per_s = spread_of(links);
  result.load_ms = spread_of(times);
  result.load_bytes_per_s = spread_of(rates);
  result.share = result.load_bytes_per_s.median / result.link_bytes_per_s.median;
  return result;
}

}  // namespace nodewright
