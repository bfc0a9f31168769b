// Numbers of JSON as they were written. A number that its value does not print as (an integer beyond 64 bits, 1e5,
// 0.70, -0, 1E400) is kept as its text, in a binary value, which no text of JSON can hold. Ask these functions for
// numbers, and json_text() for JSON: nlohmann's own know nothing of them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace nodewright {

using WrittenJson = nlohmann::ordered_json;

// JSON with its numbers as they stand there. Throws WrittenJson::parse_error.
WrittenJson parse_as_written(std::string_view text);
// The same as one line, without spaces. `ascii`: escapes what is beyond. Invalid UTF-8 becomes U+FFFD.
std::string json_text(const WrittenJson& json, bool ascii = false);

// A number of nlohmann's own, or one kept as text.
bool is_json_number(const WrittenJson& json);
// A number kept as text.
bool is_written_number(const WrittenJson& json);
// "an object", "a list", "a string", "a number", "a boolean" or "null".
const char* json_kind(const WrittenJson& json);
// As it is written.
std::string number_text(const WrittenJson& number);
// The nearest; infinite beyond a double's range.
double number_value(const WrittenJson& number);
// Whether it has no fraction: 100, 1.0, 1e2.
bool is_whole_number(const WrittenJson& json);
// Its value, where it is a whole one and fits.
std::optional<int64_t> whole_number(const WrittenJson& json);
// Whether they mean the same: 1, 1.0 and 1e0 do, within lists and objects, too. Spends WorkBudget.
bool same_json(const WrittenJson& a, const WrittenJson& b);

// A number by its value and its text, for parsers.
WrittenJson number_as_written(double value, const std::string& text);
// `value` of a number with a minus sign.
WrittenJson integer_as_written(int64_t value);

// The numbers of a text of JSON that are beyond a double's range, for which nlohmann's parser stops: text() has 1 in
// their places, find() the texts that belong there. Takes the first 10,000: the parser stops at the next.
class LargeNumbers {
 public:
  explicit LargeNumbers(std::string_view text);
  const std::string& text() const { return text_; }
  // The text of number `place`, counted from 0; null where it is not large.
  const std::string* find(size_t place) const {
    const auto found = texts_.find(place);
    return found == texts_.end() ? nullptr : &found->second;
  }
  // nlohmann's number of the fault that calls for this.
  static constexpr int kFault = 406;

 private:
  std::string text_;
  std::unordered_map<size_t, std::string> texts_;
};

}  // namespace nodewright
