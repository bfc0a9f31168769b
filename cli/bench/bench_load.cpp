// nodewright bench load: how fast a model's files reach the device, beside the link.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/steps/load_bench.h"
#include "cli/bench/bench.h"
#include "cli/output/progress_bar.h"
#include "cli/report/bench_record.h"
#include "cli/session.h"
#include "engine/byte_size.h"
#include "runtime/device_selection.h"

namespace nodewright::cli {
namespace {

struct LoadOptions {
  std::filesystem::path model;
  std::string device = "auto";
  LoadBenchOptions load;
  uint64_t chunk_mib = load.form.chunk_bytes >> 20;
  RecordOptions record;
};

int bench_load_command(LoadOptions options) {
  options.load.form.chunk_bytes = options.chunk_mib << 20;
  check_model_folder(options.model);
  const OpenedDevice opened = open_device(options.device);
  Stream stream(*opened.device, "load");
  ProgressBar bar("loading " + options.model.string(), ProgressBar::Unit::bytes);
  const LoadBenchResult r = bench_load(*opened.device, stream, options.model, options.load,
                                       {.report = [&](uint64_t done, uint64_t total) { bar.show(done, total); }});
  bar.wipe();
  fmt::print("link   {}/s from pinned memory (median of {}, {}/s to {}/s)\n", byte_size_text(r.link_bytes_per_s.median),
             options.load.samples, byte_size_text(r.link_bytes_per_s.least), byte_size_text(r.link_bytes_per_s.most));
  fmt::print("load   {} in {:.2f} ms: {}/s, {:.1f} % of the link ({:.2f} to {:.2f} ms, out of the page cache)\n",
             byte_size_text(r.device_bytes), r.load_ms.median, byte_size_text(r.load_bytes_per_s.median), r.share * 100,
             r.load_ms.least, r.load_ms.most);
  fmt::print("first  {:.2f} ms, for {} of files\n", r.first_ms, byte_size_text(r.file_bytes));
  if (options.record.out.empty()) return 0;
  nlohmann::ordered_json file = measurement_record(*opened.device, options.record, options.model);
  file["samples"] = options.load.samples;
  file["chunk_mib"] = options.chunk_mib;
  file["chunks"] = options.load.form.chunks;
  file["readers"] = options.load.form.readers;
  file["device_bytes"] = r.device_bytes;
  file["file_bytes"] = r.file_bytes;
  file["link_bytes_per_s"] = spread_json(r.link_bytes_per_s);
  file["load_ms"] = spread_json(r.load_ms);
  file["load_bytes_per_s"] = spread_json(r.load_bytes_per_s);
  file["share_of_link"] = r.share;
  file["first_ms"] = r.first_ms;
  write_record(options.record, file);
  return 0;
}

}  // namespace

void add_bench_load(CLI::App& bench, Action& chosen) {
  auto options = std::make_shared<LoadOptions>();
  CLI::App* load = bench.add_subcommand("load", "Time loading a model beside the link to the device");
  add_model_option(*load, options->model, "Hugging Face checkpoint folder, or OWNER/NAME in its cache")->required();
  load->add_option("--device", options->device, kDeviceHelp)->capture_default_str();
  load->add_option("--samples", options->load.samples, "of each figure")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  load->add_option("--chunk-mib", options->chunk_mib, "size of a pinned chunk")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  load->add_option("--chunks", options->load.form.chunks, "pinned chunks")
      ->check(CLI::Range(2, 64))
      ->capture_default_str();
  load->add_option("--readers", options->load.form.readers, "threads that read")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  add_record_options(*load, options->record);
  load->callback([options, &chosen] { chosen = [options] { return bench_load_command(*options); }; });
}

}  // namespace nodewright::cli
