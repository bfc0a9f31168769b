#include "cli/man/man_page.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/command.h"
#include "cli/output/output_file.h"
#include "cli/output/standard_output.h"

namespace nodewright::cli {
namespace {

struct Told {
  const char* name;
  const char* about;
};
constexpr Told kExitCodes[] = {
    {"0", "Success."},
    {"1", "Failure, in whole or in part; a comparison that found a difference; a checkpoint that does not run."},
    {"2", "A wrong command line, or a file or folder that it names and that is not there."},
    {"130, 143", "Ended by SIGINT or SIGTERM."}};
// docs/command.md has the same list, and tests/cli/help/test_man.py compares them.
constexpr Told kVariables[] = {
    {"NODEWRIGHT_API_KEY", "Key that serve demands where --api-key is silent."},
    {"NODEWRIGHT_RENDEZVOUS_SECRET", "Text that ranks must know to join where --rendezvous-secret is silent."},
    {"NODEWRIGHT_CHAT_HISTORY", "File of what is typed in chat; empty: none."},
    {"NODEWRIGHT_CACHE", "Folder of compiled kernels and tunings."},
    {"NODEWRIGHT_NVRTC", "Path of libnvrtc.so."},
    {"NODEWRIGHT_CUBLASLT", "Path of libcublasLt.so."},
    {"NODEWRIGHT_NCCL", "Path of libnccl.so."},
    {"NODEWRIGHT_CXX", "C++20 compiler of --device cpu."},
    {"NODEWRIGHT_CPU_DRIVER", "Path of libnodewright_cpu_driver.so."},
    {"CUDA_VISIBLE_DEVICES", "The driver's own list of visible devices."},
    {"TMPDIR", "Working folder of the compiler of --device cpu."}};
constexpr Told kFiles[] = {
    {"~/.cache/nodewright", "Compiled kernels and tunings, unless NODEWRIGHT_CACHE or XDG_CACHE_HOME names a folder."},
    {"~/.local/state/nodewright/chat_history", "What is typed in chat at a terminal."}};

// What roff prints as `text`, also at the beginning of a line.
std::string roff(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (escaped.empty() && (c == '.' || c == '\'')) escaped += "\\&";
    if (c == '\\')
      escaped += "\\e";
    else if (c == '-')
      escaped += "\\-";
    else if (c == '\'')
      escaped += "\\(aq";
    else if (c == '`')
      escaped += "\\(ga";
    else if (c == '^')
      escaped += "\\(ha";
    else if (c == '~')
      escaped += "\\(ti";
    else
      escaped += c;
  }
  return escaped;
}

std::string listed(const std::string& head, const std::string& about) {
  return fmt::format(".TP\n{}\n{}\n", head, roff(about));
}

std::string man_option(const OptionOutline& option) {
  std::string head;
  for (const std::string& name : option.names)
    head += fmt::format("{}\\fB{}\\fR", head.empty() ? "" : ", ", roff(name));
  if (!option.value.empty()) head += fmt::format(" \\fI{}\\fR{}", roff(option.value), option.repeats ? " ..." : "");
  std::string about = option.about;
  if (option.required) about += " (required)";
  if (!option.by_default.empty()) about += fmt::format(" (default: {})", option.by_default);
  return listed(head, about);
}

std::string man_command(const CommandOutline& command) {
  std::string text = fmt::format(".SS {}\n{}.\n", roff(command.usage), roff(command.about));
  for (const OptionGroup& group : command.groups) {
    if (group.options.size() == 1 && group.options.front().names.front() == "-h") continue;
    text += fmt::format(".PP\n\\fI{}\\fR\n", roff(group.title));
    for (const OptionOutline& option : group.options)
      if (option.names.front() != "-h") text += man_option(option);
  }
  for (const OptionOutline& one : command.positionals)
    if (one.names.front() != "DIR") text += listed(fmt::format("\\fI{}\\fR", roff(one.names.front())), one.about);
  if (command.examples.empty()) return text;
  text += ".PP\n\\fIExamples\\fR\n.PP\n.nf\n";
  for (const std::string& example : command.examples) text += roff(example) + "\n";
  return text + ".fi\n";
}

template <class List>
std::string man_list(const char* title, const List& list) {
  std::string text = fmt::format(".SH {}\n", title);
  for (const Told& one : list) text += listed(fmt::format("\\fB{}\\fR", roff(one.name)), one.about);
  return text;
}

}  // namespace

std::string man_page(const CommandOutline& program) {
  std::string text = fmt::format(
      ".\\\" Made by `nodewright man`.\n.TH NODEWRIGHT 1 \"\" \"nodewright {}\" \"User Commands\"\n.SH "
      "NAME\nnodewright \\- "
      "run language models as CUDA graphs\n.SH SYNOPSIS\n",
      roff(NODEWRIGHT_VERSION));
  for (const CommandOutline& one : program.commands)
    text += fmt::format(".B {}\n.br\n", roff("nodewright " + one.name));
  text += fmt::format(
      ".SH DESCRIPTION\n{}\n.PP\n\\fBnodewright help\\fR \\fICOMMAND\\fR tells the options of one "
      "command.\n.SH OPTIONS\n",
      roff(program.about));
  for (const OptionGroup& group : program.groups)
    for (const OptionOutline& option : group.options) text += man_option(option);
  text += ".SH COMMANDS\n";
  for (const CommandOutline* command : every_command(program))
    if (!command->path.empty()) text += man_command(*command);
  return text + man_list("EXIT STATUS", kExitCodes) + man_list("ENVIRONMENT", kVariables) + man_list("FILES", kFiles);
}

void add_man(CLI::App& app, Action& chosen) {
  auto out = std::make_shared<std::filesystem::path>();
  CLI::App* command = app.add_subcommand("man", "Print the manual page, in roff");
  command->add_option("--out", *out, "file (default: standard output)");
  command->callback([out, &app, &chosen] {
    chosen = [out, &app] {
      const std::string page = man_page(outline_of(app));
      if (out->empty())
        write_standard_output(page);
      else
        write_whole_file(*out, page);
      return 0;
    };
  });
}

}  // namespace nodewright::cli
