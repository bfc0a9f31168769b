#include "models/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr size_t kDeepestNesting = 64;  // released config.json and index files nest at most 4 levels

std::string system_words(int error) { return std::generic_category().message(error); }

// Watches the parser go by and throws at the first duplicate key or at nesting that is too deep.
class StrictJson {
 public:
  StrictJson(const std::filesystem::path& path, const std::string& doing) : path_(path), doing_(doing) {}

  bool operator()(int /*depth*/, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) open();
    if (event == Event::object_end || event == Event::array_end) keys_.pop_back();
    if (event == Event::key) add(parsed.get_ref<const std::string&>());
    return true;
  }

 private:
  void open() {
    if (keys_.size() == kDeepestNesting)
      throw Error({.doing = doing_,
                   .object = path_.string(),
                   .detail = fmt::format("values nest deeper than {} levels", kDeepestNesting)});
    keys_.emplace_back();
  }

  void add(const std::string& key) {
    if (!keys_.back().insert(key).second)
      throw Error({.doing = doing_,
                   .object = path_.string(),
                   .detail = fmt::format("the key {} appears twice in one object", in_quotes(key))});
  }

  const std::filesystem::path& path_;
  const std::string& doing_;
  std::vector<std::set<std::string>> keys_;  // of the objects and arrays that are open, outermost first
};

}  // namespace

CheckedFile::CheckedFile(std::filesystem::path path) : path_(std::move(path)) {
  // Non-blocking, so that a FIFO under this name is refused below and does not wait for a writer.
  const int descriptor = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) throw Error({.doing = "open", .object = path_.string(), .detail = system_words(errno)});
  struct stat status {};
  const bool known = ::fstat(descriptor, &status) == 0;
  const int error = errno;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    throw Error(
        {.doing = "open", .object = path_.string(), .detail = known ? "not a regular file" : system_words(error)});
  }
  descriptor_ = descriptor;
  bytes_ = static_cast<uint64_t>(status.st_size);
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

nlohmann::json read_json_object(const std::filesystem::path& path, const std::string& doing, uint64_t max_bytes) {
  const CheckedFile file(path);
  if (file.bytes() > max_bytes)
    throw Error({.doing = doing,
                 .object = path.string(),
                 .detail = fmt::format("the file has {} bytes, at most {} are read", file.bytes(), max_bytes)});
  std::string text(file.bytes(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  // The parser would take a zero byte for the end of the text and believe what stands before it.
  if (const size_t zero = text.find('\0'); zero != std::string::npos)
    throw Error(
        {.doing = doing, .object = path.string(), .detail = fmt::format("not valid JSON: byte {} is zero", zero)});
  try {
    nlohmann::json parsed = nlohmann::json::parse(text, StrictJson(path, doing));
    if (!parsed.is_object())
      throw Error({.doing = doing,
                   .object = path.string(),
                   .detail = fmt::format("expected a JSON object, found {}", parsed.type_name())});
    return parsed;
  } catch (const nlohmann::json::exception& e) {
    throw Error({.doing = doing, .object = path.string(), .detail = fmt::format("not valid JSON: {}", e.what())});
  }
}

std::string in_quotes(std::string_view name) {
  constexpr size_t kLongest = 120;
  std::string text;
  for (const char c : name.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 0x20 || byte == 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return name.size() <= kLongest ? fmt::format("'{}'", text) : fmt::format("'{}...' ({} bytes)", text, name.size());
}

}  // namespace nodewright
