// Opening a file to read it: the one place that says what stands there instead of a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/error.h"

namespace nodewright {

struct FileToRead {
  std::string doing = "open";  // completes "cannot ..." in the errors
  // A file that a person names may be a pipe or a terminal (/dev/stdin, <(command)), for whose writer opening waits;
  // one of a checkpoint may not.
  bool takes_pipes = false;
  Fault fault = Fault::run_time;
};

// Whether there is something of this name: a file, a folder, or a link, also one that leads nowhere. What is there is
// read, or it is an error; only what is absent may be passed over.
bool is_present(const std::filesystem::path& path) noexcept;

// The descriptor, of which the caller is the owner. Throws Error that says what is there: nothing, a link that leads
// nowhere, a folder, a pipe, a socket, a device, or a file that this user may not read.
int open_to_read(const std::filesystem::path& path, const FileToRead& use = {});

// All of it. Throws like open_to_read(), and where it has more than `max_bytes`.
std::string read_whole_file(const std::filesystem::path& path, uint64_t max_bytes, const FileToRead& use);

}  // namespace nodewright
