// nodewright tokenize: text to token ids, or with --decode ids to text; with --batch many of either. Needs no device.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/command.h"
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

// Who asks what an id means is told where it means nothing.
std::string text_of(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special) {
  for (const TokenId id : ids) tokenizer.id_to_bytes(id);  // throws
  return tokenizer.decode(ids, skip_special);
}

// {"text": "..."} becomes {"ids": [...]}, and the other way round.
Json answer(const Tokenizer& tokenizer, const TokenizeOptions& options, const Json& question) {
  if (question.size() == 1 && question.contains("text"))
    return {
        {"ids", tokenizer.encode(question["text"].get_ref<const std::string&>(),
                                 {.parse_special = options.parse_special, .add_special_tokens = options.add_special})}};
  if (question.size() == 1 && question.contains("ids"))
    return {{"text", text_of(tokenizer, question["ids"].get<std::vector<TokenId>>(), options.skip_special)}};
  throw Error({.doing = "read", .object = "standard input", .detail = "neither {\"text\": ...} nor {\"ids\": [...]}"});
}

int tokenize_lines(const Tokenizer& tokenizer, const TokenizeOptions& options) {
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    try {
      write_standard_output(answer(tokenizer, options, Json::parse(line)).dump() + "\n");
    } catch (const Json::exception& error) {
      throw Error(
          {.doing = "read", .object = fmt::format("line {} of standard input", number), .detail = error.what()});
    }
  }
  return 0;
}

int tokenize(const TokenizeOptions& options) {
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
  command->add_flag("--parse-special", options->parse_special, "take special tokens in the text as such");
  command->add_flag("--add-special", options->add_special, "add what the tokenizer puts around a text (BOS)");
  command->add_flag("--skip-special", options->skip_special, "leave special tokens out of decoded text");
  command->add_flag("--batch", options->batch, "JSON lines on standard input: {\"text\": ...} or {\"ids\": [...]} each")
      ->excludes("--text")
      ->excludes("--decode");
  command->callback([options, &chosen] { chosen = [options] { return tokenize(*options); }; });
}

}  // namespace nodewright::cli
