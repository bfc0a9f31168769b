// Whether a file of code or its folder can have been written by somebody else. What is loaded as code runs with all
// rights of this process, so a cache is used only where its owner and mode say that nobody else may have filled it.
#pragma once

#include <filesystem>
#include <string>

namespace nodewright {

// Why the open regular file `descriptor` is not to be trusted: "/c/k.image belongs to user 1001 (eve), and this process
// to user 1000 (adam)"; empty: it belongs to this user or to root, and nobody else may write it. Its group may where it
// is of this user alone: user and group have one number, as a umask of 002 presumes. `path` is for the words.
std::string why_untrusted(int descriptor, const std::filesystem::path& path);

// The same of a file that is there and of its folder, where a swap in between would do no harm: it holds no code.
std::string why_untrusted_file(const std::filesystem::path& path);

// The same of a folder that is there, and of those above it. It may be sticky, as /tmp is. Folders above may belong to
// anybody, since the files in a folder that was put in place of this one have an owner, too; none may be writable by
// all without being sticky.
std::string why_untrusted_folder(const std::filesystem::path& folder);

}  // namespace nodewright
