// Files of a checkpoint folder, read by checked copies. Nothing is mapped: a file that shrinks while it is mapped ends
// the process with SIGBUS, while a short pread is an Error that names the file and the numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace nodewright {

// A regular file open for reading. It keeps the file it opened: renaming another one over the path changes nothing,
// and truncating it in place makes the next read past the new end an Error.
class CheckedFile {
 public:
  // Throws Error if the path is missing, unreadable, or not a regular file.
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

// The whole file as JSON. Refuses a file above `max_bytes`, text that is not UTF-8 or not JSON, duplicate keys, nesting
// deeper than 64, and a document that is not an object. `doing` completes "cannot ..." in the errors.
nlohmann::json read_json_object(const std::filesystem::path& path, const std::string& doing, uint64_t max_bytes);

// The text between quotes, shortened to its first 120 bytes, control characters as \xNN: names come from files and may
// be hostile.
std::string in_quotes(std::string_view name);

}  // namespace nodewright
