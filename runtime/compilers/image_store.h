// Compiled kernels on disk: one file per image, named by what it was made from. Knows files, not compilers. Never
// throws for what the disk does: a store that cannot be used is only slower.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/compilers/content_hash.h"

namespace nodewright {

class ImageStore {
 public:
  // Creates `folder`, for this user alone, where that is possible; empty: the store stays shut.
  explicit ImageStore(std::filesystem::path folder);

  // $NODEWRIGHT_CACHE, or else $XDG_CACHE_HOME/nodewright, or ~/.cache/nodewright; empty without any of them.
  static std::filesystem::path default_folder();

  enum class Found { yes, no, damaged, untrusted };
  struct Read {
    Found found = Found::no;
    std::vector<std::byte> image;  // empty unless found
    std::string problem = {};      // untrusted: whose the file or the folder is
  };
  // The image made from what `key` is the hash of. Damaged: a file is there, but it is cut short, altered or of another
  // key. Untrusted: somebody else may have written it (runtime/host/path_trust.h); nothing of it is read.
  Read read(const std::string& name, const Digest& key) const;

  // Publishes the image by renaming a finished file, so that a reader or a second writer never sees half of one.
  // Returns what went wrong, or an empty text. Nothing is written where others may write the folder.
  std::string write(const std::string& name, const Digest& key, std::span<const std::byte> image) const;

  std::filesystem::path file_of(const std::string& name, const Digest& key) const;
  const std::filesystem::path& folder() const { return folder_; }  // empty when shut
  const std::string& problem() const { return problem_; }          // why it is shut, or its folder is not trusted

 private:
  std::filesystem::path folder_;
  std::string problem_;
};

}  // namespace nodewright
