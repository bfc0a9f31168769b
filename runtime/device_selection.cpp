#include "runtime/device_selection.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/cpu_driver/cpu_driver_api.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr const char* kForms =
    "auto, cuda, cuda:N, cuda:N,M, cpu, or cpu: with options joined by commas (cpu:checked,sm80)";

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

// The numbers behind "cuda:".
std::vector<int> ordinals_of(std::string_view spec) {
  std::vector<int> ordinals;
  for (std::string_view left = spec.substr(spec.find(':') + 1); !left.empty();) {
    const size_t comma = left.find(',');
    const std::string_view word = left.substr(0, comma);
    const std::optional<uint64_t> named = number(word);
    if (!named || *named > 1023) refuse(spec, "'" + std::string(word) + "' is no device number");
    ordinals.push_back(static_cast<int>(*named));
    left = comma == std::string_view::npos ? std::string_view() : left.substr(comma + 1);
    if (comma != std::string_view::npos && left.empty()) refuse(spec, "'' is no device number");
  }
  if (ordinals.empty()) refuse(spec, "'' is no device number");
  return ordinals;
}

}  // namespace

int devices_named(std::string_view spec) {
  return spec.starts_with("cuda:") ? static_cast<int>(ordinals_of(spec).size()) : 0;
}

OpenedDevice open_device(std::string_view spec, Observe observe, int count) {
  std::vector<int> ordinals{0};
  OpenedDevice opened;
  if (spec == "cpu" || spec.starts_with("cpu:")) {
    CpuDriverOptions options = cpu_options(spec.size() > 4 ? spec.substr(4) : std::string_view(), spec);
    options.devices = std::max(options.devices, count);
    opened.driver = Driver::load_cpu(options);
  } else if (spec == "auto" || spec == "cuda") {
    opened.driver = Driver::load_cuda();
  } else if (spec.starts_with("cuda:")) {
    ordinals = ordinals_of(spec);
    opened.driver = Driver::load_cuda();
  } else {
    refuse(spec, "no such kind of device");
  }
  if (ordinals.size() > 1 && static_cast<int>(ordinals.size()) != count)
    refuse(spec, "it names " + std::to_string(ordinals.size()) + " devices, and " + std::to_string(count) +
                     (count == 1 ? " is" : " are") + " used");
  while (static_cast<int>(ordinals.size()) < count) ordinals.push_back(ordinals.back() + 1);
  if (observe == Observe::yes) opened.interposer = std::make_unique<Interposer>(*opened.driver);
  opened.device = std::make_unique<Device>(*opened.driver, ordinals[0]);
  for (size_t i = 1; i < ordinals.size(); ++i)
    opened.more.push_back(std::make_unique<Device>(*opened.driver, ordinals[i]));
  opened.current = std::make_unique<ContextGuard>(*opened.device);
  return opened;
}

}  // namespace nodewright
