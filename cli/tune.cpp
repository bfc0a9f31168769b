// nodewright tune: what this device does better for this model, into a file that later commands find.
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/visible_text.h"
#include "bench/steps/step_tuner.h"
#include "cli/command.h"
#include "cli/interruption.h"
#include "cli/options/tuning_choice.h"
#include "cli/output/output_file.h"
#include "cli/session.h"
#include "models/config/model_config.h"
#include "models/weights/checkpoint.h"
#include "models/weights/weights.h"
#include "runtime/device_selection.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

struct TuneOptions {
  SessionOptions session;
  TunerOptions tuner;
  std::filesystem::path out;  // empty: where later commands look
  bool remove = false;
};

void check(const TuneOptions& options) {
  for (const auto& [option, all] :
       {std::pair{"--batch", &options.tuner.rows}, std::pair{"--prompt", &options.tuner.prompts}})
    for (const int64_t rows : *all)
      if (rows < 1 || rows > kMostTunedRows)
        throw Error({.doing = fmt::format("use {}", option),
                     .object = std::to_string(rows),
                     .detail = fmt::format("it is outside 1 to {}", kMostTunedRows),
                     .fault = Fault::usage});
  for (const int64_t rows : options.tuner.prompts)
    if (std::ranges::count(options.tuner.rows, rows) > 0)
      throw Error({.doing = "use --prompt",
                   .object = std::to_string(rows),
                   .detail = "--batch has the same number, and a file has one entry for it",
                   .fault = Fault::usage});
}

void print(const TunerTrial& trial) {
  if (!trial.refused.empty())
    return fmt::print("{:>5} {:<28} {:>9} cannot be built: {}\n", trial.rows, trial.number, trial.value, trial.refused);
  fmt::print("{:>5} {:<28} {:>9} {:>10.2f} {:>10.2f} {:>+7.2f}% +- {:.2f}%{}\n", trial.rows, trial.number, trial.value,
             trial.us, trial.best_us, -100 * trial.gain_us / trial.best_us, 100 * trial.error_us / trial.best_us,
             trial.taken ? " taken" : "");
  std::fflush(stdout);
}

// Adds steps to the file, where what was measured for other rows stays.
void save(const Tuning& found, const std::filesystem::path& path, bool is_new) {
  Tuning tuning = found;
  std::error_code none;
  if (!is_new && std::filesystem::exists(path, none))
    for (const auto& [rows, step] : read_tuning(path).steps) tuning.steps.emplace(rows, step);
  write_whole_file(path, tuning_json(tuning));
}

// Steps whose trials were cut short: an entry that says no more than `start`, or than the existing one, is not written.
bool is_worth_keeping(const Tuning& found, int64_t rows, const StepTuning& start, const std::filesystem::path& path) {
  const auto step = found.steps.find(rows);
  if (step == found.steps.end() || step->second == start) return false;
  std::error_code none;
  return !std::filesystem::exists(path, none) || !read_tuning(path).steps.contains(rows);
}

int tune(const TuneOptions& options) {
  catch_interruption();
  Session session(options.session);
  const auto told = [first = true](const TunerTrial& trial) mutable {
    if (std::exchange(first, false))
      fmt::print("{:>5} {:<28} {:>9} {:>10} {:>10} {:>8}\n", "rows", "number", "value", "us a step", "best so far",
                 "against it");
    print(trial);
  };
  const TuningKey key = tuning_key(session.device().properties().name, session.config());
  const std::filesystem::path path = options.out.empty() ? tuning_file(key) : options.out;
  umask(umask(0) | S_IWGRP | S_IWOTH);  // or the next command would not trust what lies there
  if (options.out.empty()) std::filesystem::create_directories(path.parent_path());
  bool is_new = !options.out.empty();  // a file that was named holds this measurement alone
  TunerOptions tuner = options.tuner;
  tuner.stop = interrupted;
  tuner.in_use = session.tuning();
  std::vector<std::pair<int64_t, bool>> steps;  // rows, and whether they are a prompt
  for (const int64_t rows : options.tuner.rows) steps.emplace_back(rows, false);
  for (const int64_t rows : options.tuner.prompts) steps.emplace_back(rows, true);
  for (const auto& [rows, of_prompt] : steps) {
    tuner.rows.clear();
    tuner.prompts.clear();
    (of_prompt ? tuner.prompts : tuner.rows).push_back(rows);
    const Tuning found = tune_steps(session.device(), session.kernels(), session.model(), tuner, told);
    const StepTuning start = of_prompt && tuner.in_use ? tuner.in_use->of(rows) : StepTuning{};
    if (interrupted() && !is_worth_keeping(found, rows, start, path)) break;
    save(found, path, std::exchange(is_new, false));
    fmt::print("steps of {} row{}: {}written to {}\n", rows, rows == 1 ? "" : "s",
               interrupted() ? "what was found until it was interrupted is " : "", visible_text(path.string()));
    if (interrupted()) break;
  }
  if (interrupted()) return interruption_exit_code();
  if (options.out.empty()) fmt::print("from now on all commands use it; nodewright tune --remove takes it away\n");
  return 0;
}

