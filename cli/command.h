// What every subcommand is made of: a function that adds its options to the parser and leaves behind what to run.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace nodewright::cli {

// Returns the exit code: 0, or 1 where the command itself found a failure (doctor). Failures to run throw Error.
using Action = std::function<int()>;

// What --device takes, in every command's help.
inline constexpr const char* kDeviceHelp =
    "auto, cuda, cuda:N, cpu, or cpu:checked, which reports accesses of a kernel outside its "
    "buffers; docs/command.md lists more";

// Each adds one subcommand; `chosen` becomes its action when the parser meets it.
void add_generate(CLI::App& app, Action& chosen);
void add_chat(CLI::App& app, Action& chosen);
void add_run(CLI::App& app, Action& chosen);
void add_serve(CLI::App& app, Action& chosen);
void add_logits(CLI::App& app, Action& chosen);
void add_eval(CLI::App& app, Action& chosen);
void add_graph(CLI::App& app, Action& chosen);
void add_tokenize(CLI::App& app, Action& chosen);
void add_inspect(CLI::App& app, Action& chosen);
void add_quantize(CLI::App& app, Action& chosen);
void add_tune(CLI::App& app, Action& chosen);
void add_doctor(CLI::App& app, Action& chosen);
void add_report(CLI::App& app, Action& chosen);
void add_bench(CLI::App& app, Action& chosen);
// These two show the options of all commands of `app`, which must outlive the action.
void add_completion(CLI::App& app, Action& chosen);
void add_man(CLI::App& app, Action& chosen);

}  // namespace nodewright::cli
