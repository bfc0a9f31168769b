#include "cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/outline/command_outline.h"

namespace nodewright::cli {
namespace {

constexpr const char* kSampling = "How tokens are chosen";
constexpr const char* kServing = "Batches and memory";
constexpr const char* kSeveral = "Several devices";
constexpr const char* kDevelopers = "For developers";
// What stands in none of these groups comes before them, as the parser names it.
constexpr std::array kLaterGroups = {kSampling, kServing, kSeveral, kDevelopers};

const std::map<std::string, const char*> kGroups = {{"--temperature", kSampling},
                                                    {"--top-k", kSampling},
                                                    {"--top-p", kSampling},
                                                    {"--min-p", kSampling},
                                                    {"--seed", kSampling},
                                                    {"--greedy", kSampling},
                                                    {"--repetition-penalty", kSampling},
                                                    {"--presence-penalty", kSampling},
                                                    {"--frequency-penalty", kSampling},
                                                    {"--stop", kSampling},
                                                    {"--stop-token-ids", kSampling},
                                                    {"--min-tokens", kSampling},
                                                    {"--logit-bias", kSampling},
                                                    {"--bad-word", kSampling},
                                                    {"--regex", kSampling},
                                                    {"--json-schema", kSampling},
                                                    {"--max-batch", kServing},
                                                    {"--max-context", kServing},
                                                    {"--chunk", kServing},
                                                    {"--step-tokens", kServing},
                                                    {"--pages", kServing},
                                                    {"--memory-limit", kServing},
                                                    {"--max-adapters", kServing},
                                                    {"--max-adapter-rank", kServing},
                                                    {"--reserve", kServing},
                                                    {"--speculate", kServing},
                                                    {"--no-prefix-cache", kServing},
                                                    {"--step-timeout", kServing},
                                                    {"--rank", kSeveral},
                                                    {"--rendezvous", kSeveral},
                                                    {"--rendezvous-timeout", kSeveral},
                                                    {"--rendezvous-secret", kSeveral},
                                                    {"--tp", kSeveral},
                                                    {"--pp", kSeveral},
                                                    {"--collectives", kSeveral},
                                                    {"--overlap", kSeveral},
                                                    {"--replicas", kSeveral},
                                                    {"--rate", kServing},
                                                    {"--log", kServing},
                                                    {"--schedule", kDevelopers},
                                                    {"--mode", kDevelopers},
                                                    {"--edges", kDevelopers},
                                                    {"--numerics", kDevelopers},
                                                    {"--tuning", kDevelopers},
                                                    {"--trace", kDevelopers},
                                                    {"--bucket", kDevelopers},
                                                    {"--buckets", kDevelopers},
                                                    {"--allow-eager", kDevelopers},
                                                    {"--prefill", kDevelopers},
                                                    {"--products-from", kDevelopers},
                                                    {"--no-pipelining", kDevelopers},
                                                    {"--steps-per-launch", kDevelopers},
                                                    {"--until-ended", kDevelopers},
                                                    {"--commit", kDevelopers}};

// M stands for --model DIR.
const std::map<std::string, std::vector<const char*>> kExamples = {
    {"generate",
     {"nodewright generate M --prompt 'Once upon a time'",
      "nodewright generate M --prompt 'Why is the sky blue?' --chat --max-tokens 300 --stats"}},
    {"chat",
     {"nodewright chat M --system 'Answer in one sentence.'",
      "nodewright chat M --template-arg enable_thinking=false"}},
    {"run",
     {"nodewright run M --requests requests.jsonl > results.jsonl",
      "echo '{\"prompt\": \"One day\", \"max_tokens\": 8, \"stream\": true}' | nodewright run M"}},
    {"serve",
     {"nodewright serve M", "nodewright serve M --adapter sql=DIR/sql",
      "nodewright serve M --host 0.0.0.0 --api-key KEY --max-num-seqs 256"}},
    {"logits",
     {"nodewright logits M --prompt 'Once upon a time' --out logits.npy",
      "nodewright logits M --prompt-ids 1,2,3 --continue 4,5 --out logits.npy"}},
    {"eval",
     {"cat text.txt | nodewright eval M",
      "cat text.txt | nodewright eval --model DIR/quantized --against DIR/original --json"}},
    {"graph", {"nodewright graph M", "nodewright graph M --format html --out plan.html"}},
    {"tokenize", {"nodewright tokenize M --text 'Once upon a time'", "nodewright tokenize M --decode 1,2,3"}},
    {"inspect", {"nodewright inspect M", "nodewright inspect M --device none --json"}},
    {"quantize",
     {"nodewright quantize M --out DIR-fp8 --format fp8-row",
      "nodewright quantize M --out DIR-int4 --format int4-g128"}},
    {"tune", {"nodewright tune M --batch 1 8", "nodewright tune M --remove"}},
    {"report", {"nodewright run M --requests requests.jsonl --log steps.jsonl", "nodewright report steps.jsonl"}},
    {"doctor", {"nodewright doctor"}},
    {"completion",
     {"source <(nodewright completion bash)", "nodewright completion zsh --out ~/.zsh/completions/_nodewright"}},
    {"man", {"nodewright man --out nodewright.1", "nodewright man | man -l -"}},
    {"bench", {"nodewright bench decode M --context 1024", "nodewright bench serve M --concurrency 8"}}};

constexpr size_t kNames = 30, kWidth = 110;  // columns

// Words of `text` in lines of the second column.
std::string in_lines(const std::string& text) {
  std::string lines;
  size_t at = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (at > 0 && at + 1 + word.size() > kWidth - kNames)
      lines += "\n" + std::string(kNames, ' '), at = 0;
    else if (at > 0)
      lines += " ", ++at;
    lines += word;
    at += word.size();
    begin = end + 1;
  }
  return lines;
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return make_description(app) + make_usage(app, std::move(name)) + positionals_alone(app) + in_groups(app) +
           make_subcommands(app, mode) + "\n" + make_footer(app);
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string names = option->get_name(is_positional, true);
    for (size_t at = names.find(','); at != std::string::npos; at = names.find(',', at + 2)) names.insert(at + 1, " ");
    names = "  " + names;
    if (const std::string value = value_word(*option); !value.empty()) names += " " + value;
    if (option->get_expected_max() == CLI::detail::expected_max_vector_size) names += " ...";
    std::string about = option->get_description();
    if (option->get_required()) about += " (required)";
    if (!option->get_default_str().empty()) about += fmt::format(" (default: {})", option->get_default_str());
    const std::string gap =
        names.size() + 2 > kNames ? "\n" + std::string(kNames, ' ') : std::string(kNames - names.size(), ' ');
    return names + gap + in_lines(about) + "\n";
  }

