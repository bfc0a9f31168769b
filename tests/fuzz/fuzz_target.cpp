#include "tests/fuzz/fuzz_target.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "runtime/error.h"

namespace nodewright::fuzz {

void require(bool holds, std::string_view claim) {
  if (holds) return;
  std::fprintf(stderr, "fuzzer: does not hold: %.*s\n", static_cast<int>(claim.size()), claim.data());
  std::abort();
}

MemoryFile::MemoryFile(const char* name) : descriptor_(::memfd_create(name, MFD_CLOEXEC)) {
  require(descriptor_ >= 0, "memfd_create gives a file");
  path_ = "/proc/self/fd/" + std::to_string(descriptor_);
}

const std::filesystem::path& MemoryFile::holding(std::string_view bytes) {
  const auto size = static_cast<ssize_t>(bytes.size());
  require(::ftruncate(descriptor_, 0) == 0 && ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) == size,
          "the input can be written to its file");
  return path_;
}

ScratchFolder::ScratchFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "nodewright-fuzz-XXXXXX").string();
  require(::mkdtemp(name.data()) != nullptr, "a scratch folder can be made");
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code unused;
  std::filesystem::remove_all(path_, unused);
}

void ScratchFolder::write(std::string_view name, std::string_view bytes) const {
  std::ofstream file(path_ / name, std::ios::binary | std::ios::trunc);
  file << bytes;
  file.close();
  require(!file.fail(), "the input can be written to its file");
}

void ScratchFolder::remove(std::string_view name) const {
  std::error_code unused;
  std::filesystem::remove(path_ / name, unused);
}

TwoParts two_parts(const uint8_t* data, size_t size) {
  const std::string_view whole(reinterpret_cast<const char*>(data), size);
  const size_t zero = whole.find('\0');
  if (zero == std::string_view::npos) return {whole, {}, false};
  return {whole.substr(0, zero), whole.substr(zero + 1), true};
}

void expect_refusal_or_success(std::string_view named, const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    require(std::string_view(error.what()).find(named) != std::string_view::npos, "a refusal names its file");
  }  // nothing else is caught: it ends the process, with its stack
}

}  // namespace nodewright::fuzz
