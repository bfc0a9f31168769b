#include "runtime/libraries/cuda_library_places.h"

#include <glob.h>

#include <cstdlib>
#include <filesystem>

namespace nodewright {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Patterns that end with a slash; empty for the loader's own search.
std::vector<std::string> library_folders() {
  std::vector<std::string> folders;
  std::error_code failed;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path().string();
  if (!failed) {
    folders.push_back(program + "/lib/");
    folders.push_back(program + "/../lib/nodewright/");
    folders.push_back(program + "/cuda-wheels/nvidia/*/lib/");
    folders.push_back(program + "/../cuda-wheels/nvidia/*/lib/");  // build/tests, build/examples
    folders.push_back(program + "/../build/cuda-wheels/nvidia/*/lib/");
  }
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string home = environment(variable); !home.empty()) {
      folders.push_back(home + "/lib64/");
      folders.push_back(home + "/lib/");
    }
  folders.push_back("");
  folders.push_back("/usr/local/cuda/lib64/");
  folders.push_back("/usr/local/cuda-*/lib64/");
  const std::string home = environment("HOME");
  for (const std::string& prefix : {environment("VIRTUAL_ENV"), environment("CONDA_PREFIX"), home + "/.local",
                                    home + "/.pyenv/versions/*", std::string("/usr/local"), std::string("/usr")})
    if (!prefix.empty())
      for (const char* packages : {"site-packages", "dist-packages"}) {
        // Debian's packages lie under python3 without a minor version.
        folders.push_back(prefix + "/lib/python3*/" + packages + "/nvidia/*/lib/");
        folders.push_back(prefix + "/lib/python3*/" + packages + "/torch/lib/");
      }
  return folders;
}

}  // namespace

std::vector<std::string> cuda_library_places(std::span<const char* const> files, const char* override_variable) {
  if (std::string named = environment(override_variable); !named.empty()) return {named};
  std::vector<std::string> places;
  for (const std::string& folder : library_folders())
    for (const char* file : files) {
      if (folder.empty()) {
        places.emplace_back(file);
        continue;
      }
      for (std::string& place : files_matching(folder + file)) places.push_back(std::move(place));
    }
  return places;
}

std::vector<std::string> cuda_include_folders(const std::string& header) {
  for (const std::string& folder : library_folders()) {
    if (folder.empty()) continue;
    for (const std::string& found : files_matching(folder + "../include")) {
      const std::string include = std::filesystem::canonical(found).string();
      std::vector<std::string> both = {include, include + "/cccl"};  // where CUDA 13 keeps CUB
      std::erase_if(both, [](const std::string& path) { return !std::filesystem::is_directory(path); });
      for (const std::string& path : both)
        if (std::filesystem::exists(path + "/" + header)) return both;
    }
  }
  return {};
}

std::vector<std::string> files_matching(const std::string& pattern) {
  std::vector<std::string> files;
  glob_t found{};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
  globfree(&found);
  return files;
}

}  // namespace nodewright
