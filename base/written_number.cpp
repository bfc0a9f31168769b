#include "base/written_number.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/work_budget.h"

namespace nodewright {
namespace {

constexpr size_t kMostExponentDigits = 9;
constexpr uint64_t kWorkOfComparison = 64;  // of numbers, 0.3 µs
constexpr size_t kMostLargeNumbers = 10'000;

// A number taken apart: 0.DIGITS × 10^exponent, without zeros around the digits. Zero has no digits.
struct Decimal {
  bool is_negative = false;
  std::string digits;
  int64_t exponent = 0;
  bool operator==(const Decimal&) const = default;
};

int64_t exponent_of(std::string_view text) {
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size()));
  int64_t value = 0;
  if (text.size() > kMostExponentDigits)
    value = INT32_MAX;
  else
    std::from_chars(text.data(), text.data() + text.size(), value);
  return is_negative ? -value : value;
}

Decimal decimal_of(std::string_view text) {
  Decimal decimal;
  decimal.is_negative = text.starts_with('-');
  if (decimal.is_negative) text.remove_prefix(1);
  const size_t mark = std::min(text.find_first_of("eE"), text.size());
  if (mark < text.size()) decimal.exponent = exponent_of(text.substr(mark + 1));
  text = text.substr(0, mark);
  const size_t point = std::min(text.find('.'), text.size());
  decimal.digits = text.substr(0, point);
  if (point < text.size()) decimal.digits += text.substr(point + 1);
  decimal.exponent += static_cast<int64_t>(point);
  const size_t zeros = std::min(decimal.digits.find_first_not_of('0'), decimal.digits.size());
  decimal.digits.erase(0, zeros);
  decimal.exponent -= static_cast<int64_t>(zeros);
  decimal.digits.erase(decimal.digits.find_last_not_of('0') + 1);
  if (decimal.digits.empty()) return {};
  return decimal;
}

double value_of_text(const std::string& text) {
  double value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  return fault == std::errc() ? value : std::strtod(text.c_str(), nullptr);  // which tells large from small
}

// nlohmann's builder of values, with numbers as they are written.
class WrittenBuilder : public nlohmann::detail::json_sax_dom_parser<WrittenJson> {
  using Base = nlohmann::detail::json_sax_dom_parser<WrittenJson>;

 public:
  WrittenBuilder(WrittenJson& root, const LargeNumbers* large) : Base(root, true), large_(large) {}

  bool number_integer(number_integer_t value) { return add(integer_as_written(value)); }
  bool number_unsigned(number_unsigned_t value) { return add(WrittenJson(value)); }
  bool number_float(number_float_t value, const string_t& text) { return add(number_as_written(value, text)); }

 private:
  bool add(WrittenJson number) {
    const std::string* large = large_ != nullptr ? large_->find(numbers_) : nullptr;
    ++numbers_;
    if (large != nullptr) number = number_as_written(HUGE_VAL, *large);
    if (number.is_binary()) return Base::binary(number.get_binary());
    if (number.is_number_float()) return Base::number_float(number.get<double>(), {});
    return number.is_number_unsigned() ? Base::number_unsigned(number.get<uint64_t>())
                                       : Base::number_integer(number.get<int64_t>());
  }

  const LargeNumbers* large_;
  size_t numbers_ = 0;
};

bool holds_written(const WrittenJson& json) {
  if (!json.is_structured()) return is_written_number(json);
  return std::any_of(json.begin(), json.end(), holds_written);
}

void append_json_text(const WrittenJson& json, bool ascii, std::string& out) {
  if (!holds_written(json)) {
    out += json.dump(-1, ' ', ascii, WrittenJson::error_handler_t::replace);
  } else if (json.is_array()) {
    out += '[';
    for (const WrittenJson& one : json) {
      if (&one != &json.front()) out += ',';
      append_json_text(one, ascii, out);
    }
    out += ']';
  } else if (json.is_object()) {
    out += '{';
    for (bool first = true; const auto& [key, one] : json.items()) {
      if (!std::exchange(first, false)) out += ',';
      append_json_text(WrittenJson(key), ascii, out);
      out += ':';
      append_json_text(one, ascii, out);
    }
    out += '}';
  } else {
    out += number_text(json);
  }
}

}  // namespace

