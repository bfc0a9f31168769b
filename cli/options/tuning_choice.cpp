#include "cli/options/tuning_choice.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "cli/options/refusals.h"
#include "cli/output/say.h"
#include "runtime/error.h"
#include "runtime/host/path_trust.h"

namespace nodewright::cli {
namespace {

// "steps of 1, 8 rows".
std::string rows_of(const Tuning& tuning) {
  std::string rows;
  for (const auto& [of_step, step] : tuning.steps) rows += (rows.empty() ? "" : ", ") + std::to_string(of_step);
  return rows.empty() ? "no steps" : fmt::format("steps of {} row{}", rows, rows == "1" ? "" : "s");
}

Tuning read_for(const std::filesystem::path& path, const TuningKey& key) {
  Tuning tuning = read_tuning(path);
  const auto refuse = [&](const char* what, const std::string& of_file, const std::string& here) {
    throw Error({.doing = "use tuning",
                 .object = path.string(),
                 .detail = fmt::format("it was measured for {} '{}', not '{}'", what, of_file, here),
                 .advice = "make one with nodewright tune, or --tuning none",
                 .fault = Fault::usage});
  };
  if (tuning.key.device != key.device) refuse("the device", tuning.key.device, key.device);
  TuningKey near = key;
  while (tuning.key.model != near.model) {
    const TuningKey nearer = nearer_bf16(near);
    if (nearer == near) refuse("a model of", tuning.key.model, key.model);
    near = nearer;
  }
  return tuning_for(std::move(tuning), key);
}

// Where the user's own lies, if anywhere.
std::filesystem::path own_file(const TuningKey& key) {
  const std::filesystem::path path = tuning_file(key);
  std::error_code unused;
  if (path.empty() || std::filesystem::exists(path, unused)) return path;
  const TuningKey nearer = nearer_bf16(key);
  return nearer == key ? std::filesystem::path() : own_file(nearer);
}

}  // namespace

TuningChoice choose_tuning(const std::string& word, bool invariant, const TuningKey& key) {
  const bool is_auto = word == "auto";
  if (word == "none") return {nullptr, "none, as --tuning says"};
  if (invariant && is_auto) return {nullptr, "none: numerics are invariant"};
  if (invariant)
    refuse_pair("--tuning and --numerics",
                "a tuned step sums in an order of its own, which invariant numerics cannot take",
                "--tuning none, or --numerics fast");
  const std::filesystem::path path = is_auto ? own_file(key) : std::filesystem::path(word);
  Tuning shipped = shipped_tuning(key);
  bool is_there = !path.empty();
  if (const std::string why = is_auto && is_there ? why_untrusted_file(path) : ""; !why.empty()) {
    say("nodewright: a tuning on disk is not used: {}; try: nodewright tune, or --tuning FILE\n", why);
    is_there = false;
  }
  if (!is_there) {
    if (shipped.steps.empty()) return {nullptr, "none"};
    const std::string words = "the program's own, " + rows_of(shipped);
    return {std::make_shared<const Tuning>(std::move(shipped)), words};
  }
  Tuning tuning = read_for(path, key);
  const std::string words = fmt::format("{}, {}", path.string(), rows_of(tuning));
  if (is_auto) {  // what was not measured here
    tuning.steps.merge(shipped.steps);
    if (tuning.products == ProductSizes{}) tuning.products = std::move(shipped.products);
  }
  return {std::make_shared<const Tuning>(std::move(tuning)), words};
}

}  // namespace nodewright::cli
