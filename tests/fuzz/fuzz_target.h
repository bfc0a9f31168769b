// What every fuzzer of this folder shares: the input as a file, and what may come out of reading it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

// libFuzzer's entry, also called by replay.cpp. Returns 0, or -1 for an input whose like takes too much time to be
// tried again and again; a finding ends the process.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace nodewright::fuzz {

// A regular file in memory whose bytes are replaced by every input; gone when the process ends.
class MemoryFile {
 public:
  explicit MemoryFile(const char* name);
  // Returns the path to open: /proc/self/fd/N.
  const std::filesystem::path& holding(std::string_view bytes);

 private:
  int descriptor_;
  std::filesystem::path path_;
};

// A folder for the life of the process, below $TMPDIR or /tmp.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  const std::filesystem::path& path() const { return path_; }
  void write(std::string_view name, std::string_view bytes) const;
  void remove(std::string_view name) const;

 private:
  std::filesystem::path path_;
};

// The input as text up to its first zero byte, and what stands behind that.
struct TwoParts {
  std::string_view first, second;
  bool has_second = false;
};
TwoParts two_parts(const uint8_t* data, size_t size);

// Runs `read`. An Error that names `named` is how a reader refuses; whatever else it throws is a finding.
void expect_refusal_or_success(std::string_view named, const std::function<void()>& read);

// Ends the process with `claim` on stderr unless it holds.
void require(bool holds, std::string_view claim);

}  // namespace nodewright::fuzz
