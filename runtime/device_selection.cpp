#include "runtime/device_selection.h"

#include <charconv>
#include <functional>
#include <optional>

#include "runtime/cpu_driver/cpu_driver_api.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr const char* kForms = "auto, cuda, cuda:N, cpu, or cpu: with options joined by commas (cpu:checked,sm80)";

std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The words after "cpu:". A word that ends in '=' takes a number.
struct CpuOptionWord {
  std::string_view word;
  void (*apply)(CpuDriverOptions&, uint64_t);
};
constexpr CpuOptionWord kCpuOptionWords[] = {
    {"checked", [](CpuDriverOptions& o, uint64_t) { o.check_accesses = o.poison = true; }},
    {"sm80", [](CpuDriverOptions& o, uint64_t) { o.compute_capability = 80; }},
    {"sm90", [](CpuDriverOptions& o, uint64_t) { o.compute_capability = 90; }},
    {"forward", [](CpuDriverOptions& o, uint64_t) { o.schedule = CpuSchedule::forward; }},
    {"reverse", [](CpuDriverOptions& o, uint64_t) { o.schedule = CpuSchedule::reverse; }},
    {"immediate", [](CpuDriverOptions& o, uint64_t) { o.deferred = false; }},
    {"seed=", [](CpuDriverOptions& o, uint64_t n) { o.schedule = CpuSchedule::seeded, o.seed = n; }},
    {"devices=", [](CpuDriverOptions& o, uint64_t n) { o.devices = static_cast<int>(n); }},
    {"sms=", [](CpuDriverOptions& o, uint64_t n) { o.sm_count = static_cast<int>(n); }},
    {"workers=", [](CpuDriverOptions& o, uint64_t n) { o.workers = static_cast<int>(n); }},
    {"memory_mb=", [](CpuDriverOptions& o, uint64_t n) { o.memory_bytes = n << 20; }},
    {"timeout_ms=", [](CpuDriverOptions& o, uint64_t n) { o.launch_timeout_ms = n; }},
};

[[noreturn]] void refuse(std::string_view spec, const std::string& detail) {
  throw Error({.doing = "understand device",
               .object = std::string(spec),
               .detail = detail,
               .advice = kForms,
               .fault = Fault::usage});
}

void apply_cpu_word(CpuDriverOptions& options, std::string_view word, std::string_view spec) {
  for (const CpuOptionWord& known : kCpuOptionWords) {
    if (!known.word.ends_with('=')) {
      if (word == known.word) return known.apply(options, 0);
      continue;
    }
    if (!word.starts_with(known.word)) continue;
    const std::optional<uint64_t> value = number(word.substr(known.word.size()));
    if (!value) refuse(spec, "'" + std::string(word) + "' needs a whole number");
    return known.apply(options, *value);
  }
  std::string all;
  for (const CpuOptionWord& known : kCpuOptionWords)
    all += (all.empty() ? "" : ", ") + std::string(known.word) + (known.word.ends_with('=') ? "N" : "");
  refuse(spec, "the CPU driver has no option '" + std::string(word) + "'; it has " + all);
}

CpuDriverOptions cpu_options(std::string_view words, std::string_view spec) {
  CpuDriverOptions options;
  while (!words.empty()) {
    const size_t comma = words.find(',');
    apply_cpu_word(options, words.substr(0, comma), spec);
    words = comma == std::string_view::npos ? std::string_view() : words.substr(comma + 1);
  }
  return options;
}

}  // namespace

OpenedDevice open_device(std::string_view spec, Observe observe) {
  int ordinal = 0;
  OpenedDevice opened;
  if (spec == "cpu" || spec.starts_with("cpu:")) {
    opened.driver = Driver::load_cpu(cpu_options(spec.size() > 4 ? spec.substr(4) : std::string_view(), spec));
  } else if (spec == "auto" || spec == "cuda") {
    opened.driver = Driver::load_cuda();
  } else if (spec.starts_with("cuda:")) {
    const std::optional<uint64_t> named = number(spec.substr(5));
    if (!named || *named > 1023) refuse(spec, "'" + std::string(spec.substr(5)) + "' is no device number");
    ordinal = static_cast<int>(*named);
    opened.driver = Driver::load_cuda();
  } else {
    refuse(spec, "no such kind of device");
  }
  if (observe == Observe::yes) opened.interposer = std::make_unique<Interposer>(*opened.driver);
  opened.device = std::make_unique<Device>(*opened.driver, ordinal);
  opened.current = std::make_unique<ContextGuard>(*opened.device);
  return opened;
}

}  // namespace nodewright
