#include "cli/options/request/row_sampling_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "cli/options/request/sampling_options.h"
#include "engine/sampling/sampling_range.h"
#include "runtime/error.h"

namespace nodewright::cli {

const char* const kSamplingWordsHelp =
    "greedy, checkpoint (its generation_config.json), or a list such as temperature=0.7,top_k=50,top_p=0.9,min_p=0.05; "
    "also repetition_penalty=, presence_penalty=, frequency_penalty=, logprobs=N and mask (every second token)";

namespace {

// As written, checked before it is cut to what a kernel takes.
struct SamplingNumbers {
  std::map<std::string, double> of;
  bool has(const std::string& name) const { return of.contains(name); }
  double at(const std::string& name, double otherwise) const { return has(name) ? of.at(name) : otherwise; }
};

const std::set<std::string> kSamplingNames = {
    "temperature",       "top_k",   "top_p", "min_p", "seed", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "logprobs"};

[[noreturn]] void refuse_sampling(const std::string& words, std::string detail) {
  throw Error({.doing = "use --sampling",
               .object = words,
               .detail = std::move(detail),
               .advice = fmt::format("greedy, checkpoint, mask, or NAME=NUMBER with one of {}",
                                     fmt::join(kSamplingNames, ", ")),
               .fault = Fault::usage});
}

void allow_every_second(std::span<uint32_t> allowed, int64_t vocab) {
  std::ranges::fill(allowed, 0x55555555u);
  if (vocab % 32 != 0) allowed.back() &= (1u << (vocab % 32)) - 1;
}

bool is_whole(double number) { return number == static_cast<double>(static_cast<int64_t>(number)); }

}  // namespace

std::string sampling_words(const Sampling& sampling, const ChoiceOptions& choice) {
  std::string words = sampling.temperature == 0 ? "greedy" : fmt::format("temperature={}", sampling.temperature);
  if (sampling.top_k > 0) words += fmt::format(",top_k={}", sampling.top_k);
  if (sampling.top_p < 1) words += fmt::format(",top_p={}", sampling.top_p);
  if (sampling.min_p > 0) words += fmt::format(",min_p={}", sampling.min_p);
  if (choice.penalises()) words += fmt::format(",repetition_penalty={}", choice.repetition_penalty);
  return words;
}

RowSampling row_sampling(const std::string& words, const ModelConfig& config) {
  RowSampling rows{.name = words, .sampling = {}, .choice = {}};
  if (words == "greedy") return rows;
  if (words == "checkpoint") {
    rows.sampling = sampling_of({}, config.generation);
    rows.choice = choice_of({}, config.generation);
    rows.choice.min_tokens = 0;  // of the first tokens alone
    rows.name = fmt::format("checkpoint({})", sampling_words(rows.sampling, rows.choice));
    return rows;
  }
  SamplingNumbers numbers;
  for (size_t begin = 0; begin <= words.size();) {
    const size_t comma = std::min(words.find(',', begin), words.size());
    const std::string word = words.substr(begin, comma - begin);
    begin = comma + 1;
    if (word == "mask") {
      rows.choice.allow = [vocab = config.vocab](std::span<const int32_t>, std::span<uint32_t> allowed) {
        allow_every_second(allowed, vocab);
      };
      continue;
    }
    const size_t equals = std::min(word.find('='), word.size());
    std::string name = word.substr(0, equals);
    std::ranges::replace(name, '-', '_');
    if (!kSamplingNames.contains(name)) refuse_sampling(words, fmt::format("'{}' is no setting", word));
    double number = 0;
    const char* first = word.data() + std::min(equals + 1, word.size());
    const auto [end, failure] = std::from_chars(first, word.data() + word.size(), number);
    if (failure != std::errc() || end != word.data() + word.size() || first == end)
      refuse_sampling(words, fmt::format("'{}' has no number", word));
    if (!numbers.of.emplace(name, number).second) refuse_sampling(words, fmt::format("it has two of {}", name));
  }
  for (const char* whole : {"top_k", "seed", "logprobs"})
    if (!(numbers.at(whole, 0) >= 0 && numbers.at(whole, 0) <= INT32_MAX && is_whole(numbers.at(whole, 0))))
      refuse_sampling(words, fmt::format("{} is no whole number from 0 to {}", whole, INT32_MAX));
  // As of a request: what cuts a distribution asks for one.
  const bool draws = numbers.has("top_k") || numbers.has("top_p") || numbers.has("min_p");
  const double temperature = numbers.at("temperature", draws ? 1 : 0), top_p = numbers.at("top_p", 1);
  const auto top_k = static_cast<int64_t>(numbers.at("top_k", 0));
  if (const auto fault = sampling_fault(temperature, top_k, top_p, numbers.at("min_p", 0)))
    refuse_sampling(words, fmt::format("a {} of {}", fault->field, fault->detail));
  rows.sampling = {.temperature = static_cast<float>(temperature),
                   .min_p = static_cast<float>(numbers.at("min_p", 0)),
                   .top_k = top_p == 0 ? 1 : static_cast<int32_t>(top_k),
                   .top_p = top_p == 0 ? 1 : static_cast<float>(top_p),
                   .seed = static_cast<uint64_t>(numbers.at("seed", 0))};
  rows.choice.repetition_penalty = static_cast<float>(numbers.at("repetition_penalty", 1));
  rows.choice.presence_penalty = static_cast<float>(numbers.at("presence_penalty", 0));
  rows.choice.frequency_penalty = static_cast<float>(numbers.at("frequency_penalty", 0));
  rows.choice.logprobs = static_cast<int>(numbers.at("logprobs", -1));
  if (const std::string reason = why_not(rows.choice, {}, config.vocab); !reason.empty())
    refuse_sampling(words, reason);
  return rows;
}

std::vector<RowSampling> row_samplings(const std::vector<std::string>& all, const ModelConfig& config) {
  std::vector<RowSampling> settings;
  for (const std::string& words : all) settings.push_back(row_sampling(words, config));
  return settings;
}

}  // namespace nodewright::cli
