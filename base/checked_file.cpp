#include "base/checked_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/file_to_read.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

std::string system_words(int error) { return std::generic_category().message(error); }

// What often stands in the place of a checkpoint's file, by its first bytes.
struct Stranger {
  std::string_view first_bytes, what, advice;
};
constexpr Stranger kStrangers[] = {
    {"version https://git-lfs.github.com/spec/",
     "it is a Git LFS pointer, which stands for a file that was not fetched",
     "run git lfs pull in that folder, or download the file"},
    {"GGUF", "it is a GGUF file, whose name does not end in .gguf",
     "rename it to end in .gguf, and pass it as --model"},
    {"<!DOCTYPE", "it is a web page, not a file of a checkpoint", "download the file itself"},
};

}  // namespace

CheckedFile::CheckedFile(std::filesystem::path path) : path_(std::move(path)) {
  descriptor_ = open_to_read(path_);
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) {
    const int error = errno;
    ::close(std::exchange(descriptor_, -1));
    throw Error({.doing = "open", .object = path_.string(), .detail = system_words(error)});
  }
  bytes_ = static_cast<uint64_t>(status.st_size);
  char first[64] = {};
  const ssize_t got = ::pread(descriptor_, first, sizeof first, 0);
  for (const Stranger& one : kStrangers) {
    if (one.first_bytes == "GGUF" && path_.extension() == ".gguf") continue;  // base/gguf_file.h reads it
    if (got <= 0 || !std::string_view(first, static_cast<size_t>(got)).starts_with(one.first_bytes)) continue;
    ::close(std::exchange(descriptor_, -1));  // no destructor runs for what was never constructed
    throw Error({.doing = "read",
                 .object = path_.string(),
                 .detail = std::string(one.what),
                 .advice = std::string(one.advice)});
  }
}

CheckedFile::CheckedFile(CheckedFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), bytes_(other.bytes_) {}

CheckedFile& CheckedFile::operator=(CheckedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

CheckedFile::~CheckedFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void CheckedFile::read(uint64_t offset, std::span<std::byte> to) const {
  constexpr size_t kLargestRead = size_t{1} << 30;  // Linux returns at most 0x7ffff000 bytes a call (man 2 read)
  size_t done = 0;
  while (done < to.size()) {
    const size_t want = std::min(to.size() - done, kLargestRead);
    const ssize_t got = ::pread(descriptor_, to.data() + done, want, static_cast<off_t>(offset + done));
    if (got > 0) {
      done += static_cast<size_t>(got);
      continue;
    }
    const int error = errno;
    if (got < 0 && error == EINTR) continue;
    const std::string where = fmt::format("{} bytes from offset {}", to.size(), offset);
    if (got < 0) throw Error({.doing = "read", .object = path_.string(), .detail = where + ": " + system_words(error)});
    throw Error({.doing = "read",
                 .object = path_.string(),
                 .detail = fmt::format("{}: the file ends after {} bytes and had {} when it was opened", where,
                                       offset + done, bytes_),
                 .advice = "keep the checkpoint unchanged while it is being loaded"});
  }
}

}  // namespace nodewright
