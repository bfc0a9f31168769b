#include "cli/generate/chat_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <limits>
#include <optional>
#include <string_view>

#include "base/json_file.h"
#include "base/nearest_name.h"
#include "cli/options/request/sampling_options.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

struct RealSetting {
  std::string_view name;
  std::optional<double> SamplingOptions::*value;
};
constexpr std::array kReals = {RealSetting{"temperature", &SamplingOptions::temperature},
                               RealSetting{"top_p", &SamplingOptions::top_p},
                               RealSetting{"min_p", &SamplingOptions::min_p},
                               RealSetting{"repetition_penalty", &SamplingOptions::repetition_penalty},
                               RealSetting{"presence_penalty", &SamplingOptions::presence_penalty},
                               RealSetting{"frequency_penalty", &SamplingOptions::frequency_penalty}};

template <typename Number>
Number number_of(const std::string& name, const std::string& text, const char* kind) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stopped, failure] = std::from_chars(text.data(), end, number);
  if (failure == std::errc() && stopped == end) return number;
  throw Error({.doing = "set " + name,
               .detail = fmt::format("{} is not {}", in_quotes(text), kind),
               .advice = "such a number, or default",
               .fault = Fault::usage});
}

}  // namespace

std::vector<std::string> chat_setting_names() {
  std::vector<std::string> names{"top_k", "seed", "max_tokens"};
  for (const RealSetting& one : kReals) names.emplace_back(one.name);
  return names;
}

void set_by_name(ChatSettings& settings, std::string name, const std::string& value, int64_t usual_tokens) {
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));  // as on the command line: --top-k
  std::ranges::replace(name, '-', '_');
  ChatSettings changed = settings;
  const bool usual = value == "default";
  const auto real = std::ranges::find(kReals, name, &RealSetting::name);
  if (real != kReals.end()) {
    (changed.sampling.*real->value).reset();
    if (!usual) changed.sampling.*real->value = number_of<double>(name, value, "a number");
    if (name == "temperature") changed.sampling.greedy = false;
  } else if (name == "top_k") {
    changed.sampling.top_k.reset();
    if (!usual) changed.sampling.top_k = number_of<uint32_t>(name, value, "a whole number");
  } else if (name == "seed") {
    changed.sampling.seed.reset();
    if (!usual) changed.sampling.seed = number_of<uint64_t>(name, value, "a whole number");
  } else if (name == "max_tokens") {
    changed.max_tokens = usual ? usual_tokens : number_of<uint32_t>(name, value, "a whole number from 1");
    if (changed.max_tokens < 1)
      throw Error({.doing = "set max_tokens", .detail = "0 is less than 1", .fault = Fault::usage});
  } else {
    const std::string near = nearest_name(name, chat_setting_names());
    throw Error({.doing = "set",
                 .object = name,
                 .detail = "there is no such setting",
                 .advice = near.empty() ? "/set, which lists all" : near,
                 .fault = Fault::usage});
  }
  check(changed.sampling);
  settings = changed;
}

std::string settings_words(const ChatSettings& settings, const GenerationDefaults& defaults) {
  const SamplingOptions& sampling = settings.sampling;
  const Sampling next = sampling_of(sampling, defaults);
  const ChoiceOptions penalties = penalties_of(sampling, defaults);
  std::string text;
  const auto add = [&text](std::string_view name, bool was_set, const auto& value, bool of_checkpoint) {
    const char* whose = was_set ? "" : of_checkpoint ? " (the checkpoint's)" : " (usual)";
    text += fmt::format("{:<18} {}{}\n", name, value, whose);
  };
  const bool greedy = sampling.greedy;
  add("temperature", sampling.temperature || greedy, next.temperature, defaults.temperature || defaults.sample);
  add("top_p", sampling.top_p || greedy, next.top_p, defaults.top_p.has_value());
  add("min_p", sampling.min_p || greedy, next.min_p, defaults.min_p.has_value());
  add("repetition_penalty", sampling.repetition_penalty || greedy, penalties.repetition_penalty,
      defaults.repetition_penalty.has_value());
  add("presence_penalty", sampling.presence_penalty.has_value(), penalties.presence_penalty, false);
  add("frequency_penalty", sampling.frequency_penalty.has_value(), penalties.frequency_penalty, false);
  add("top_k", sampling.top_k || greedy, next.top_k, defaults.top_k.has_value());
  text += sampling.seed ? fmt::format("{:<18} {}\n", "seed", *sampling.seed) : fmt::format("{:<18} drawn\n", "seed");
  return text + fmt::format("{:<18} {}\n", "max_tokens", settings.max_tokens);
}

}  // namespace nodewright::cli
