#include "cli/options/request/prompt_options.h"

#include <unistd.h>

#include <iostream>
#include <iterator>

#include "base/file_to_read.h"
#include "cli/options/refusals.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

constexpr uint64_t kLongestPrompt = uint64_t{256} << 20;  // bytes: the longest text that the tokenizer takes
constexpr const char* kChoices = "one of --prompt TEXT, --prompt-file FILE and --prompt-ids 1,2,3";

[[noreturn]] void refuse_prompt(std::string detail, std::string advice = {}) {
  refuse_option("--prompt", std::move(detail), std::move(advice));
}

bool is_given(const PromptOptions& options) { return options.text || options.ids || !options.file.empty(); }

std::string text_of_file(const std::filesystem::path& path) {
  return read_whole_file(path, kLongestPrompt,
                         {.doing = "read --prompt-file", .takes_pipes = true, .fault = Fault::usage});
}

}  // namespace

void add_prompt_options(CLI::App& command, PromptOptions& options) {
  command.add_option("-p,--prompt", options.text,
                     "text of the prompt; -: standard input, which is also read when no prompt is given and "
                     "it is a pipe or a file");
  command.add_option("-f,--prompt-file", options.file, "file with the text of the prompt");
  command.add_option("--prompt-ids", options.ids, "token ids of the prompt (no tokenizer needed): 1,2,3");
}

void check(const PromptOptions& options) {
  const int given = options.text.has_value() + options.ids.has_value() + !options.file.empty();
  if (given > 1 || (given == 0 && isatty(STDIN_FILENO) != 0)) refuse_prompt(std::string("give ") + kChoices);
}

std::string prompt_text(const PromptOptions& options) {
  const bool is_input = !is_given(options) || options.text == "-";
  if (options.text && !is_input) return *options.text;
  std::string text = is_input ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : text_of_file(options.file);
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  if (text.empty() && !is_given(options))
    refuse_prompt("none is given, and standard input is empty",
                  std::string(kChoices) + ", or a text on standard input");
  return text;
}

}  // namespace nodewright::cli
