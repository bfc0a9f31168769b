#include "cli/options/familiar_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>

#include "base/json_depth.h"
#include "base/json_file.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

using Words = std::vector<std::string>;

[[noreturn]] void refuse_familiar(const std::string& option, std::string detail, std::string advice) {
  throw Error(
      {.doing = "use " + option, .detail = std::move(detail), .advice = std::move(advice), .fault = Fault::usage});
}

// Translates another program's option into ours. `value` is empty for a flag.
using Put = Words (*)(const std::string& option, const std::string& ours, const std::string& value);

Words as_it_is(const std::string&, const std::string& ours, const std::string& value) { return {ours + "=" + value}; }

Words flag(const std::string&, const std::string& ours, const std::string&) { return {ours}; }

Words share_of_memory(const std::string& option, const std::string& ours, const std::string& value) {
  double share = 0;
  const char* end = value.data() + value.size();
  const auto [stopped, failure] = std::from_chars(value.data(), end, share);
  if (failure != std::errc() || stopped != end || !(share > 0 && share <= 1))
    refuse_familiar(option, fmt::format("{} is not a share above 0 and up to 1", in_quotes(value)),
                    "0.9, or --memory-limit 8GB");
  return {ours + "=" + value};
}

// llama.cpp's 0: the model's own.
Words context_or_whole(const std::string&, const std::string& ours, const std::string& value) {
  return value == "0" ? Words{} : Words{ours + "=" + value};
}

Words count_of_tokens(const std::string& option, const std::string& ours, const std::string& value) {
  if (value.starts_with('-'))
    refuse_familiar(option, fmt::format("{} is no number of tokens", in_quotes(value)),
                    "the most that there may be, as --max-tokens 1000");
  return {ours + "=" + value};
}

Words template_variables(const std::string& option, const std::string& ours, const std::string& value) {
  if (nests_too_deep(value))
    refuse_familiar(option, fmt::format("its value nests deeper than {} levels", kDeepestRequestJson), "{}");
  const auto read = nlohmann::ordered_json::parse(value, nullptr, false);
  if (!read.is_object())
    refuse_familiar(option, fmt::format("{} is not a JSON object", in_quotes(value)),
                    R"('{"enable_thinking": false}')");
  Words words;
  for (const auto& [name, one] : read.items()) {
    words.push_back(ours);
    words.push_back(name + "=" + one.dump());
  }
  return words;
}

struct Renamed {
  std::string_view names;  // of others, with spaces
  const char* ours;        // of a command that has it; elsewhere the word stays
  Put put = as_it_is;
};
constexpr Renamed kRenamed[] = {
    {"--gpu-memory-utilization", "--memory-limit", share_of_memory},
    {"--max-num-batched-tokens", "--step-tokens"},
    {"-b --batch-size", "--step-tokens"},
    {"-c --ctx-size", "--max-context", context_or_whole},
    {"-np --parallel", "--max-batch"},
    {"--n-predict --predict", "--max-tokens", count_of_tokens},
    {"--temp", "--temperature"},
    {"--repeat-penalty", "--repetition-penalty"},
    {"--presence-penalty", "--presence-penalty"},
    {"-s", "--seed"},
    {"-sys --system-prompt", "--system"},
    {"-a --alias", "--served-model-name"},
    {"-tp", "--tp"},
    {"-pp", "--pp"},
    {"-dp", "--replicas"},
    {"--no-enable-prefix-caching", "--no-prefix-cache", flag},
    {"--default-chat-template-kwargs --chat-template-kwargs", "--template-arg", template_variables},
    {"--chat-template-file", "--chat-template"},
    {"--allowed-origins", "--cors-origin"},
};

struct Needless {
  std::string_view names;
  std::string_view
      values;  // that it may have, with spaces; empty: it is a flag; "*": any; "[]": a flag or on, off, auto
  std::string_view why;
  std::string_view otherwise = {};  // what to try where it has another value
};
constexpr Needless kNeedless[] = {
    {"--enforce-eager", "", "steps run as graphs, which take no start of minutes; --mode eager runs them node by node"},
    {"--dtype", "auto bfloat16", "weights and activations are bfloat16", "auto or bfloat16"},
    {"--trust-remote-code", "", "no code of a checkpoint is run"},
    {"--enable-prefix-caching", "", "prompts that begin alike share pages unless --no-prefix-cache says otherwise"},
    {"--enable-chunked-prefill", "", "prompts are always cut to --step-tokens"},
    {"--enable-auto-tool-choice", "", "tool calls are read wherever a request has tools"},
    {"--enable-lora", "", "--adapter NAME=DIR is enough"},
    {"--enable-reasoning", "", "--reasoning-parser is enough"},
    {"--disable-log-requests", "", "requests are not logged; --access-log off leaves out the answers, too"},
    {"--disable-log-stats", "", "no statistics are logged; GET /metrics has them"},
    {"--swap-space", "*", "the cache stays on the device"},
    {"--block-size", "64", "pages have 64 tokens", "64"},
    {"--generation-config", "auto", "generation_config.json of the checkpoint is read", "leaving it out"},
    {"--distributed-executor-backend", "mp", "--tp and --pp run in one process", "leaving it out"},
    {"--tokenizer-mode", "auto", "the tokenizer's files say what it is", "auto"},
    {"-ngl --n-gpu-layers --gpu-layers", "*", "all layers are on the device; --device cpu runs none on a GPU"},
    {"-t --threads", "*", "--device cpu:workers=N has the threads of the CPU driver"},
    {"-ub --ubatch-size", "*", "--step-tokens is the one size of a step"},
    {"-fa --flash-attn", "[]", "attention is always fused"},
    {"--jinja", "", "chat templates are always used as they are written"},
    {"--no-mmap --mlock", "", "weights are copied to the device"},
    {"-cnv --conversation", "", "nodewright chat is the conversation"},
};

