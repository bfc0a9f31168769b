// nodewright bench load: how fast a model's files reach the device, beside the link.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/load_bench.h"
#include "cli/bench.h"
#include "cli/bench_record.h"
#include "cli/output_file.h"
#include "cli/progress_bar.h"
#include "cli/session.h"
#include "runtime/device_selection.h"

namespace nodewright::cli {
namespace {

struct LoadOptions {
  std::filesystem::path model;
  std::string device = "auto";
  LoadBenchOptions load;
  uint64_t chunk_mib = load.form.chunk_bytes >> 20;
  std::filesystem::path out;
  std::string commit = "unknown";  // of the program, for the record
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
  fmt::print("link   {:.2f} GB/s from pinned memory (median of {}, {:.2f} to {:.2f})\n",
             r.link_bytes_per_s.median / 1e9, options.load.samples, r.link_bytes_per_s.least / 1e9,
             r.link_bytes_per_s.most / 1e9);
  fmt::print(
      "load   {:.1f} MB in {:.2f} ms: {:.2f} GB/s, {:.1f} % of the link ({:.2f} to {:.2f} ms, out of the page cache)\n",
      static_cast<double>(r.device_bytes) / 1e6, r.load_ms.median, r.load_bytes_per_s.median / 1e9, r.share * 100,
      r.load_ms.least, r.load_ms.most);
  fmt::print("first  {:.2f} ms, for {:.1f} MB of files\n", r.first_ms, static_cast<double>(r.file_bytes) / 1e6);
  if (options.out.empty()) return 0;
  nlohmann::ordered_json file = measurement_record(*opened.device, options.commit);
  file["model"] = options.model.filename().string();
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
  write_whole_file(options.out, file.dump(2) + "\n");
  return 0;
}

}  // namespace

void add_bench_load(CLI::App& bench, Action& chosen) {
  auto options = std::make_shared<LoadOptions>();
  CLI::App* load = bench.add_subcommand("load", "Time loading a model beside the link to the device");
  load->add_option("--model", options->model, "Hugging Face checkpoint folder")->required();
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
  load->add_option("--out", options->out, "JSON file");
  load->add_option("--commit", options->commit, "what the JSON file calls the program's commit");
  load->callback([options, &chosen] { chosen = [options] { return bench_load_command(*options); }; });
}

}  // namespace nodewright::cli
