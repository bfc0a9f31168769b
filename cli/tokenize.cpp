// nodewright tokenize: text to token ids, or with --decode ids to text. Needs no device.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <iostream>
#include <iterator>

#include "cli/command.h"
#include "cli/session.h"
#include "cli/standard_output.h"
#include "engine/tokenizer.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

struct TokenizeOptions {
  std::filesystem::path model;
  std::optional<std::string> text, ids;
  bool parse_special = false, add_special = false;
};

int tokenize(const TokenizeOptions& options) {
  check_model_folder(options.model);
  const Tokenizer tokenizer = Tokenizer::from_file(options.model / "tokenizer.json");
  if (options.ids) {
    std::vector<TokenId> ids;
    for (int32_t id : parse_ids("--decode", *options.ids)) {
      if (id < 0)
        throw Error(
            {.doing = "decode token", .object = std::to_string(id), .detail = "it is negative", .fault = Fault::usage});
      ids.push_back(id);
    }
    write_standard_output(tokenizer.decode(ids, false) + "\n");
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
  command->add_option("--model", options->model, "folder with tokenizer.json")->required();
  command->add_option("--text", options->text, "text (default: standard input)");
  command->add_option("--decode", options->ids, "token ids to turn into text: 1,2,3")->excludes("--text");
  command->add_flag("--parse-special", options->parse_special, "take special tokens in the text as such");
  command->add_flag("--add-special", options->add_special, "add what the tokenizer puts around a text (BOS)");
  command->callback([options, &chosen] { chosen = [options] { return tokenize(*options); }; });
}

}  // namespace nodewright::cli
