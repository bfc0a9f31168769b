#include "cli/output/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "runtime/error.h"

namespace nodewright::cli {

void write_whole_file(const std::filesystem::path& path, std::string_view contents) {
  // A device or a pipe (/dev/stdout) cannot be renamed over: it is written in place.
  std::error_code ignored;
  const bool in_place = std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored);
  const std::string target = in_place ? path.string() : path.string() + ".part" + std::to_string(getpid());
  const auto fail = [&](int error) {
    if (!in_place) std::remove(target.c_str());
    throw Error({.doing = "write", .object = path.string(), .detail = std::strerror(error)});
  };
  std::FILE* file = std::fopen(target.c_str(), "wb");
  if (file == nullptr) fail(errno);
  const bool written = std::fwrite(contents.data(), 1, contents.size(), file) == contents.size();
  const int write_error = errno;
  const bool closed = std::fclose(file) == 0;
  if (!written || !closed) fail(written ? errno : write_error);
  if (!in_place && std::rename(target.c_str(), path.c_str()) != 0) fail(errno);
}

}  // namespace nodewright::cli
