// The program `nodewright`: parses the command line, runs one subcommand, turns any error into one line.
// docs/command.md has its exit codes.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/help.h"
#include "cli/interruption.h"
#include "cli/options/empty_values.h"
#include "cli/options/familiar_words.h"
#include "cli/options/folders/path_checks.h"
#include "cli/options/value_names.h"
#include "cli/output/error_words.h"
#include "cli/output/say.h"
#include "cli/output/standard_output.h"
#include "cli/usage_error.h"
#include "cli/version/version.h"
#include "runtime/error.h"
#include "runtime/memory/host_heap.h"

namespace {

int fail(std::string message, int exit_code) {
  for (char& c : message)  // words of the command line and of files may hold line breaks
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  nodewright::cli::say("nodewright: {}\n", message);
  nodewright::cli::finish_saying();
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) try {
  using namespace nodewright;
  cli::hold_standard_descriptors();
  prefer_huge_heap();
  CLI::App app("Builds CUDA graphs node by node and decodes language models with them.", "nodewright");
  app.require_subcommand(0, 1);  // the parser's own complaint would hide the word that is no subcommand
  app.set_version_flag("-V,--version", cli::version_text,
                       "print the version, the commit, the driver and CUDA's release");
  cli::look_of_help(app);
  cli::Action action;
  cli::add_generate(app, action);
  cli::add_chat(app, action);
  cli::add_run(app, action);
  cli::add_serve(app, action);
  cli::add_logits(app, action);
  cli::add_eval(app, action);
  cli::add_graph(app, action);
  cli::add_tokenize(app, action);
  cli::add_inspect(app, action);
  cli::add_quantize(app, action);
  cli::add_bench(app, action);
  cli::add_tune(app, action);
  cli::add_report(app, action);
  cli::add_doctor(app, action);
  cli::add_completion(app, action);
  cli::add_man(app, action);
  cli::name_values(app);
  cli::arrange_help(app);
  cli::add_path_checks(app);
  cli::refuse_empty_values(app);
  try {
    const std::vector<std::string> given(argv + 1, argv + argc);
    if (const std::string why = cli::unknown_command(app, given); !why.empty()) return fail(why, 2);
    std::vector<std::string> words = cli::in_our_words(
        app, given, [](const std::string& told) { std::fprintf(stderr, "nodewright: %s\n", told.c_str()); });
    std::ranges::reverse(words);  // as the parser takes them
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help and --version
      std::ostringstream text;
      app.exit(error, text, text);
      cli::write_standard_output(text.str());
      return 0;
    }
    return fail(cli::usage_error(app, error), 2);
  }
  if (!action) {
    cli::say("{}\nnodewright: a command is missing\n", cli::help_of_named(app));
    return 2;
  }
  const int exit_code = action();
  cli::write_standard_output("");  // what is still buffered
  cli::finish_saying();
  return exit_code;
} catch (const nodewright::Error& error) {
  if (nodewright::cli::interrupted()) return fail("interrupted", nodewright::cli::interruption_exit_code());
  return fail(nodewright::cli::error_words(error), error.parts().fault == nodewright::Fault::usage ? 2 : 1);
} catch (const std::exception& error) {
  return fail(error.what(), 1);
}