WrittenJson parse_as_written(std::string_view text) {
  WrittenJson json;
  try {
    WrittenBuilder builder(json, nullptr);
    WrittenJson::sax_parse(text, &builder);
  } catch (const WrittenJson::out_of_range& error) {
    if (error.id != LargeNumbers::kFault) throw;
    const LargeNumbers large(text);
    WrittenBuilder builder(json, &large);
    WrittenJson::sax_parse(large.text(), &builder);
  }
  return json;
}

std::string json_text(const WrittenJson& json, bool ascii) {
  std::string text;
  append_json_text(json, ascii, text);
  return text;
}

bool is_json_number(const WrittenJson& json) { return json.is_number() || is_written_number(json); }

const char* json_kind(const WrittenJson& json) {
  return json.is_object()       ? "an object"
         : json.is_array()      ? "a list"
         : json.is_string()     ? "a string"
         : is_json_number(json) ? "a number"
         : json.is_boolean()    ? "a boolean"
                                : "null";
}

bool is_written_number(const WrittenJson& json) { return json.is_binary(); }

std::string number_text(const WrittenJson& number) {
  if (!is_written_number(number)) return number.dump();
  const auto& bytes = number.get_binary();
  return {bytes.begin(), bytes.end()};
}

double number_value(const WrittenJson& number) {
  return is_written_number(number) ? value_of_text(number_text(number)) : number.get<double>();
}

namespace {

size_t written_bytes(const WrittenJson& json) { return is_written_number(json) ? json.get_binary().size() : 0; }

}  // namespace

bool is_whole_number(const WrittenJson& json) {
  if (json.is_number_integer()) return true;
  if (!is_json_number(json)) return false;
  const Decimal decimal = decimal_of(number_text(json));
  return std::cmp_greater_equal(decimal.exponent, decimal.digits.size());
}

std::optional<int64_t> whole_number(const WrittenJson& json) {
  if (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX) return std::nullopt;
  if (json.is_number_integer()) return json.get<int64_t>();
  if (!is_whole_number(json)) return std::nullopt;
  constexpr int64_t kMostDigits = 19;
  Decimal decimal = decimal_of(number_text(json));
  if (decimal.exponent > kMostDigits) return std::nullopt;
  decimal.digits.append(static_cast<size_t>(decimal.exponent) - decimal.digits.size(), '0');
  if (decimal.digits.empty()) return 0;
  if (decimal.is_negative) decimal.digits.insert(0, 1, '-');
  int64_t value = 0;
  const char* const end = decimal.digits.data() + decimal.digits.size();
  return std::from_chars(decimal.digits.data(), end, value).ec == std::errc() ? std::optional(value) : std::nullopt;
}

bool same_json(const WrittenJson& a, const WrittenJson& b) {
  WorkBudget::spend(kWorkOfComparison);
  if (is_written_number(a) || is_written_number(b)) WorkBudget::spend((written_bytes(a) + written_bytes(b)) / 4);
  if (is_json_number(a) && is_json_number(b)) return decimal_of(number_text(a)) == decimal_of(number_text(b));
  if (a.type() != b.type()) return false;
  if (a.is_array()) return std::ranges::equal(a, b, same_json);
  if (!a.is_object()) return a == b;
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.items())
    if (const auto found = b.find(key); found == b.end() || !same_json(value, *found)) return false;
  return true;
}

WrittenJson number_as_written(double value, const std::string& text) {
  if (std::isfinite(value) && WrittenJson(value).dump() == text) return value;
  return WrittenJson::binary(std::vector<uint8_t>(text.begin(), text.end()));
}

WrittenJson integer_as_written(int64_t value) { return value == 0 ? number_as_written(-1, "-0") : WrittenJson(value); }

LargeNumbers::LargeNumbers(std::string_view text) : text_(text) {
  size_t place = 0;
  for (size_t at = 0; at < text.size() && texts_.size() < kMostLargeNumbers; ++at) {
    if (text[at] == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\';
      continue;
    }
    if (text[at] != '-' && (text[at] < '0' || text[at] > '9')) continue;
    const size_t end = std::min(text.find_first_not_of("0123456789+-.eE", at), text.size());
    std::string number(text.substr(at, end - at));
    if (std::isinf(value_of_text(number))) {
      text_.replace(at, end - at, "1" + std::string(end - at - 1, ' '));
      texts_.emplace(place, std::move(number));
    }
    ++place;
    at = end - 1;
  }
}

}  // namespace nodewright
