// How every row of a measured step, or every request of a measured service, chooses its tokens.
#pragma once

#include <string>

#include "engine/sampling/choice_options.h"

namespace nodewright {

struct RowSampling {
  std::string name = "greedy";  // as it was asked for, or what it means
  Sampling sampling;
  ChoiceOptions choice;
};

}  // namespace nodewright
