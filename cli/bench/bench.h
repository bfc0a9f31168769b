// The measurements of `nodewright bench`: each adds one subcommand, in a file of its own.
#pragma once

#include "cli/command.h"

namespace nodewright::cli {

void add_bench_decode(CLI::App& bench, Action& chosen);
void add_bench_nanogpt(CLI::App& bench, Action& chosen);
void add_bench_nodes(CLI::App& bench, Action& chosen);
void add_bench_graph(CLI::App& bench, Action& chosen);
void add_bench_serve(CLI::App& bench, Action& chosen);
void add_bench_engine(CLI::App& bench, Action& chosen);
void add_bench_prefill(CLI::App& bench, Action& chosen);
void add_bench_load(CLI::App& bench, Action& chosen);

}  // namespace nodewright::cli
