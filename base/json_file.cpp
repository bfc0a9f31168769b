#include "base/json_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>
#include <unordered_set>
#include <vector>

#include "base/checked_file.h"
#include "base/visible_text.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr size_t kDeepestNesting = 64;  // released config.json and index files nest at most 4 levels

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
  std::vector<std::unordered_set<std::string>> keys_;  // of the objects and arrays that are open, outermost first
};

}  // namespace

std::string read_json_text(const std::filesystem::path& path, const std::string& doing, uint64_t max_bytes) {
  const CheckedFile file(path);
  if (file.bytes() > max_bytes)
    throw Error({.doing = doing,
                 .object = path.string(),
                 .detail = fmt::format("the file has {} bytes, at most {} are read", file.bytes(), max_bytes)});
  std::string text(file.bytes(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  if (const size_t zero = text.find('\0'); zero != std::string::npos)
    throw Error(
        {.doing = doing, .object = path.string(), .detail = fmt::format("not valid JSON: byte {} is zero", zero)});
  return text;
}

nlohmann::json read_json_object(const std::filesystem::path& path, const std::string& doing, uint64_t max_bytes) {
  const std::string text = read_json_text(path, doing, max_bytes);
  try {
    nlohmann::json parsed = nlohmann::json::parse(text, StrictJson(path, doing));
    if (!parsed.is_object())
      throw Error({.doing = doing,
                   .object = path.string(),
                   .detail = fmt::format("expected a JSON object, found {}", parsed.type_name())});
    return parsed;
  } catch (const nlohmann::json::exception& e) {
    throw Error({.doing = doing, .object = path.string(), .detail = fmt::format("not valid JSON: {}", json_fault(e))});
  }
}

std::string json_fault(const std::exception& fault) {
  const std::string_view words = fault.what();
  const size_t end = words.starts_with("[json.exception.") ? words.find("] ") : words.npos;
  return std::string(end == words.npos ? words : words.substr(end + 2));
}

std::string in_quotes(std::string_view name) {
  constexpr size_t kLongest = 120;
  std::string text;
  for (const char c : visible_text(name.substr(0, kLongest))) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 0x20 ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return name.size() <= kLongest ? fmt::format("'{}'", text) : fmt::format("'{}...' ({} bytes)", text, name.size());
}

}  // namespace nodewright
