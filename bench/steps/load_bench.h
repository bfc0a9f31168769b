// Times a model's way from its files to the device beside the link that it has to cross.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "bench/spread.h"
#include "models/weights/weight_upload.h"
#include "runtime/device.h"
#include "runtime/stream.h"

namespace nodewright {

struct LoadBenchOptions {
  int samples = 5;  // of each figure, taking turns; medians are reported
  uint64_t link_bytes =
      0;            // of the pinned buffer that the link is measured with; 0: 256 MiB on a GPU, 16 MiB on the CPU
  UploadForm form;  // of the loads
  int copies = 8;   // of it a sample, back to back
};

struct LoadBenchResult {
  uint64_t device_bytes = 0;  // that a load moves to the device
  uint64_t file_bytes = 0;    // of the tensors it reads
  Spread link_bytes_per_s;    // pinned memory to device, nothing else
  double first_ms = 0;        // the load before the samples: what the page cache lacked is read from the disk
  Spread load_ms;             // DecoderWeights::load: opening the files, memory, pinning, reading, copying
  Spread load_bytes_per_s;    // device_bytes over that time
  double share = 0;           // of the link: median over median
};

// Every load is freed before the next. `progress` hears of each.
LoadBenchResult bench_load(Device& device, Stream& stream, const std::filesystem::path& model,
                           const LoadBenchOptions& options, const Progress& progress);

}  // namespace nodewright
