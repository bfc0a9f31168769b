#include "runtime/device_selection.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/calls/cpu_driver_api.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr const char* kForms =
    "auto, cuda, cuda:N, cpu, or cpu: with options joined by commas (cpu:checked,sm80); "
    "where several are used cuda:0,2";

std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The words after "cpu:". A word that ends in '=' takes a number in its range. A subject has one word.
struct CpuOptionWord {
  std::string_view word, subject;
  void (*apply)(CpuDriverOptions&, uint64_t);
  uint64_t least = 0, most = UINT64_MAX;
};
constexpr uint64_t kMostThreads = 1024;  // also of multiprocessors: far above those of any machine and GPU
constexpr CpuOptionWord kCpuOptionWords[] = {
    {"checked", "checks", [](CpuDriverOptions& o, uint64_t) { o.check_accesses = o.poison = true; }},
    {"sm80", "architecture", [](CpuDriverOptions& o, uint64_t) { o.compute_capability = 80; }},
    {"sm90", "architecture", [](CpuDriverOptions& o, uint64_t) { o.compute_capability = 90; }},
    {"forward", "order", [](CpuDriverOptions& o, uint64_t) { o.schedule = CpuSchedule::forward; }},
    {"reverse", "order", [](CpuDriverOptions& o, uint64_t) { o.schedule = CpuSchedule::reverse; }},
    {"immediate", "start", [](CpuDriverOptions& o, uint64_t) { o.deferred = false; }},
    {"seed=", "order", [](CpuDriverOptions& o, uint64_t n) { o.schedule = CpuSchedule::seeded, o.seed = n; }},
    {"devices=", "devices", [](CpuDriverOptions& o, uint64_t n) { o.devices = static_cast<int>(n); }, 1,
     kMostCpuDevices},
    {"sms=", "multiprocessors", [](CpuDriverOptions& o, uint64_t n) { o.sm_count = static_cast<int>(n); }, 1,
     kMostThreads},
    {"workers=", "threads", [](CpuDriverOptions& o, uint64_t n) { o.workers = static_cast<int>(n); }, 1, kMostThreads},
    {"memory_mb=", "memory", [](CpuDriverOptions& o, uint64_t n) { o.memory_bytes = n << 20; }, 1, uint64_t{1} << 24},
    {"timeout_ms=", "limit", [](CpuDriverOptions& o, uint64_t n) { o.launch_timeout_ms = n; }, 1, UINT32_MAX},
};

[[noreturn]] void refuse(std::string_view spec, const std::string& detail) {
  throw Error({.doing = "understand device",
               .object = std::string(spec),
               .detail = detail,
               .advice = kForms,
               .fault = Fault::usage});
}

const CpuOptionWord& cpu_option_word(std::string_view word, std::string_view spec) {
  for (const CpuOptionWord& known : kCpuOptionWords)
    if (known.word.ends_with('=') ? word.starts_with(known.word) : word == known.word) return known;
  std::string all;
  for (const CpuOptionWord& known : kCpuOptionWords)
    all += (all.empty() ? "" : ", ") + std::string(known.word) + (known.word.ends_with('=') ? "N" : "");
  refuse(spec, "the CPU driver has no option '" + std::string(word) + "'; it has " + all);
}

void apply_cpu_word(CpuDriverOptions& options, const CpuOptionWord& known, std::string_view word,
                    std::string_view spec) {
  if (!known.word.ends_with('=')) return known.apply(options, 0);
  const std::optional<uint64_t> value = number(word.substr(known.word.size()));
  if (!value) refuse(spec, "'" + std::string(word) + "' needs a whole number");
  if (*value < known.least || *value > known.most)
    refuse(spec, "'" + std::string(word) + "' is outside " + std::to_string(known.least) + " to " +
                     std::to_string(known.most));
  known.apply(options, *value);
}

CpuDriverOptions cpu_options(std::string_view words, std::string_view spec) {
  CpuDriverOptions options;
  std::vector<std::pair<std::string_view, std::string_view>> given;  // subject and word
  for (size_t begin = 0; begin <= words.size();) {
    const size_t comma = std::min(words.find(',', begin), words.size());
    const std::string_view word = words.substr(begin, comma - begin);
    const CpuOptionWord& known = cpu_option_word(word, spec);
    for (const auto& [subject, other] : given)
      if (subject == known.subject)
        refuse(spec, "'" + std::string(other) + "' and '" + std::string(word) + "' contradict each other");
    given.emplace_back(known.subject, word);
    apply_cpu_word(options, known, word, spec);
    begin = comma + 1;
  }
  return options;
}

