#include "serve/api/asked/request_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <unordered_set>
#include <vector>

#include "base/json_depth.h"
#include "base/work_budget.h"
#include "base/written_number.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr size_t kMostKeys = 4096;
// A number takes 16 bytes where the body has two; a text, a list, an object or a number kept as text about 100.
constexpr size_t kMostValues = 2'000'000, kMostLargeValues = 1'000'000;
constexpr uint64_t kWorkOfValue = 16;  // units of WorkBudget: what building one costs beside its text

// Builds the value while it counts keys, levels, values and work. nlohmann's own would look through all keys for each
// new one.
class BodyBuilder {
 public:
  using number_integer_t = RequestJson::number_integer_t;
  using number_unsigned_t = RequestJson::number_unsigned_t;
  using number_float_t = RequestJson::number_float_t;
  using string_t = RequestJson::string_t;
  using binary_t = RequestJson::binary_t;

  // `large`: the numbers beyond a double's range; null: none yet.
  BodyBuilder(RequestJson& root, const LargeNumbers* large) : root_(root), large_(large) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(number_integer_t value) { return add_number(integer_as_written(value)); }
  bool number_unsigned(number_unsigned_t value) { return add_number(value); }
  bool number_float(number_float_t value, const string_t& text) { return add_number(number_as_written(value, text)); }
  bool string(string_t& value) {
    WorkBudget::spend(value.size());
    return add(std::move(value));
  }
  bool binary(binary_t&) { return false; }
  bool start_object(size_t) { return open(RequestJson::object()); }
  bool start_array(size_t) { return open(RequestJson::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(string_t& name) {
    Level& level = levels_.back();
    if (levels_.size() == 1) field_ = name;
    if (!level.keys.insert(name).second)
      throw bad_request(fmt::format("{} has the key {} twice", levels_.size() == 1 ? "the body" : field_, quoted(name)),
                        levels_.size() == 1 ? name : field_);
    if (level.keys.size() > kMostKeys)
      throw levels_.size() == 1
          ? bad_request(fmt::format("the body has more than {} keys", kMostKeys))
          : bad_request(fmt::format("{} has an object of more than {} keys", place(), kMostKeys), field_);
    level.key = std::move(name);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    if (error.id == LargeNumbers::kFault && large_ == nullptr) return false;
    // The parser's "[json...] parse error at line 1, column 18: syntax error while parsing value - invalid literal;
    // ...".
    constexpr std::string_view kBeforeReason = " - ";
    std::string why = error.what();
    if (const size_t reason = why.find(kBeforeReason); reason != std::string::npos)
      why.erase(0, reason + kBeforeReason.size());
    const bool is_of_field = error.id == LargeNumbers::kFault || why.starts_with("invalid string");
    throw bad_request(fmt::format("the body is not valid JSON at byte {}{}: {}", position,
                                  field_.empty() ? "" : ", near " + quoted(field_), why),
                      is_of_field ? field_ : "");
  }

 private:
  struct Level {
    RequestJson* value;
    std::unordered_set<std::string> keys;
    std::string key;  // of the value to come
  };

  static std::string quoted(const std::string& name) { return shown(RequestJson(name)); }
  std::string place() const { return field_.empty() ? "the body" : field_; }

  // Before the value is made: a body costs a small multiple of its bytes, whatever it holds.
  void count(const RequestJson& value) {
    WorkBudget::spend(kWorkOfValue);
    const bool is_large = value.is_structured() || value.is_string() || value.is_binary();
    if (++values_ > kMostValues)
      throw bad_request(fmt::format("{} holds more than {} values, and no body may", place(), kMostValues), field_);
    if (is_large && ++large_values_ > kMostLargeValues)
      throw bad_request(
          fmt::format("{} holds more than {} texts, lists and objects, and no body may", place(), kMostLargeValues),
          field_);
  }

  RequestJson* put(RequestJson value) {
    count(value);
    if (levels_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Level& level = levels_.back();
    if (level.value->is_array()) {
      level.value->push_back(std::move(value));
      return &level.value->back();
    }
    // Without a look at the keys before: they are known to differ.
    auto& object = level.value->get_ref<RequestJson::object_t&>();
    auto& entries = static_cast<std::vector<RequestJson::object_t::value_type>&>(object);
    entries.emplace_back(std::move(level.key), std::move(value));
    return &entries.back().second;
  }
  bool add(RequestJson value) {
    put(std::move(value));
    return true;
  }
  bool add_number(RequestJson number) {
    const std::string* large = large_ != nullptr ? large_->find(numbers_) : nullptr;
    ++numbers_;
    return add(large != nullptr ? number_as_written(HUGE_VAL, *large) : std::move(number));
  }
  bool open(RequestJson value) {
    if (levels_.size() == kDeepestRequestJson)
      throw bad_request(fmt::format("{} nests deeper than {} levels", place(), kDeepestRequestJson), field_);
    levels_.push_back({put(std::move(value)), {}, {}});
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  RequestJson& root_;
  std::vector<Level> levels_;
  std::string field_;  // of the body, in which the parser is
  const LargeNumbers* large_;
  size_t numbers_ = 0, values_ = 0, large_values_ = 0;  // so far
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Where `word` stands in `text` as a whole word.
size_t place_of_word(const std::string& text, const std::string& word) {
  for (size_t at = text.find(word); at != std::string::npos && !word.empty(); at = text.find(word, at + 1))
    if ((at == 0 || !is_word(text[at - 1])) && (at + word.size() == text.size() || !is_word(text[at + word.size()])))
      return at;
  return std::string::npos;
}

[[noreturn]] void refuse_type(const std::string& name, const RequestJson& value, const char* expected) {
  throw bad_request(fmt::format("{} is {}, expected {}", name, described(value), expected), name);
}

}  // namespace

RequestBody RequestBody::parse(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) throw bad_request("the body holds a zero byte, which JSON never does");
  RequestJson json;
  BodyBuilder builder(json, nullptr);
  if (!RequestJson::sax_parse(text, &builder)) {  // its faults throw, but for one
    const LargeNumbers large(text);
    BodyBuilder again(json, &large);
    RequestJson::sax_parse(large.text(), &again);
  }
  if (!json.is_object()) throw bad_request(fmt::format("the body is {}, expected a JSON object", shown(json)));
  return RequestBody(std::move(json));
}

const RequestJson* RequestBody::find(const std::string& name) const {
  const auto found = json_.find(name);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

const RequestJson* RequestBody::find_one(std::initializer_list<const char*> names) const {
  const RequestJson* found = nullptr;
  const char* first = nullptr;
  for (const char* name : names)
    if (const RequestJson* value = find(name)) {
      if (found != nullptr)
        throw bad_request(fmt::format("{} and {} are one field: drop one of them", first, name), name);
      found = value, first = name;
    }
  return found;
}

bool RequestBody::flag(const std::string& name, bool otherwise) const {
  const RequestJson* value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse_type(name, *value, "true or false");
  return value->get<bool>();
}

std::optional<int64_t> RequestBody::integer(const std::string& name, int64_t least, int64_t most) const {
  const RequestJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  std::optional<int64_t> number;
  refusing(*this, name, [&] { number = integer_of(*value, name, least, most); });
  return number;
}

std::optional<std::string> RequestBody::string(const std::string& name) const {
  const RequestJson* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse_type(name, *value, "a string");
  return value->get<std::string>();
}

const RequestJson* RequestBody::object(const std::string& name) const {
  const RequestJson* value = find(name);
  if (value != nullptr && !value->is_object()) refuse_type(name, *value, "an object");
  return value;
}

const RequestJson* RequestBody::array(const std::string& name) const {
  const RequestJson* value = find(name);
  if (value != nullptr && !value->is_array()) refuse_type(name, *value, "a list");
  return value;
}

std::string RequestBody::field_in(const std::string& message) const {
  std::string field;
  size_t first = std::string::npos;
  for (const auto& [name, value] : json_.items())
    if (const size_t at = place_of_word(message, name); at < first) first = at, field = name;
  return field;
}

void refusing(const RequestBody& body, const std::string& param, const std::function<void()>& read) {
  const auto refuse = [&](const std::string& message) {
    throw bad_request(message, param.empty() ? body.field_in(message) : param);
  };
  try {
    read();
  } catch (const std::invalid_argument& error) {
    refuse(error.what());
  } catch (const Error& error) {
    refuse(error.what());
  }
}

}  // namespace nodewright
