#include "text/jinja/builtins/string_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/values/operations.h"
#include "text/unicode/utf8.h"

namespace nodewright::jinja {
namespace {

// [[fill]align][sign][0][width][.precision][type]
struct Specification {
  Text fill = " ";
  char align = 0, sign = 0, type = 0;
  std::int64_t width = 0, precision = -1;
};

class FormatReader {
 public:
  FormatReader(const Text& pattern, const Arguments& arguments, Work& work)
      : pattern_(pattern), text_(pattern.bytes()), arguments_(arguments), work_(work) {}

  Text run() {
    Text out;
    while (at_ < text_.size()) {
      const std::size_t brace = std::min(text_.find_first_of("{}", at_), text_.size());
      append(pattern_.part(at_, brace - at_), out);
      at_ = brace;
      if (at_ == text_.size()) break;
      if (at_ + 1 < text_.size() && text_[at_ + 1] == text_[at_]) {
        append(pattern_.part(at_, 1), out);
        at_ += 2;
      } else {
        append(field(), out);
      }
    }
    return out.as_markup(pattern_.is_markup());
  }

 private:
  void append(const Text& part, Text& out) {
    work_.spend_bytes(part.size());
    out.append(part);
  }

  [[noreturn]] void refuse(const std::string& why) const {
    work_.stop(fmt::format("format() of '{}': {}", text_.substr(0, 100), why));
  }

  Text field() {
    const std::size_t end = text_.find_first_of("{}", at_ + 1);
    if (text_[at_] == '}' || end == std::string_view::npos) refuse("a brace has no other");
    if (text_[end] == '{') refuse("a field in a field is not supported");
    std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    const std::size_t colon = std::min(inside.find(':'), inside.size());
    std::string_view name = inside.substr(0, colon), specification = inside.substr(colon);
    bool quotes = false;
    if (const std::size_t mark = name.find('!'); mark != std::string_view::npos) {
      const std::string_view conversion = name.substr(mark + 1);
      if (conversion != "r" && conversion != "s")
        refuse(fmt::format("the conversion '{}' is not supported", conversion));
      quotes = conversion == "r";
      name = name.substr(0, mark);
    }
    const Value& value = argument(name);
    if (quotes) {
      Text text;
      std::string why;
      if (!append_repr(value, text, why)) refuse(why);
      return shown(text, specification_of(specification));
    }
    return shown(value, specification_of(specification));
  }

  const Value& argument(std::string_view name) {
    std::size_t place = 0;
    const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), place);
    const bool is_number = failure == std::errc() && end == name.data() + name.size();
    if (name.empty() || is_number) {
      if (is_counted_ && *is_counted_ != name.empty()) refuse("fields with and without numbers");
      is_counted_ = name.empty();
      if (name.empty()) place = next_++;
      if (place >= arguments_.positional.size()) refuse(fmt::format("there is no argument {}", place));
      return arguments_.positional[place];
    }
    for (const auto& [known, value] : arguments_.named) {
      if (known == name) return value;
    }
    refuse(fmt::format("there is no argument '{}'", name));
  }

  Specification specification_of(std::string_view words) const {
    Specification found;
    if (words.empty()) return found;
    words.remove_prefix(1);  // the colon
    const std::string_view whole = words;
    const auto take = [&](std::string_view among) {
      if (words.empty() || among.find(words[0]) == std::string_view::npos) return '\0';
      const char c = words[0];
      words.remove_prefix(1);
      return c;
    };
    const std::size_t first = words.empty() ? 0 : read_utf8(words).size;
    const bool has_fill = words.size() > first && std::string_view("<>^=").find(words[first]) != std::string_view::npos;
    if (has_fill) {
      found.fill = Text(std::string(words.substr(0, first)));
      words.remove_prefix(first);
    }
    found.align = take("<>^=");
    found.sign = take("+- ");
    if (take("0") && !has_fill) {
      found.fill = "0";
      if (!found.align) found.align = '=';
    }
    const auto number = [&](std::int64_t otherwise) {
      const auto [end, failure] = std::from_chars(words.data(), words.data() + words.size(), otherwise);
      if (failure == std::errc()) words.remove_prefix(static_cast<std::size_t>(end - words.data()));
      return otherwise;
    };
    found.width = number(0);
    if (take(".")) found.precision = number(-1);
    found.type = take("sdxXobfeg");
    if (!words.empty() || found.width < 0 || found.width > 10000 || found.precision > 100)
      refuse(fmt::format("the specification '{}' is not supported", whole));
    return found;
  }

  Text shown(const Value& value, const Specification& how) const {
    if (value.is_number() && (how.type != 0 || !value.boolean() || how.align || how.width || how.sign))
      return padded(Text(number_text(value, how)), how, true);
    if (how.sign || how.align == '=' || (how.type && how.type != 's'))
      refuse(fmt::format("a specification of numbers for {}", value.kind()));
    if (!value.text() && (how.width || how.align || how.precision >= 0 || how.type) && !value.is_number())
      refuse(fmt::format("{} takes no specification", value.kind()));
    Text text = printed(value, work_);
    if (how.precision >= 0 && how.precision < text.characters()) {
      Text cut;
      for (const Text& one : text.split_to_characters()) {
        if (cut.characters() == how.precision) break;
        cut.append(one);
      }
      text = cut;
    }
    return padded(pattern_.is_markup() ? text.escaped() : text, how, false);
  }

  std::string number_text(const Value& value, const Specification& how) const {
    const std::string sign = how.sign && how.sign != '-' ? std::string(1, how.sign) : "";
    const bool real = value.real() || std::string_view("feg").find(how.type ? how.type : ' ') != std::string_view::npos;
    if (how.type == 's') refuse("the type s for a number");
    if (!real) {
      if (how.precision >= 0) refuse("a precision for an integer");
      const std::int64_t whole = value.integer() ? *value.integer() : std::int64_t{*value.boolean()};
      return fmt::format(fmt::runtime("{:" + sign + (how.type ? std::string(1, how.type) : "d") + "}"), whole);
    }
    if (how.type && std::string_view("feg").find(how.type) == std::string_view::npos)
      refuse(fmt::format("the type {} for a float", how.type));
    if (!how.type && how.precision < 0) {
      const std::string text = printed(value, work_).bytes();
      return text.starts_with('-') ? text : sign + text;
    }
    if (!how.type) refuse("a precision without a type");
    return fmt::format(
        fmt::runtime("{:" + sign + "." + std::to_string(how.precision < 0 ? 6 : how.precision) + how.type + "}"),
        value.as_double());
  }

  Text padded(const Text& text, const Specification& how, bool is_number) const {
    const std::int64_t missing = how.width - text.characters();
    if (missing <= 0) return text;
    const auto fill = [&](std::int64_t count) {
      Text run;
      for (std::int64_t i = 0; i < count; ++i) run.append(how.fill);
      return run;
    };
    const char align = how.align ? how.align : is_number ? '>' : '<';
    const bool is_signed = align == '=' && !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+');
    const std::int64_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
    Text out = is_signed ? text.part(0, 1) : Text();
    out.append(fill(before));
    out.append(text.part(is_signed ? 1 : 0, text.size()));
    out.append(fill(missing - before));
    return out;
  }

  const Text& pattern_;
  std::string_view text_;
  const Arguments& arguments_;
  Work& work_;
  std::size_t at_ = 0, next_ = 0;
  std::optional<bool> is_counted_;  // the fields have no numbers
};

}  // namespace

Text formatted(const Text& pattern, const Arguments& arguments, Work& work) {
  return FormatReader(pattern, arguments, work).run();
}

}  // namespace nodewright::jinja