int cuda_ordinal(std::string_view word, std::string_view spec) {
  const std::optional<uint64_t> named = number(word);
  if (!named || *named > 1023) refuse(spec, "'" + std::string(word) + "' is no device number");
  return static_cast<int>(*named);
}

// "0,2" of "cuda:0,2".
std::vector<int> cuda_ordinals(std::string_view words, std::string_view spec) {
  std::vector<int> ordinals;
  for (size_t begin = 0; begin <= words.size();) {
    const size_t comma = std::min(words.find(',', begin), words.size());
    const int ordinal = cuda_ordinal(words.substr(begin, comma - begin), spec);
    if (std::ranges::count(ordinals, ordinal) > 0)
      refuse(spec, "device " + std::to_string(ordinal) + " is there twice");
    ordinals.push_back(ordinal);
    begin = comma + 1;
  }
  return ordinals;
}

bool is_cpu_spec(std::string_view spec) { return spec == "cpu" || spec.starts_with("cpu:"); }

CpuDriverOptions options_of_spec(std::string_view spec) {
  return spec == "cpu" ? CpuDriverOptions{} : cpu_options(spec.substr(4), spec);
}

}  // namespace

OpenedDevice open_device(std::string_view spec, Observe observe) {
  const DeviceChoice choice = choose_devices(spec, 1, "one device");
  return open_device(open_driver(choice.driver), choice.ordinals.front(), observe);
}

DeviceChoice choose_devices(std::string_view spec, int count, std::string_view for_what) {
  DeviceChoice choice;
  size_t named = static_cast<size_t>(count);
  if (is_cpu_spec(spec)) {
    choice.driver = spec;
    if (const int devices = options_of_spec(spec).devices; devices < count)
      refuse(spec, "the CPU driver has " + std::to_string(devices) + (devices == 1 ? " device" : " devices") +
                       ", and " + std::string(for_what) + " needs " + std::to_string(count) +
                       " (cpu:devices=" + std::to_string(count) + ")");
  } else if (spec == "auto" || spec == "cuda") {
    choice.driver = "cuda";
  } else if (spec.starts_with("cuda:")) {
    choice.driver = "cuda";
    choice.ordinals = cuda_ordinals(spec.substr(5), spec);
    named = choice.ordinals.size();
  } else {
    refuse(spec, "no such kind of device");
  }
  if (named != static_cast<size_t>(count))
    refuse(spec, "it names " + std::to_string(named) + (named == 1 ? " device" : " devices") + ", and " +
                     std::string(for_what) + " needs " + std::to_string(count));
  for (int next = static_cast<int>(choice.ordinals.size()); next < count; ++next) choice.ordinals.push_back(next);
  return choice;
}

std::shared_ptr<Driver> open_driver(std::string_view spec) {
  return is_cpu_spec(spec) ? Driver::load_cpu(options_of_spec(spec)) : Driver::load_cuda();
}

OpenedDevice open_device(std::shared_ptr<Driver> driver, int ordinal, Observe observe) {
  OpenedDevice opened;
  opened.driver = std::move(driver);
  if (observe == Observe::yes) opened.interposer = std::make_unique<Interposer>(*opened.driver);
  opened.device = std::make_unique<Device>(*opened.driver, ordinal);
  opened.current = std::make_unique<ContextGuard>(*opened.device);
  return opened;
}

OpenedDevice open_devices(std::shared_ptr<Driver> driver, std::span<const int> ordinals, Observe observe) {
  OpenedDevice opened = open_device(std::move(driver), ordinals.front(), observe);
  for (const int ordinal : ordinals.subspan(1))
    opened.more.push_back(std::make_unique<Device>(*opened.driver, ordinal));
  return opened;
}

int devices_named(std::string_view spec) {
  return spec.starts_with("cuda:") ? static_cast<int>(std::ranges::count(spec, ',')) + 1 : 0;
}

}  // namespace nodewright
