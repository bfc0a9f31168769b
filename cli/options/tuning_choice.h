// Which tuning the commands use: the user's own for the device and the model, a file that --tuning names, or the one
// that the program brings; and how they say so.
#pragma once

#include <memory>
#include <string>

#include "models/tuning/step_tuning.h"
#include "runtime/device.h"

namespace nodewright::cli {

struct TuningChoice {
  std::shared_ptr<const Tuning> tuning;  // null: steps are as the shapes of kernels say
  std::string words;                     // "/path/of/file, steps of 1, 8 rows", "none", ...
};

// `word`: auto, none or a path. Throws Error where a file cannot be used, was measured for something else, or
// contradicts invariant numerics. A file for nearer_bf16() counts where `key` has none of its own.
TuningChoice choose_tuning(const std::string& word, bool invariant, const TuningKey& key);

}  // namespace nodewright::cli