int remove_tuning(const TuneOptions& options) {
  check_model_folder(options.session.model);
  const OpenedDevice opened = open_device(options.session.device);
  ModelConfig config = read_model_config(options.session.model);
  config.rounds_head = options.session.head == "fp8", config.cache = cache_format(options.session.cache);
  const Checkpoint checkpoint = options.session.load_format == "dummy" ? Checkpoint::dummy(options.session.model)
                                                                       : Checkpoint::open(options.session.model);
  config.layouts = weight_footprint(checkpoint, config, layer_matrices(options.session.quantization)).layouts;
  const TuningKey key = tuning_key(opened.device->properties().name, config);
  const std::filesystem::path path = tuning_file(key);
  std::error_code failure;
  const bool removed = !path.empty() && std::filesystem::remove(path, failure);
  if (failure) throw Error({.doing = "remove", .object = path.string(), .detail = failure.message()});
  fmt::print("{} for {}, {}: {}\n", removed ? "removed the tuning" : "there is no tuning", key.device,
             visible_text(key.model), visible_text(path.string()));
  fmt::print("commands use {} now\n", shipped_tuning(key).steps.empty() ? "none" : "the program's own");
  return 0;
}

}  // namespace

void add_tune(CLI::App& app, Action& chosen) {
  auto options = std::make_shared<TuneOptions>();
  CLI::App* command = app.add_subcommand("tune", "Find launch shapes that suit this device and model");
  add_model_option(*command, options->session.model, "Hugging Face checkpoint folder, or OWNER/NAME in its cache")
      ->required();
  command->add_option("--device", options->session.device, kDeviceHelp)->capture_default_str();
  add_load_format_option(*command, options->session);
  add_quantization_option(*command, options->session.quantization);
  add_head_option(*command, options->session.head);
  add_cache_option(*command, options->session.cache);
  CLI::Option* const batch =
      command->add_option("--batch", options->tuner.rows, "rows of a step that decodes, one or more")
          ->capture_default_str();
  CLI::Option* const prompt = command->add_option(
      "--prompt", options->tuner.prompts,
      "rows of a prompt's step, one or more: the library's products alone are tried; without --batch no other steps");
  command->add_option("--context", options->tuner.context, "keys that every row attends to")
      ->check(CLI::Range(2, 1 << 24))
      ->capture_default_str();
  command->add_option("--parts", options->tuner.parts,
                      "only these: arithmetic, attend, shared, qkv, out, gate_up, down, head (default: all)");
  command
      ->add_option("--samples", options->tuner.samples,
                   "samples of each figure; fewer than 3 show no noise, and nothing is accepted")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--steps", options->tuner.launches_per_sample, "launches a sample")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  command->add_option("--out", options->out, "file to write, replacing it (default: where the other commands look)");
  command->add_flag("--remove", options->remove, "delete the tuning that was found for this device and model before")
      ->excludes("--out")
      ->excludes(batch)
      ->excludes(prompt)
      ->excludes("--context")
      ->excludes("--parts")
      ->excludes("--samples")
      ->excludes("--steps");
  command->callback([options, batch, prompt, &chosen] {
    if (*prompt && !*batch) options->tuner.rows.clear();
    chosen = [options] {
      check(*options);
      return options->remove ? remove_tuning(*options) : tune(*options);
    };
  });
}

}  // namespace nodewright::cli
