// The sources of the kernels that only tests run.
#pragma once

#include <string>

#include "tests/support/scratch_folder.h"
#include "tests/support/test_places.h"

namespace nodewright {

inline std::string kernel_text(const std::string& name) {
  return read_text(test::source_dir() / "tests/graph/kernels" / name);
}

}  // namespace nodewright
