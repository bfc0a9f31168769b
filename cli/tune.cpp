// nodewright tune: what this device does better for this model, into a file that later commands find.
#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "bench/step_tuner.h"
#include "cli/command.h"
#include "cli/output_file.h"
#include "cli/session.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

struct TuneOptions {
  SessionOptions session;
  TunerOptions tuner;
  std::filesystem::path out;  // empty: where later commands look
};

void print(const TunerTrial& trial) {
  if (!trial.refused.empty())
    return fmt::print("{:>5} {:<28} {:>9} cannot be built: {}\n", trial.rows, trial.number, trial.value, trial.refused);
  fmt::print("{:>5} {:<28} {:>9} {:>10.2f} {:>10.2f} {:>+7.2f}%{}\n", trial.rows, trial.number, trial.value, trial.us,
             trial.best_us, 100 * (trial.us / trial.best_us - 1), trial.taken ? " taken" : "");
  std::fflush(stdout);
}

int tune(const TuneOptions& options) {
  for (const int64_t rows : options.tuner.rows)
    if (rows < 1 || rows > kMostTunedRows)
      throw Error({.doing = "use --batch",
                   .object = std::to_string(rows),
                   .detail = fmt::format("it is outside 1 to {}", kMostTunedRows),
                   .fault = Fault::usage});
  Session session(options.session);
  const auto told = [first = true](const TunerTrial& trial) mutable {
    if (std::exchange(first, false))
      fmt::print("{:>5} {:<28} {:>9} {:>10} {:>10} {:>8}\n", "rows", "number", "value", "us a step", "best so far", "");
    print(trial);
  };
  Tuning tuning =
      tune_steps(session.device(), session.stream(), session.kernels(), session.model(), options.tuner, told);
  const std::filesystem::path path = options.out.empty() ? tuning_file(tuning.key) : options.out;
  if (options.out.empty()) {
    std::filesystem::create_directories(path.parent_path());
    std::error_code none;
    if (std::filesystem::exists(path, none))  // what was measured for other rows stays
      for (const auto& [rows, step] : read_tuning(path).steps) tuning.steps.emplace(rows, step);
  }
  write_whole_file(path, tuning_json(tuning));
  fmt::print("written to {}\n", path.string());
  return 0;
}

}  // namespace

void add_tune(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<TuneOptions>();
  CLI::App* command = app.add_subcommand("tune", "Find launch shapes that suit this device and model");
  command->add_option("-m,--model", options->session.model, "Hugging Face checkpoint folder")->required();
  command->add_option("--device", options->session.device, kDeviceHelp)->capture_default_str();
  command->add_option("--batch", options->tuner.rows, "rows of a step, one or more")->capture_default_str();
  command->add_option("--context", options->tuner.context, "keys that every row attends to")
      ->check(CLI::Range(2, 1 << 24))
      ->capture_default_str();
  command->add_option("--parts", options->tuner.parts,
                      "only these: arithmetic, attend, shared, qkv, out, gate_up, down, head");
  command->add_option("--samples", options->tuner.samples, "of each figure")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--steps", options->tuner.launches_per_sample, "launches a sample")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--out", options->out, "file (default: where the other commands look)");
  command->callback([options, &chosen] { chosen = [options] { return tune(*options); }; });
}

}  // namespace nodewright::cli
