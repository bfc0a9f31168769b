// nodewright doctor: what this machine has, what is missing, and how to mend it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "base/visible_text.h"
#include "cli/command.h"
#include "cli/output/error_words.h"
#include "cli/output/standard_output.h"
#include "engine/byte_size.h"
#include "models/lowering/device_forms.h"
#include "models/tuning/step_tuning.h"
#include "runtime/calls/cpu_driver_api.h"
#include "runtime/compilers/host_compiler.h"
#include "runtime/compilers/nvrtc.h"
#include "runtime/device_selection.h"
#include "runtime/error.h"
#include "runtime/kernels/kernel_cache.h"
#include "runtime/libraries/matmul_library.h"

namespace nodewright::cli {
namespace {

const std::string kNextLine = "\n" + std::string(24, ' ');  // below what a line of the report says

// One line of the report. Returns whether it went well.
bool report(const char* what, const std::function<std::string()>& look) {
  try {
    write_standard_output(fmt::format("ok       {:<14} {}\n", what, visible_text(look())));
    return true;
  } catch (const Error& error) {
    write_standard_output(fmt::format("missing  {:<14} {}\n", what, visible_text(error_words(error))));
    return false;
  }
}

std::string describe(const OpenedDevice& opened) {
  const DeviceProperties& p = opened.device->properties();
  return fmt::format("{}, compute capability {}.{}, {} SMs, {}, {} free", p.name, p.cc_major, p.cc_minor, p.sm_count,
                     byte_size_text(p.total_bytes), byte_size_text(opened.device->free_bytes()));
}

// What `nodewright tune` has left, which all later commands use.
std::string tunings_found() {
  const std::filesystem::path folder = tuning_file({}).parent_path();
  std::string all;
  std::error_code unused;
  for (const auto& file : std::filesystem::directory_iterator(folder, unused)) {
    const Tuning tuning = read_tuning(file.path());
    all += fmt::format("{}{}: {}, {}", kNextLine, file.path().filename().string(), tuning.key.device, tuning.key.model);
  }
  if (all.empty()) return "none of your own (nodewright tune makes one)";
  return fmt::format("in {}; nodewright tune --remove takes one away{}", folder.string(), all);
}

// The driver's calls that only some versions of CUDA have.
std::string optional_calls(const char* driver, const char* spec) {
  const OpenedDevice opened = open_device(spec);
  std::string has, lacks;
  for (const Driver::OptionalEntry& entry : opened.driver->optional_entries()) {
    std::string& list = entry.present ? has : lacks;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", entry.name);
    if (!entry.present) list += fmt::format(" (CUDA {}.{})", entry.version / 1000, entry.version % 1000 / 10);
  }
  return fmt::format("{}: {}{}", driver, has.empty() ? "none" : has, lacks.empty() ? "" : "; lacks " + lacks);
}

// The forms of kernels that the device gets, and how far they are tried there.
std::string forms_of(const char* driver, const char* spec) {
  const OpenedDevice opened = open_device(spec);
  const DeviceProperties& device = opened.device->properties();
  const bool emulated = opened.driver->is_cpu();
  std::vector<std::string> lines = device_forms(device, emulated);
  if (emulated) lines.emplace_back("kernels: their sources, compiled by the host compiler; tested so");
  if (std::string why = untried_on(device); !emulated && !why.empty()) lines.push_back("untried: " + why);
  return fmt::format("{}, in steps of a Llama-3.2-1B without tuning{}{}", driver, kNextLine,
                     fmt::join(lines, kNextLine));
}

int doctor() {
  bool can_run = false;
  can_run |= report("CUDA device", [] {
    const OpenedDevice opened = open_device("cuda");
    const int version = opened.driver->version();
    return fmt::format("{}; driver for CUDA {}.{} ({})", describe(opened), version / 1000, version % 1000 / 10,
                       opened.driver->path());
  });
  if (can_run) {
    report("optional calls", [] { return optional_calls("CUDA driver", "cuda"); });
    report("forms", [] { return forms_of("CUDA device", "cuda"); });
  }
  const bool nvrtc = report("NVRTC", [] {
    const auto n = Nvrtc::load();
    return fmt::format("{}.{} ({})", n->major(), n->minor(), n->path());
  });
  can_run = can_run && nvrtc;
  report("cuBLASLt", [] {  // needed by library products on a GPU alone
    const auto library = MatmulLibrary::load();
    const size_t v = library->version();  // 130200 is 13.2.0
    return fmt::format("{}.{}.{} ({})", v / 10000, v / 100 % 100, v % 100, library->path());
  });
  const bool cpu_device = report("CPU driver", [] {
    const OpenedDevice opened = open_device("cpu");
    return fmt::format("{} ({})", describe(opened), opened.driver->path());
  });
  if (cpu_device) {
    report("optional calls", [] { return optional_calls("CPU driver", "cpu"); });
    report("forms", [] { return forms_of("CPU driver", "cpu"); });
  }
  const bool compiler = report("host compiler", [] { return host_compiler_path() + " (for --device cpu)"; });
  report("kernel cache", [] {
    const OpenedDevice opened = open_device("cpu");
    const KernelCache cache(*opened.device);
    if (!cache.stats().disk_problem.empty())
      throw Error({.doing = "keep compiled kernels",
                   .detail = cache.stats().disk_problem,
                   .advice =
                       "set NODEWRIGHT_CACHE to a folder that you can write, and nobody else; until then every start "
                       "compiles"});
    return cache.folder().string();
  });
  report("tunings", tunings_found);
  const bool cpu = cpu_device && compiler;
  fmt::print("\n{}\n", can_run ? "ready: --device cuda" : cpu ? "ready: --device cpu only" : "nothing can run here");
  return can_run || cpu ? 0 : 1;
}

}  // namespace

void add_doctor(CLI::App& app, Action& chosen) {
  app.add_subcommand("doctor", "Say what this machine has and what is missing")->callback([&chosen] {
    chosen = doctor;
  });
}

}  // namespace nodewright::cli
