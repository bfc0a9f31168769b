#include "cli/options/request/choice_flags.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/file_to_read.h"
#include "base/json_depth.h"
#include "base/json_file.h"
#include "cli/options/refusals.h"
#include "cli/options/whole_number.h"
#include "cli/session.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

using nlohmann::ordered_json;

constexpr uint64_t kLongestSchema = uint64_t{16} << 20;  // bytes

[[noreturn]] void refuse_flag(const char* option, std::string detail, std::string advice = {}) {
  refuse_option(option, std::move(detail), std::move(advice));
}

// Some of "id=bias,id=bias" into the object of a line's logit_bias.
void read_biases(const std::string& text, ordered_json& biases) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const std::string one = text.substr(begin, comma - begin);
    const size_t equals = one.find('=');
    double bias = 0;
    const char* end = one.data() + one.size();
    const auto read = equals == std::string::npos ? std::from_chars_result{one.data(), std::errc::invalid_argument}
                                                  : std::from_chars(one.data() + equals + 1, end, bias);
    if (read.ec != std::errc() || read.ptr != end)
      refuse_flag("--logit-bias", fmt::format("'{}' is no token id with a bias", one), "1234=-5, or 1234=2.5,99=-100");
    const std::string id = one.substr(0, equals);
    if (biases.contains(id)) refuse_flag("--logit-bias", fmt::format("token {} has two biases", id));
    biases[id] = bias;
    begin = comma + 1;
  }
}

// A schema as it stands, or the file that holds it.
ordered_json json_schema(const std::string& text_or_file) {
  std::string text = text_or_file;
  if (text.find_first_not_of(" \t\n") == std::string::npos) refuse_flag("--json-schema", "it is empty");
  if (text[text.find_first_not_of(" \t\n")] != '{') {
    if (!is_present(text_or_file))
      refuse_flag("--json-schema", fmt::format("{} is neither JSON nor a file", in_quotes(text_or_file)),
                  "a file, or {...}");
    text = read_whole_file(text_or_file, kLongestSchema,
                           {.doing = "read --json-schema", .takes_pipes = true, .fault = Fault::usage});
  }
  if (nests_too_deep(text))
    refuse_flag("--json-schema", fmt::format("the schema nests deeper than {} levels", kDeepestRequestJson));
  ordered_json schema = ordered_json::parse(text, nullptr, false);
  if (schema.is_discarded()) refuse_flag("--json-schema", fmt::format("'{}' is not JSON", text_or_file));
  return schema;
}

}  // namespace

void add_choice_flags(CLI::App& command, ChoiceFlags& flags) {
  command.add_option("--stop", flags.stop, "end before this text; may be given several times")->allow_extra_args(false);
  command.add_option("--stop-token-ids", flags.stop_token_ids, "end with one of these tokens, too: 1,2,3");
  command.add_option("--min-tokens", flags.min_tokens, "do not end before this many tokens")
      ->check(whole_number<uint32_t>);
  command.add_option("--logit-bias", flags.logit_bias, "added to a token's logit: ID=BIAS, several with commas")
      ->allow_extra_args(false);
  command.add_option("--bad-word", flags.bad_words, "never write this word; may be given several times")
      ->allow_extra_args(false);
  command.add_option("--regex", flags.regex, "all of the answer must match this regular expression");
  command.add_option("--json-schema", flags.json_schema, "the answer is JSON of this schema: {...}, or a file");
}

ordered_json line_of(const ChoiceFlags& flags) {
  ordered_json line = ordered_json::object();
  if (flags.min_tokens) line["min_tokens"] = *flags.min_tokens;
  if (!flags.stop.empty()) line["stop"] = flags.stop;
  if (!flags.bad_words.empty()) line["bad_words"] = flags.bad_words;
  if (!flags.logit_bias.empty()) {
    ordered_json biases = ordered_json::object();
    for (const std::string& text : flags.logit_bias) read_biases(text, biases);
    line["logit_bias"] = std::move(biases);
  }
  if (!flags.regex.empty()) line["regex"] = flags.regex;
  if (!flags.json_schema.empty()) line["json_schema"] = json_schema(flags.json_schema);
  return line;
}

RequestChoice read_choice(ChoiceReader& reader, const ChoiceFlags& flags, const SamplingOptions& sampling,
                          const std::vector<int32_t>& eos) {
  try {
    const RequestJson line = line_of(flags);
    return reader.read(RequestFields(line), eos, sampling);
  } catch (const std::invalid_argument& error) {
    throw Error({.doing = "use the options of the choice", .detail = error.what(), .fault = Fault::usage});
  }
}

void check_least(const ChoiceFlags& flags, int64_t max_tokens) {
  if (flags.min_tokens.value_or(0) <= max_tokens) return;
  refuse_pair("--min-tokens and --max-tokens",
              fmt::format("at least {} tokens, and at most {}", *flags.min_tokens, max_tokens),
              fmt::format("--min-tokens {}, or less", max_tokens));
}

std::vector<int32_t> stop_ids_of(const ChoiceFlags& flags, std::vector<int32_t> eos, int64_t vocab) {
  if (flags.stop_token_ids.empty()) return eos;
  std::vector<int32_t> ids = parse_ids("--stop-token-ids", flags.stop_token_ids);
  for (const int32_t id : ids)
    if (id < 0 || id >= vocab)
      refuse_flag("--stop-token-ids", fmt::format("token {}: the vocabulary has {} tokens", id, vocab));
  ids.insert(ids.end(), eos.begin(), eos.end());
  return ids;
}

}  // namespace nodewright::cli
