#include "text/grammar/schema/number_ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/written_number.h"
#include "text/grammar/patterns/decimal_pattern.h"
#include "text/grammar/patterns/integer_pattern.h"
#include "text/grammar/patterns/string_formats.h"
#include "text/grammar/schema/schema_place.h"

namespace nodewright {
namespace {

using RangeJson = nlohmann::ordered_json;

constexpr std::string_view kAnyNumber = R"(-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,3})?)";
constexpr double kLongestNumber = 1e19;  // numbers are nearer to 0
constexpr int64_t kFarthestBound = 999'999'999'999'999'999;

// OpenAPI's, and Rust's. Those of 64 bits reach as far as our numbers do, or farther.
struct NumberFormat {
  std::string_view name;
  bool is_whole;
  std::optional<int64_t> least, most;
};
constexpr NumberFormat kNumberFormats[] = {{"int8", true, INT8_MIN, INT8_MAX},
                                           {"int16", true, INT16_MIN, INT16_MAX},
                                           {"int32", true, INT32_MIN, INT32_MAX},
                                           {"int64", true, INT64_MIN, INT64_MAX},
                                           {"int", true, INT64_MIN, INT64_MAX},
                                           {"uint8", true, 0, UINT8_MAX},
                                           {"uint16", true, 0, UINT16_MAX},
                                           {"uint32", true, 0, UINT32_MAX},
                                           {"uint64", true, 0, std::nullopt},
                                           {"uint", true, 0, std::nullopt},
                                           {"float", false, std::nullopt, std::nullopt},
                                           {"double", false, std::nullopt, std::nullopt}};

// Null where the schema has none; a format of strings says nothing of numbers.
const NumberFormat* format_of(const RangeJson& schema, const std::string& place) {
  const RangeJson format = schema.value("format", RangeJson());
  if (format.is_null()) return nullptr;
  const std::string name = format.is_string() ? format.get<std::string>() : "";
  const auto* row = std::ranges::find(kNumberFormats, std::string_view(name), &NumberFormat::name);
  if (row != std::end(kNumberFormats)) return row;
  if (!string_format_pattern(name).empty()) return nullptr;
  std::string known;
  for (const NumberFormat& one : kNumberFormats) known.append(known.empty() ? "" : ", ").append(one.name);
  refuse_schema(place, fmt::format("'format' is {}, expected one of {}", json_text(format), known));
}

// The end of a range, as its keywords say it.
struct WrittenEnd {
  const char* key;
  const RangeJson* value;
  bool is_excluded;
};

std::vector<WrittenEnd> ends_of(const RangeJson& schema, const char* key, const char* exclusive,
                                const std::string& place) {
  std::vector<WrittenEnd> ends;
  const auto found = schema.find(key), other = schema.find(exclusive);
  const bool is_flag = other != schema.end() && other->is_boolean();  // as in draft 4
  if (found != schema.end()) ends.push_back({key, &*found, is_flag && other->get<bool>()});
  if (other != schema.end() && !is_flag) ends.push_back({exclusive, &*other, true});
  for (const WrittenEnd& end : ends)
    if (!is_json_number(*end.value))
      refuse_schema(place, fmt::format("'{}' is {}, expected a number", end.key, json_text(*end.value)));
  return ends;
}

[[noreturn]] void refuse_bound(const WrittenEnd& end, const std::string& place) {
  refuse_schema(place, fmt::format("'{}' is {}, expected a number of at most 18 digits before and behind its point",
                                   end.key, json_text(*end.value)));
}

// Nothing: the bound is farther out than all numbers. `side`: -1 of the lower end, 1 of the upper one.
std::optional<DecimalBound> bound_of(const WrittenEnd& end, int side, const std::string& place) {
  if (const auto bound = decimal_bound(number_text(*end.value), end.is_excluded)) return bound;
  const double value = number_value(*end.value);
  if (std::fabs(value) < static_cast<double>(kFarthestBound) || value * side < 0) refuse_bound(end, place);
  if (std::fabs(value) >= kLongestNumber) return std::nullopt;
  return DecimalBound{value < 0, std::to_string(kFarthestBound), "", false};
}

// The integer at that end.
std::optional<int64_t> integer_at(const WrittenEnd& end, int side, const std::string& place) {
  if (const auto whole = whole_number(*end.value)) {
    if (!end.is_excluded) return whole;
    if (*whole == (side < 0 ? INT64_MAX : INT64_MIN)) refuse_bound(end, place);
    return *whole - side;
  }
  const auto bound = bound_of(end, side, place);
  if (!bound) return std::nullopt;
  const int64_t magnitude = std::stoll(bound->whole);
  const int64_t towards_zero = bound->is_negative ? -magnitude : magnitude;
  if (bound->fraction.empty()) return towards_zero;
  const bool steps = bound->is_negative == (side > 0);  // the next integer within is farther from 0
  return steps ? towards_zero - side : towards_zero;
}

// Their values alone are compared.
bool is_below(const DecimalBound& a, const DecimalBound& b) {
  if (a.is_negative != b.is_negative) return a.is_negative;
  const auto size = [](const DecimalBound& one) { return std::tuple(one.whole.size(), one.whole, one.fraction); };
  return a.is_negative ? size(b) < size(a) : size(a) < size(b);
}

std::string integers(const RangeJson& schema, const NumberFormat* format, const std::string& place) {
  std::optional<int64_t> least, most;
  if (format != nullptr) least = format->least, most = format->most;
  for (const WrittenEnd& end : ends_of(schema, "minimum", "exclusiveMinimum", place))
    if (const auto value = integer_at(end, -1, place)) least = std::max(*value, least.value_or(*value));
  for (const WrittenEnd& end : ends_of(schema, "maximum", "exclusiveMaximum", place))
    if (const auto value = integer_at(end, 1, place)) most = std::min(*value, most.value_or(*value));
  const std::string pattern = integer_pattern(least, most);
  if (pattern.empty()) refuse_schema(place, fmt::format("no integer is at least {} and at most {}", *least, *most));
  return pattern;
}

std::string decimals(const RangeJson& schema, const std::string& place) {
  std::optional<DecimalBound> ends[2];
  bool has_bounds = false;
  const auto keep = [&](std::optional<DecimalBound>& kept, const DecimalBound& bound, bool is_lower) {
    const bool is_tighter = !kept || (is_lower ? is_below(*kept, bound) : is_below(bound, *kept));
    const bool is_same = kept && !is_below(*kept, bound) && !is_below(bound, *kept);
    if (is_same)
      kept->is_excluded |= bound.is_excluded;
    else if (is_tighter)
      kept = bound;
  };
  for (const bool is_lower : {true, false})
    for (const WrittenEnd& end :
         ends_of(schema, is_lower ? "minimum" : "maximum", is_lower ? "exclusiveMinimum" : "exclusiveMaximum", place)) {
      has_bounds = true;
      if (const auto bound = bound_of(end, is_lower ? -1 : 1, place)) keep(ends[is_lower ? 0 : 1], *bound, is_lower);
    }
  if (!has_bounds) return std::string(kAnyNumber);
  const std::string pattern = decimal_pattern(ends[0], ends[1]);
  if (pattern.empty()) refuse_schema(place, "no number is within its bounds");
  return pattern;
}

}  // namespace

std::string number_range_pattern(const RangeJson& schema, bool whole, const std::string& place) {
  const NumberFormat* format = format_of(schema, place);
  return whole || (format != nullptr && format->is_whole) ? integers(schema, format, place) : decimals(schema, place);
}

bool is_number_format(const RangeJson& format) {
  return format.is_string() &&
         std::ranges::any_of(kNumberFormats, [&](const NumberFormat& one) { return format == one.name; });
}

}  // namespace nodewright
