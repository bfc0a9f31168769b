// The PTX that NVRTC makes of a kernel, and whether a path through it ends without a griddepcontrol.wait: a walk over
// all branches, of which only the predicate of the dialect (nodewright_waited) is followed by its value.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/compilers/nvrtc.h"

namespace nodewright::test {

// The PTX of a program that compiles, for compute capability 9.0; Nvrtc gives out cubins alone.
inline std::string ptx_of(const NvrtcSource& source) {
  using Program = void*;
  void* library = dlopen(Nvrtc::load()->path().c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto entry = [&](const char* name) { return dlsym(library, name); };
  std::vector<const char*> texts, paths, options;
  for (const NvrtcHeader& header : source.headers) {
    texts.push_back(header.text.c_str());
    paths.push_back(header.path.c_str());
  }
  const std::vector<std::string> words = nvrtc_options(9, 0);
  for (const std::string& word : words) options.push_back(word.c_str());
  using Create = int (*)(Program*, const char*, const char*, int, const char* const*, const char* const*);
  using Compile = int (*)(Program, int, const char* const*);
  Program program = nullptr;
  EXPECT_EQ(
      reinterpret_cast<Create>(entry("nvrtcCreateProgram"))(&program, source.text.c_str(), source.path.c_str(),
                                                            static_cast<int>(texts.size()), texts.data(), paths.data()),
      0);
  EXPECT_EQ(reinterpret_cast<Compile>(entry("nvrtcCompileProgram"))(program, static_cast<int>(options.size()),
                                                                    options.data()),
            0);
  size_t bytes = 0;
  EXPECT_EQ(reinterpret_cast<int (*)(Program, size_t*)>(entry("nvrtcGetPTXSize"))(program, &bytes), 0);
  std::string ptx(bytes, '\0');
  EXPECT_EQ(reinterpret_cast<int (*)(Program, char*)>(entry("nvrtcGetPTX"))(program, ptx.data()), 0);
  reinterpret_cast<int (*)(Program*)>(entry("nvrtcDestroyProgram"))(&program);
  return ptx;
}

// The statements of the kernel, one a line, and where its labels are.
struct PtxKernel {
  std::vector<std::string> statements;
  std::map<std::string, size_t> labels;
};

inline PtxKernel kernel_of(const std::string& ptx) {
  PtxKernel kernel;
  std::istringstream lines(ptx.substr(ptx.find(".entry")));
  bool inside = false;
  for (std::string line; std::getline(lines, line) && line != "}";) {
    line.erase(0, line.find_first_not_of(" \t"));
    if (line == "{") inside = true;
    if (!inside || line.empty() || line[0] == '/' || line[0] == '.' || line[0] == '{') continue;
    if (line.back() == ':')
      kernel.labels[line.substr(0, line.size() - 1)] = kernel.statements.size();
    else
      kernel.statements.push_back(line);
  }
  return kernel;
}

inline bool may_end_unwaited(const std::string& ptx) {
  const PtxKernel kernel = kernel_of(ptx);
  using Place = std::tuple<size_t, bool, bool>;  // the next statement, whether it has waited, nodewright_waited
  std::set<Place> seen;
  std::vector<Place> open = {{0, false, false}};
  const auto go = [&](size_t at, bool waited, bool flag) {
    if (seen.emplace(at, waited, flag).second) open.emplace_back(at, waited, flag);
  };
  while (!open.empty()) {
    auto [at, waited, flag] = open.back();
    open.pop_back();
    if (at >= kernel.statements.size()) return true;
    const std::string& statement = kernel.statements[at];
    const auto has = [&](const char* words) { return statement.find(words) != std::string::npos; };
    if (has("bra")) {
      const size_t label = statement.find('$');
      go(kernel.labels.at(statement.substr(label, statement.find(';') - label)), waited, flag);
      if (statement[0] == '@') go(at + 1, waited, flag);
      continue;
    }
    EXPECT_FALSE(has("brx") || has("exit;") || (has("ret;") && statement[0] == '@')) << statement;
    if (has("ret;")) {
      if (!waited) return true;
      continue;
    }
    if (has("setp.eq.u32 nodewright_waited, 0, 0;")) flag = true;
    if (has("setp.ne.u32 nodewright_waited, 0, 0;")) flag = false;
    if (has("griddepcontrol.wait;")) waited |= !has("@!nodewright_waited") || !flag;
    go(at + 1, waited, flag);
  }
  return false;
}

}  // namespace nodewright::test
