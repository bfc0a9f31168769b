// The program `nodewright`: parses the command line, runs one subcommand, turns any error into one line.
// Exit codes: 0, 1 for a failure at run time, 2 for wrong usage.
#include <cstdio>
#include <exception>
#include <string>

#include "cli/command.h"
#include "cli/standard_output.h"
#include "runtime/error.h"
#include "runtime/host_heap.h"

namespace {

int fail(std::string message, int exit_code) {
  for (char& c : message)  // words of the command line and of files may hold line breaks, or what drives a terminal
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  std::fprintf(stderr, "nodewright: %s\n", message.c_str());
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) try {
  using namespace nodewright;
  prefer_huge_heap();
  CLI::App app("Builds CUDA graphs node by node and decodes language models with them.", "nodewright");
  app.require_subcommand(0, 1);  // the parser's own complaint would hide the word that is no subcommand
  app.set_version_flag("--version", NODEWRIGHT_VERSION);
  cli::Action action;
  cli::add_generate(app, action);
  cli::add_chat(app, action);
  cli::add_run(app, action);
  cli::add_logits(app, action);
  cli::add_graph(app, action);
  cli::add_tokenize(app, action);
  cli::add_inspect(app, action);
  cli::add_bench(app, action);
  cli::add_tune(app, action);
  cli::add_report(app, action);
  cli::add_doctor(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return fail(std::string(error.what()) + " (see --help)", 2);
  }
  if (!action) return fail("a subcommand is missing (see --help)", 2);
  const int exit_code = action();
  cli::write_standard_output("");  // what is still buffered
  return exit_code;
} catch (const nodewright::Error& error) {
  return fail(error.what(), error.parts().fault == nodewright::Fault::usage ? 2 : 1);
} catch (const std::exception& error) {
  return fail(error.what(), 1);
}
