// nodewright completion SHELL: prints the script that completes the command's words in that shell.
#include <filesystem>
#include <memory>

#include "cli/command.h"
#include "cli/completion/completion_scripts.h"
#include "cli/output/output_file.h"
#include "cli/output/standard_output.h"

namespace nodewright::cli {
namespace {

struct CompletionWords {
  std::string shell;
  std::filesystem::path out;
};

std::string script_for(const std::string& shell, const CLI::App& app) {
  const CommandOutline program = outline_of(app);
  if (shell == "bash") return bash_completion(program);
  return shell == "zsh" ? zsh_completion(program) : fish_completion(program);
}

}  // namespace

std::string short_about(const std::string& about) {
  constexpr size_t kColumns = 72;
  const std::string clause = about.substr(0, about.find(';'));
  if (clause.size() <= kColumns) return clause;
  return clause.substr(0, clause.rfind(' ', kColumns)) + " ...";
}

void add_completion(CLI::App& app, Action& chosen) {
  auto words = std::make_shared<CompletionWords>();
  CLI::App* command = app.add_subcommand("completion", "Print the script that completes commands, options and values");
  command->add_option("SHELL", words->shell, "the shell that reads it")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->add_option("--out", words->out, "file (default: standard output)");
  command->callback([words, &app, &chosen] {
    chosen = [words, &app] {
      const std::string script = script_for(words->shell, app);
      if (words->out.empty())
        write_standard_output(script);
      else
        write_whole_file(words->out, script);
      return 0;
    };
  });
}

}  // namespace nodewright::cli
