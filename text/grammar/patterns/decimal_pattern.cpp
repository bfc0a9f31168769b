#include "text/grammar/patterns/decimal_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "text/grammar/patterns/integer_pattern.h"

namespace nodewright {
namespace {

constexpr size_t kMostBoundDigits = 18;  // before the point, and after it
constexpr const char* kAnyFraction = R"((?:\.[0-9]{1,18})?)";

// Digits after a point that may follow those before them. Nothing: none may.
struct Digits {
  bool may_end = false;             // no more digits
  std::optional<std::string> more;  // an expression of one digit or more

  std::string rest() const { return !more ? "" : may_end ? "(?:" + *more + ")?" : *more; }
  bool is_empty() const { return !may_end && !more; }
};

// The fractions of the magnitudes whose whole part is that of a bound. Null: no bound.
class Fractions {
 public:
  Fractions(const DecimalBound* low, const DecimalBound* high) : low_(low), high_(high) {
    if (low != nullptr) size_ = low->fraction.size();
    if (high != nullptr) size_ = std::max(size_, high->fraction.size());
  }

  // Empty where there is none.
  std::optional<std::string> pattern() const {
    const Digits digits = behind(0, low_ != nullptr, high_ != nullptr);
    if (digits.is_empty()) return std::nullopt;
    if (!digits.more) return "";
    return digits.may_end ? R"((?:\.)" + *digits.more + ")?" : R"(\.)" + *digits.more;
  }

 private:
  static char digit(const DecimalBound* bound, size_t at) {
    return at < bound->fraction.size() ? bound->fraction[at] : '0';
  }

  // `on_low`, `on_high`: the digits before `at` are those of that bound.
  Digits behind(size_t at, bool on_low, bool on_high) const {
    if (!on_low && !on_high) return {true, "[0-9]{1,18}"};
    const bool is_low = !on_low || (low_->fraction.size() <= at && !low_->is_excluded);
    const bool is_high = !on_high || high_->fraction.size() > at || !high_->is_excluded;
    Digits digits{.may_end = is_low && is_high, .more = {}};
    if (at >= size_) {
      if (on_high)
        digits.more = digits.may_end ? std::optional<std::string>("0{1,18}") : std::nullopt;
      else
        digits.more = low_->is_excluded ? "0{0,17}[1-9][0-9]{0,17}" : "[0-9]{1,18}";
      return digits;
    }
    const char low = on_low ? digit(low_, at) : '0', high = on_high ? digit(high_, at) : '9';
    std::string choices;
    const auto add = [&](const std::string& first, const Digits& rest) {
      if (!rest.is_empty()) choices += (choices.empty() ? "" : "|") + first + rest.rest();
    };
    if (on_low) add(std::string(1, low), behind(at + 1, true, on_high && low == high));
    const char first = static_cast<char>(low + on_low), last = static_cast<char>(high - on_high);
    if (first <= last) add(fmt::format("[{}-{}]", first, last), {true, "[0-9]{1,18}"});
    if (on_high && !(on_low && low == high)) add(std::string(1, high), behind(at + 1, false, true));
    if (!choices.empty()) digits.more = "(?:" + choices + ")";
    return digits;
  }

  const DecimalBound *low_, *high_;
  size_t size_ = 0;
};

int64_t whole_of(const DecimalBound& bound) { return std::stoll(bound.whole); }

// The magnitudes from `low` to `high`, which may be absent; empty where there is none.
std::string magnitudes(const DecimalBound& low, const DecimalBound* high) {
  std::string choices;
  const auto add = [&](const std::string& whole, const std::optional<std::string>& fraction) {
    if (!whole.empty() && fraction) choices += (choices.empty() ? "" : "|") + whole + *fraction;
  };
  if (high != nullptr && whole_of(low) > whole_of(*high)) return "";
  if (high != nullptr && low.whole == high->whole) {
    if (low.fraction > high->fraction) return "";
    add(low.whole, Fractions(&low, high).pattern());
    return choices;
  }
  add(low.whole, Fractions(&low, nullptr).pattern());
  const std::optional<int64_t> last = high != nullptr ? std::optional(whole_of(*high) - 1) : std::nullopt;
  if (!last || whole_of(low) + 1 <= *last) add(integer_pattern(whole_of(low) + 1, last), kAnyFraction);
  if (high != nullptr) add(high->whole, Fractions(nullptr, high).pattern());
  return choices;
}

}  // namespace

std::optional<DecimalBound> decimal_bound(std::string_view number, bool is_excluded) {
  DecimalBound bound{.is_excluded = is_excluded};
  if (number.starts_with('-')) {
    bound.is_negative = true;
    number.remove_prefix(1);
  }
  int exponent = 0;
  if (const size_t mark = number.find_first_of("eE"); mark != std::string_view::npos) {
    std::string_view digits = number.substr(mark + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    if (std::from_chars(digits.data(), digits.data() + digits.size(), exponent).ec != std::errc()) return std::nullopt;
    number = number.substr(0, mark);
  }
  const size_t point = std::min(number.find('.'), number.size());
  std::string digits(number.substr(0, point));
  if (point < number.size()) digits += number.substr(point + 1);
  const int64_t place = static_cast<int64_t>(point) + exponent;  // of the point in the digits
  if (place < -20 || place > 40) return std::nullopt;
  if (place < 0) digits.insert(0, static_cast<size_t>(-place), '0');
  const auto split = static_cast<size_t>(std::max<int64_t>(place, 0));
  if (digits.size() < split) digits.append(split - digits.size(), '0');
  bound.whole = digits.substr(0, split);
  bound.fraction = digits.substr(split);
  bound.whole.erase(0, std::min(bound.whole.find_first_not_of('0'), bound.whole.size()));
  bound.fraction.erase(bound.fraction.find_last_not_of('0') + 1);
  if (bound.whole.empty()) bound.whole = "0";
  if (bound.whole == "0" && bound.fraction.empty()) bound.is_negative = false;
  const bool fits = bound.whole.size() <= kMostBoundDigits && bound.fraction.size() <= kMostBoundDigits;
  return fits ? std::optional(bound) : std::nullopt;
}

std::string decimal_pattern(const std::optional<DecimalBound>& least, const std::optional<DecimalBound>& most) {
  std::string choices;
  if (!least || least->is_negative) {
    const DecimalBound nearest = most && most->is_negative ? *most : DecimalBound{false, "0", "", true};
    const std::string below = magnitudes(nearest, least ? &*least : nullptr);
    if (!below.empty()) choices = "-(?:" + below + ")";
  }
  if (!most || !most->is_negative) {
    const DecimalBound lowest = least && !least->is_negative ? *least : DecimalBound{false, "0", "", false};
    const std::string above = magnitudes(lowest, most ? &*most : nullptr);
    if (!above.empty()) choices += (choices.empty() ? "" : "|") + above;
  }
  return choices.empty() ? "" : "(?:" + choices + ")";
}

}  // namespace nodewright
