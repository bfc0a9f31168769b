// Files of a checkpoint folder, read by checked copies. Nothing is mapped: a file that shrinks while it is mapped ends
// the process with SIGBUS, while a short pread is an Error that names the file and the numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace nodewright {

// A regular file open for reading. It keeps the file it opened: renaming another one over the path changes nothing,
// and truncating it in place makes the next read past the new end an Error.
class CheckedFile {
 public:
  // Throws Error if the path is missing, unreadable, not a regular file, or plainly something else: a Git LFS pointer,
  // a GGUF file, a web page.
  explicit CheckedFile(std::filesystem::path path);
  CheckedFile(CheckedFile&& other) noexcept;
  CheckedFile& operator=(CheckedFile&& other) noexcept;
  ~CheckedFile();

  const std::filesystem::path& path() const { return path_; }
  uint64_t bytes() const { return bytes_; }  // size when the file was opened

  // Fills `to` from `offset`; throws Error when the file ends before. Several threads may read one file.
  void read(uint64_t offset, std::span<std::byte> to) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  uint64_t bytes_ = 0;
};

}  // namespace nodewright
