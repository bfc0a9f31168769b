#include "base/file_to_read.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/visible_text.h"

namespace nodewright {
namespace {

// Why a file is not read, and what to try.
struct Obstacle {
  std::string detail, advice;
};

// Empty where a file of this kind is read.
Obstacle obstacle_of_kind(mode_t mode, bool takes_pipes) {
  constexpr const char* kItself = "the file itself in its place";
  if (S_ISREG(mode)) return {};
  if (S_ISDIR(mode)) return {"it is a folder, not a file", kItself};
  if (S_ISSOCK(mode)) return {"it is a socket, not a file", kItself};
  if (takes_pipes && (S_ISFIFO(mode) || S_ISCHR(mode))) return {};
  if (S_ISFIFO(mode)) return {"it is a named pipe (FIFO), not a file", kItself};
  return {"it is a device, not a file", kItself};
}

Obstacle obstacle_of_error(const std::filesystem::path& path, int error) {
  std::error_code unused;
  if (error == ENOENT && std::filesystem::is_symlink(path, unused))
    return {fmt::format("it is a link to {}, where there is no file",
                        visible_text(std::filesystem::read_symlink(path, unused).string())),
            "download the file again, or remove the link"};
  if (error == ENXIO) return obstacle_of_kind(S_IFSOCK, false);
  const std::string words = std::generic_category().message(error);
  if (error == EACCES || error == EPERM)
    return {"this user may not read it: " + words, "the right to read it (chmod), and to enter its folders"};
  return {words, {}};
}

[[noreturn]] void refuse(const std::filesystem::path& path, const FileToRead& use, Obstacle why) {
  throw Error({.doing = use.doing,
               .object = path.string(),
               .detail = std::move(why.detail),
               .advice = std::move(why.advice),
               .fault = use.fault});
}

}  // namespace

bool is_present(const std::filesystem::path& path) noexcept {
  struct stat unused {};
  return ::lstat(path.c_str(), &unused) == 0;
}

int open_to_read(const std::filesystem::path& path, const FileToRead& use) {
  // Otherwise a pipe under this name would be waited for before it is refused.
  const int waits = use.takes_pipes ? 0 : O_NONBLOCK;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | waits);
  if (file < 0) refuse(path, use, obstacle_of_error(path, errno));
  struct stat status {};
  Obstacle why =
      ::fstat(file, &status) == 0 ? obstacle_of_kind(status.st_mode, use.takes_pipes) : obstacle_of_error(path, errno);
  if (why.detail.empty()) return file;
  ::close(file);
  refuse(path, use, std::move(why));
}

std::string read_whole_file(const std::filesystem::path& path, uint64_t max_bytes, const FileToRead& use) {
  const int file = open_to_read(path, use);
  std::string text;
  Obstacle why;
  for (size_t done = 0; why.detail.empty();) {
    text.resize(std::max(2 * done, size_t{1} << 16));
    const ssize_t got = ::read(file, text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) why = obstacle_of_error(path, errno);
    if (got > 0) done += static_cast<size_t>(got);
    if (done > max_bytes) why = {fmt::format("it has more than {} bytes", max_bytes), "a shorter file"};
    if (got > 0) continue;
    text.resize(done);
    break;
  }
  ::close(file);
  if (!why.detail.empty()) refuse(path, use, std::move(why));
  return text;
}

}  // namespace nodewright