bool has_word(std::string_view words, std::string_view word) {
  for (size_t begin = 0; begin < words.size();) {
    const size_t end = std::min(words.find(' ', begin), words.size());
    if (words.substr(begin, end - begin) == word) return true;
    begin = end + 1;
  }
  return false;
}

template <class Row>
const Row* row_of(std::span<const Row> rows, const std::string& name) {
  const auto found = std::ranges::find_if(rows, [&](const Row& row) { return has_word(row.names, name); });
  return found == rows.end() ? nullptr : &*found;
}

class Translation {
 public:
  Translation(const CLI::App& command, const Words& words, size_t at,
              const std::function<void(const std::string&)>& tell)
      : command_(command), words_(words), at_(at), tell_(tell) {}

  Words result() {
    for (; at_ < words_.size(); ++at_) one(words_[at_]);
    return std::move(found_);
  }

 private:
  void one(const std::string& word) {
    const size_t sign = word.find('=');
    const std::string name = word.substr(0, sign);
    if (word.size() < 2 || word[0] != '-') return keep();
    if (const CLI::Option* ours = option(name)) return keep_with_values(*ours, sign != std::string::npos);
    const Renamed* renamed = row_of<Renamed>(kRenamed, name);
    if (renamed != nullptr && option(renamed->ours) != nullptr) {
      const std::string value = renamed->put == flag ? "" : value_of(name, sign);
      for (std::string& ours : renamed->put(name, renamed->ours, value)) found_.push_back(std::move(ours));
    } else if (const Needless* needless = row_of<Needless>(kNeedless, name); needless != nullptr && serves()) {
      leave_out(*needless, name, sign);
    } else {
      keep();
    }
  }

  // Only what has a model can be asked for such things.
  bool serves() const { return option("--model") != nullptr; }
  const CLI::Option* option(const std::string& name) const { return command_.get_option_no_throw(name); }
  void keep() { found_.push_back(words_[at_]); }

  // What stands behind an option of ours is its value, also where it looks like another's option.
  void keep_with_values(const CLI::Option& option, bool has_value) {
    keep();
    if (has_value || option.get_type_size() == 0) return;
    if (option.get_lnames().front() == "lora-modules" || has_word("--adapter --lora-modules", words_[at_]))
      return keep_modules();
    for (int i = 0; i < option.get_items_expected_min() && at_ + 1 < words_.size(); ++i) ++at_, keep();
  }

  // vLLM takes several after one --lora-modules.
  void keep_modules() {
    if (at_ + 1 < words_.size()) ++at_, keep();
    while (at_ + 1 < words_.size() && !words_[at_ + 1].starts_with('-') &&
           words_[at_ + 1].find('=') != std::string::npos) {
      ++at_;
      found_.push_back("--adapter");
      keep();
    }
  }

  std::string value_of(const std::string& name, size_t sign) {
    if (sign != std::string::npos) return words_[at_].substr(sign + 1);
    if (at_ + 1 == words_.size()) refuse_familiar(name, "it needs a value", "");
    return words_[++at_];
  }

  void leave_out(const Needless& row, const std::string& name, size_t sign) {
    std::string value;
    if (row.values == "[]") {
      if (sign == std::string::npos && at_ + 1 < words_.size() && has_word("on off auto", words_[at_ + 1])) ++at_;
    } else if (!row.values.empty()) {
      value = value_of(name, sign);
      if (row.values != "*" && !has_word(row.values, value))
        refuse_familiar(name, fmt::format("{} cannot be had: {}", in_quotes(value), row.why),
                        std::string(row.otherwise));
    } else if (sign != std::string::npos) {
      refuse_familiar(name, "it takes no value", "");
    }
    tell_(fmt::format("{}{}{} changes nothing: {}", name, value.empty() ? "" : " ", value, row.why));
  }

  const CLI::App& command_;
  const Words& words_;
  size_t at_;
  const std::function<void(const std::string&)>& tell_;
  Words found_;
};

}  // namespace

std::vector<std::string> in_our_words(const CLI::App& app, const std::vector<std::string>& words,
                                      const std::function<void(const std::string&)>& tell) {
  if (!words.empty() && words.front() == "help") {  // help bench decode
    Words named(words.begin() + 1, words.end());
    std::erase(named, "help");
    named.push_back("--help");
    return named;
  }
  const CLI::App* command = &app;
  size_t at = 0;
  for (; at < words.size(); ++at) {
    const std::vector<const CLI::App*> all = command->get_subcommands([](const CLI::App*) { return true; });
    const auto named = std::ranges::find(all, words[at], &CLI::App::get_name);
    if (named == all.end()) break;
    command = *named;
  }
  Words all(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(at));
  if (at == 0) return words;
  for (std::string& word : Translation(*command, words, at, tell).result()) all.push_back(std::move(word));
  return all;
}

}  // namespace nodewright::cli