 private:
  // Not those that are options as well, as --model.
  std::string positionals_alone(const CLI::App* app) const {
    const auto all = app->get_options([](const CLI::Option* one) {
      return one->get_positional() && !one->nonpositional() && !one->get_group().empty();
    });
    return all.empty() ? "" : make_group("Positionals", true, all);
  }

  std::string in_groups(const CLI::App* app) const {
    std::string text;
    for (const std::string& group : groups_in_order(*app)) {
      std::string options;
      for (const CLI::Option* option : app->get_options())
        if (option->get_group() == group && option->nonpositional()) options += make_option(option, false);
      if (!group.empty() && !options.empty()) text += "\n" + group + ":\n" + options;
    }
    return text;
  }
};

std::string examples_of(const std::string& command) {
  const auto examples = kExamples.find(command);
  if (examples == kExamples.end()) return "";
  std::string text = "Examples:";
  for (std::string example : examples->second) {
    if (const size_t at = example.find(" M"); at != std::string::npos) example.replace(at, 2, " --model DIR");
    text += "\n  " + example;
  }
  return text + "\n";
}

void arrange(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    const bool hidden = option->get_group().empty() || option->get_lnames().empty();
    const auto group = hidden ? kGroups.end() : kGroups.find("--" + option->get_lnames().front());
    if (group != kGroups.end()) option->group(group->second);
  }
  for (CLI::App* one : command.get_subcommands({})) arrange(*one);
}

}  // namespace

void look_of_help(CLI::App& app) {
  const auto look = std::make_shared<HelpFormatter>();
  look->column_width(22);  // of the commands' names
  app.formatter(look);
}

std::vector<std::string> groups_in_order(const CLI::App& command) {
  std::vector<std::string> groups = command.get_groups();
  const auto rank = [](const std::string& group) {
    const auto place = std::ranges::find(kLaterGroups, group);
    return place == kLaterGroups.end() ? -1 : place - kLaterGroups.begin();
  };
  std::ranges::stable_sort(groups, {}, rank);
  return groups;
}

void arrange_help(CLI::App& app) {
  arrange(app);
  for (CLI::App* command : app.get_subcommands({})) command->footer(examples_of(command->get_name()));
  app.footer(
      "nodewright help COMMAND tells the options of a command. docs/command.md has exit codes, environment\n"
      "variables, signals and files.\n");
}

}  // namespace nodewright::cli
