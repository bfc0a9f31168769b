// nodewright bench: the group of the measurements.
#include "cli/bench/bench.h"

namespace nodewright::cli {

void add_bench(CLI::App& app, Action& chosen) {
  CLI::App* bench = app.add_subcommand("bench", "Measure");
  bench->require_subcommand(0, 1);  // as the program does
  add_bench_decode(*bench, chosen);
  add_bench_prefill(*bench, chosen);
  add_bench_nanogpt(*bench, chosen);
  add_bench_nodes(*bench, chosen);
  add_bench_graph(*bench, chosen);
  add_bench_serve(*bench, chosen);
  add_bench_engine(*bench, chosen);
  add_bench_load(*bench, chosen);
}

}  // namespace nodewright::cli
