#include "runtime/host/path_trust.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

namespace nodewright {
namespace {

namespace fs = std::filesystem;

// "user 1001 (eve)"; the number alone where it has no name here.
std::string user_text(uid_t user) {
  std::array<char, 1024> names{};
  passwd entry{};
  passwd* found = nullptr;
  std::string text = "user " + std::to_string(user);
  if (getpwuid_r(user, &entry, names.data(), names.size(), &found) == 0 && found != nullptr)
    text += " (" + std::string(entry.pw_name) + ")";
  return text;
}

std::string mode_text(mode_t mode) {
  std::array<char, 8> digits{};
  std::snprintf(digits.data(), digits.size(), "%04o", static_cast<unsigned>(mode & 07777));
  return digits.data();
}

bool is_ours(const struct stat& found) { return found.st_uid == geteuid() || found.st_uid == 0; }

// Some distributions give each user a group of the same number, with nobody else in it, and a umask of 002.
bool is_own_group(gid_t group) { return group == getegid() && group == geteuid() && group != 0; }

bool group_writes(const struct stat& found) { return (found.st_mode & S_IWGRP) != 0 && !is_own_group(found.st_gid); }

std::string foreign(const fs::path& path, const struct stat& found) {
  return path.string() + " belongs to " + user_text(found.st_uid) + ", and this process to " + user_text(geteuid());
}

std::string writable(const fs::path& path, const struct stat& found) {
  return "others may write " + path.string() + " of " + user_text(found.st_uid) + ": its mode is " +
         mode_text(found.st_mode);
}

std::string unknown(const fs::path& path) { return "cannot look at " + path.string() + ": " + std::strerror(errno); }

}  // namespace

std::string why_untrusted(int descriptor, const fs::path& path) {
  struct stat found {};
  if (fstat(descriptor, &found) != 0) return unknown(path);
  if (!S_ISREG(found.st_mode)) return path.string() + " is no regular file";
  if (!is_ours(found)) return foreign(path, found);
  if ((found.st_mode & S_IWOTH) != 0 || group_writes(found)) return writable(path, found);
  return "";
}

std::string why_untrusted_file(const fs::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return unknown(path);
  std::string why = why_untrusted(descriptor, path);
  close(descriptor);
  return why.empty() ? why_untrusted_folder(path.parent_path()) : why;
}

std::string why_untrusted_folder(const fs::path& folder) {
  std::error_code failed;
  fs::path real = fs::canonical(folder, failed);
  if (failed) return "cannot look at " + folder.string() + ": " + failed.message();
  struct stat found {};
  if (stat(real.c_str(), &found) != 0) return unknown(real);
  if (!is_ours(found)) return foreign(real, found);
  if ((found.st_mode & S_ISVTX) == 0 && group_writes(found)) return writable(real, found);
  while (true) {
    if ((found.st_mode & S_IWOTH) != 0 && (found.st_mode & S_ISVTX) == 0) return writable(real, found);
    if (real == real.root_path()) return "";
    real = real.parent_path();
    if (stat(real.c_str(), &found) != 0) return unknown(real);
  }
}

}  // namespace nodewright
