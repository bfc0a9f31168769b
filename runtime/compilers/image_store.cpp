#include "runtime/compilers/image_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "runtime/host/path_trust.h"

namespace nodewright {
namespace {

// The file: this header, then the image.
struct Header {
  char magic[8];
  Digest key;
  Digest image_hash;
  uint64_t image_bytes;
};
constexpr char kMagic[8] = {'N', 'W', 'I', 'M', 'A', 'G', 'E', '1'};

// No image comes near this: a length beyond it is damage, not a reason to allocate.
constexpr uint64_t kMostImageBytes = uint64_t{1} << 30;

// An open file that is closed with its scope.
class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  bool open() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

bool read_all(int file, std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t got = ::read(file, to.data(), to.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to = to.subspan(static_cast<size_t>(got));
  }
  return true;
}

bool write_all(int file, std::span<const std::byte> from) {
  while (!from.empty()) {
    const ssize_t put = ::write(file, from.data(), from.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    from = from.subspan(static_cast<size_t>(put));
  }
  return true;
}

// For this user alone, whatever the umask: what lies there is code.
// Those that are there stay as they are. Returns why the last could not be made.
int create_own_folders(const std::filesystem::path& folder) {
  std::filesystem::path made;
  int failure = 0;
  for (const std::filesystem::path& part : folder) {
    made /= part;
    failure = ::mkdir(made.c_str(), S_IRWXU) == 0 ? 0 : errno;
  }
  return failure == EEXIST ? ENOTDIR : failure;
}

std::string reason(const char* doing, const std::string& path) {
  return std::string(doing) + " " + path + ": " + std::strerror(errno);
}

}  // namespace

ImageStore::ImageStore(std::filesystem::path folder) {
  if (folder.empty()) {
    problem_ = "no cache folder: neither NODEWRIGHT_CACHE nor HOME is set";
    return;
  }
  const int failure = create_own_folders(folder);
  std::error_code unused;
  if (!std::filesystem::is_directory(folder, unused)) {
    problem_ = "cannot create the cache folder " + folder.string() + ": " + std::strerror(failure);
    return;
  }
  folder_ = std::move(folder);
  problem_ = why_untrusted_folder(folder_);
}

std::filesystem::path ImageStore::default_folder() {
  const auto from = [](const char* variable) -> std::filesystem::path {
    const char* value = std::getenv(variable);
    return value != nullptr ? value : "";
  };
  if (auto named = from("NODEWRIGHT_CACHE"); !named.empty()) return named;
  if (const auto cache = from("XDG_CACHE_HOME"); !cache.empty()) return cache / "nodewright";
  if (const auto home = from("HOME"); !home.empty()) return home / ".cache" / "nodewright";
  return {};
}

std::filesystem::path ImageStore::file_of(const std::string& name, const Digest& key) const {
  return folder_ / (name + "-" + to_hex(key).substr(0, 32) + ".image");
}

ImageStore::Read ImageStore::read(const std::string& name, const Digest& key) const {
  if (folder_.empty()) return {};
  const File file(::open(file_of(name, key).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // it may be a pipe
  if (!file.open()) return {};
  std::string distrust = why_untrusted(file.get(), file_of(name, key));
  if (distrust.empty()) distrust = problem_;
  if (!distrust.empty()) return {Found::untrusted, {}, std::move(distrust)};
  Read damaged{Found::damaged, {}};
  Header header;
  struct stat size {};
  if (!read_all(file.get(), std::as_writable_bytes(std::span(&header, 1))) || ::fstat(file.get(), &size) != 0)
    return damaged;
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.key != key) return damaged;
  if (header.image_bytes > kMostImageBytes || static_cast<uint64_t>(size.st_size) != sizeof header + header.image_bytes)
    return damaged;
  Read result{Found::yes, std::vector<std::byte>(header.image_bytes)};
  if (!read_all(file.get(), result.image) || hash_of(result.image) != header.image_hash) return damaged;
  return result;
}

std::string ImageStore::write(const std::string& name, const Digest& key, std::span<const std::byte> image) const {
  if (!problem_.empty()) return problem_;
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.key = key;
  header.image_hash = hash_of(image);
  header.image_bytes = image.size();

  std::string temporary = file_of(name, key).string() + ".XXXXXX";
  const File file(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!file.open()) return reason("cannot create", temporary);
  if (!write_all(file.get(), std::as_bytes(std::span(&header, 1))) || !write_all(file.get(), image)) {
    std::string problem = reason("cannot write", temporary);
    ::unlink(temporary.c_str());
    return problem;
  }
  if (::rename(temporary.c_str(), file_of(name, key).c_str()) != 0) {
    std::string problem = reason("cannot publish", temporary);
    ::unlink(temporary.c_str());
    return problem;
  }
  return {};
}

}  // namespace nodewright
