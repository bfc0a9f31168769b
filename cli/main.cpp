// The program `nodewright`: parses the command line, runs one subcommand, turns an error into one line.
// Exit codes: 0, 1 for a failure at run time, 2 for wrong usage.
#include <cstdio>
#include <exception>

#include "cli/command.h"
#include "runtime/error.h"

int main(int argc, char** argv) {
  using namespace nodewright;
  CLI::App app("Builds CUDA graphs node by node and decodes language models with them.", "nodewright");
  app.require_subcommand(1);
  app.set_version_flag("--version", NODEWRIGHT_VERSION);
  cli::Action action;
  cli::add_generate(app, action);
  cli::add_logits(app, action);
  cli::add_graph(app, action);
  cli::add_tokenize(app, action);
  cli::add_bench(app, action);
  cli::add_doctor(app, action);
  try {
    app.parse(argc, argv);
    return action();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "nodewright: %s (see --help)\n", error.what());
    return 2;
  } catch (const Error& error) {
    std::fprintf(stderr, "nodewright: %s\n", error.what());
    return error.parts().fault == Fault::usage ? 2 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nodewright: %s\n", error.what());
    return 1;
  }
}
