#include "cli/options/adapter_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cli/options/refusals.h"
#include "cli/options/whole_number.h"
#include "models/adapters/lora_adapter.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

constexpr int kUsualAdapters = 8;

}  // namespace

void add_adapter_options(CLI::App& command, EngineSettings& settings, SessionOptions& session) {
  command
      .add_option("--adapter,--lora-modules", settings.adapters,
                  "NAME=DIR of a LoRA adapter as PEFT writes it, which requests then name; repeat it for others")
      ->allow_extra_args(false);
  command
      .add_option("--max-adapters,--max-loras", settings.max_adapters,
                  fmt::format("adapters that the device holds at once; 0: none (default: {} where there are any)",
                              kUsualAdapters))
      ->check(whole_number<int, 0>);
  command
      .add_option("--max-adapter-rank,--max-lora-rank", settings.engine.max_adapter_rank,
                  "largest rank of an adapter, for which memory is taken")
      ->check(whole_number<int, 1>)
      ->capture_default_str();
  add_merge_option(command, session);
}

void add_merge_option(CLI::App& command, SessionOptions& session) {
  command
      .add_option("--merge-adapter", session.merged,
                  "NAME=DIR of a LoRA adapter that becomes part of the weights while they are loaded; repeat it for "
                  "others")
      ->allow_extra_args(false);
}

std::vector<NamedFolder> named_folders(const std::string& option, const std::vector<std::string>& words) {
  std::vector<NamedFolder> all;
  const auto refuse = [&](const std::string& word, std::string why) {
    throw Error({.doing = "use " + option, .object = word, .detail = std::move(why), .fault = Fault::usage});
  };
  for (const std::string& word : words) {
    const size_t sign = word.find('=');
    if (sign == std::string::npos || sign == 0 || sign + 1 == word.size()) refuse(word, "it is not NAME=DIR");
    NamedFolder one{word.substr(0, sign), word.substr(sign + 1)};
    if (std::ranges::count(all, one.name, &NamedFolder::name) > 0)
      refuse(word, fmt::format("{} is there twice", one.name));
    all.push_back(std::move(one));
  }
  return all;
}

void check_adapters(const EngineSettings& settings, const SessionOptions& session, const ModelConfig& config) {
  const std::vector<NamedFolder> adapters = named_folders("--adapter", settings.adapters);
  if (!adapters.empty() && settings.max_adapters == 0)
    refuse_pair("--adapter and --max-adapters", "an adapter needs a slot, and --max-adapters is 0",
                "--max-adapters 1, or more");
  for (const NamedFolder& one : adapters) (void)LoraAdapter::open(one.folder, config, settings.engine.max_adapter_rank);
  for (const NamedFolder& one : named_folders("--merge-adapter", session.merged))
    (void)LoraAdapter::open(one.folder, config, std::numeric_limits<int64_t>::max());
}

int adapter_slots(const EngineSettings& settings) {
  const bool may_come = !settings.adapters.empty() || settings.loads_adapters;
  return settings.max_adapters.value_or(may_come ? kUsualAdapters : 0);
}

std::string only_adapter(const EngineSettings& settings) {
  const std::vector<NamedFolder> adapters = named_folders("--adapter", settings.adapters);
  if (adapters.size() > 1)
    throw Error({.doing = "use --adapter",
                 .object = adapters[1].name,
                 .detail = fmt::format("{} is there before it, and this command uses one", adapters[0].name),
                 .advice = "nodewright run or serve, whose requests name theirs",
                 .fault = Fault::usage});
  return adapters.empty() ? "" : adapters[0].name;
}

}  // namespace nodewright::cli
