// nodewright tokenize: text to token ids, or with --decode ids to text; with --batch many of either. Needs no device.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <iostream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/command.h"
#include "cli/options/refusals.h"
#include "cli/output/standard_output.h"
#include "cli/session.h"
#include "runtime/error.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright::cli {
namespace {

struct TokenizeOptions {
  std::filesystem::path model;
  std::optional<std::string> text, ids;
  bool parse_special = false, add_special = false, skip_special = false, batch = false;
};

using Json = nlohmann::json;

// An id that means nothing is an error for a user who asks for its text.
std::string text_of(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special) {
  for (const TokenId id : ids) tokenizer.id_to_bytes(id);  // throws
  return tokenizer.decode(ids, skip_special);
}

[[noreturn]] void refuse_line(int64_t number, std::string detail) {
  throw Error({.doing = "read",
               .object = fmt::format("line {} of standard input", number),
               .detail = std::move(detail),
               .advice = "{\"text\": \"...\"} or {\"ids\": [1, 2]}"});
}

std::vector<TokenId> ids_of(const Json& list, int64_t line) {
  if (!list.is_array()) refuse_line(line, "ids is no list");
  std::vector<TokenId> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<TokenId>::max())
      refuse_line(line, fmt::format("ids has {}, which is no token id",
                                    id.is_structured() ? "a list" : id.dump(-1, ' ', true)));
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

// {"text": "..."} becomes {"ids": [...]}, and the other way round.
Json answer(const Tokenizer& tokenizer, const TokenizeOptions& options, const std::string& line, int64_t number) {
  Json question;
  try {
    question = Json::parse(line);
  } catch (const Json::parse_error& error) {
    refuse_line(number, fmt::format("it is not valid JSON at byte {}", error.byte));
  } catch (const Json::exception&) {
    refuse_line(number, "it has a number beyond the range of doubles");
  }
  if (!question.is_object() || question.contains("text") == question.contains("ids") || question.size() != 1)
    refuse_line(number, "it is no object with text or ids alone");
  if (question.contains("ids"))
    return {{"text", text_of(tokenizer, ids_of(question["ids"], number), options.skip_special)}};
  if (!question["text"].is_string()) refuse_line(number, "text is no string");
  return {
      {"ids", tokenizer.encode(question["text"].get_ref<const std::string&>(),
                               {.parse_special = options.parse_special, .add_special_tokens = options.add_special})}};
}

int tokenize_lines(const Tokenizer& tokenizer, const TokenizeOptions& options) {
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number)
    if (line.find_first_not_of(" \t\r") != std::string::npos)
      write_standard_output(answer(tokenizer, options, line, number).dump() + "\n");
  return 0;
}

int tokenize(const TokenizeOptions& options) {
  if (options.skip_special && !options.ids && !options.batch)
    refuse_option("--skip-special", "it is for the text of token ids, and a text is given", "--decode IDS, or --batch");
  check_model_folder(options.model);
  const Tokenizer tokenizer = Tokenizer::from_folder(options.model);
  if (options.batch) return tokenize_lines(tokenizer, options);
  if (options.ids) {
    std::vector<TokenId> ids;
    for (int32_t id : parse_ids("--decode", *options.ids)) {
      if (id < 0)
        throw Error(
            {.doing = "decode token", .object = std::to_string(id), .detail = "it is negative", .fault = Fault::usage});
      ids.push_back(id);
    }
    write_standard_output(text_of(tokenizer, ids, options.skip_special) + "\n");
    return 0;
  }
  const std::string text = options.text ? *options.text : std::string(std::istreambuf_iterator<char>(std::cin), {});
  write_standard_output(fmt::format(
      "{}\n", fmt::join(tokenizer.encode(
                            text, {.parse_special = options.parse_special, .add_special_tokens = options.add_special}),
                        ",")));
  return 0;
}

}  // namespace

void add_tokenize(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "Print the token ids of a text, or the text of token ids");
  add_model_option(*command, options->model, "folder with tokenizer.json, tokenizer.model or tekken.json")->required();
  command->add_option("--text", options->text, "text (default: standard input)");
  command->add_option("--decode", options->ids, "token ids to turn into text: 1,2,3")->excludes("--text");
  command->add_flag("--parse-special", options->parse_special, "take special tokens in the text as such")
      ->excludes("--decode");
  command->add_flag("--add-special", options->add_special, "add what the tokenizer puts around a text (BOS)")
      ->excludes("--decode");
  command->add_flag("--skip-special", options->skip_special, "leave special tokens out of decoded text");
  command->add_flag("--batch", options->batch, "JSON lines on standard input: {\"text\": ...} or {\"ids\": [...]} each")
      ->excludes("--text")
      ->excludes("--decode");
  command->callback([options, &chosen] { chosen = [options] { return tokenize(*options); }; });
}

}  // namespace nodewright::cli
