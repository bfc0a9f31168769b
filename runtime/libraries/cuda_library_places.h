// Where the libraries of the CUDA toolkit may lie on a machine: the toolkit, pip's wheels, the loader's path. Opens
// nothing.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace nodewright {

// Files and names to try with dlopen, in order, for a library known as any of `files`: the value of the environment
// variable `override_variable` alone if it is set; otherwise the libraries beside the program, $CUDA_HOME, $CUDA_PATH,
// the loader's path, /usr/local/cuda*, and Python's wheels (nvidia/*/lib, torch/lib).
std::vector<std::string> cuda_library_places(std::span<const char* const> files, const char* override_variable);

// The folders that hold the toolkit's headers, `header` ("cub/cub.cuh") among them, for KernelRequest::include_folders:
// of $CUDA_HOME, $CUDA_PATH, /usr/local/cuda* or Python's wheels (nvidia/*/include), the first that has it. Empty when
// none has.
std::vector<std::string> cuda_include_folders(const std::string& header);

// Existing files that match a shell pattern, sorted.
std::vector<std::string> files_matching(const std::string& pattern);

}  // namespace nodewright
