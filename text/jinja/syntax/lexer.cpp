#include "text/jinja/syntax/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/error.h"
#include "text/unicode/utf8.h"

namespace nodewright::jinja {
namespace {

constexpr std::size_t kLongestTemplate = 1 << 20;  // bytes; released ones have up to 30,000

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& file) : file_(file) {
    if (source.size() > kLongestTemplate)
      fail("read the chat template", file, 1,
           fmt::format("it has {} bytes, the limit is {}", source.size(), kLongestTemplate));
    source_.reserve(source.size());
    for (std::size_t i = 0; i < source.size(); ++i) {  // every kind of line end is one
      if (source[i] != '\r') source_ += source[i];
      if (source[i] == '\r' && (i + 1 == source.size() || source[i + 1] != '\n')) source_ += '\n';
    }
    if (source_.ends_with('\n')) source_.pop_back();
  }

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const std::size_t tag = next_tag();
      read_text(tag);
      if (tag == std::string::npos) break;
      const char kind = source_[at_ + 1];
      at_ += 2;
      if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
      if (kind == '#') {
        skip_comment();
      } else {
        read_tag(kind == '%');
      }
    }
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void stop(const std::string& detail) const { fail("read the chat template", file_, line_, detail); }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  char peek(std::size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }

  void advance(std::size_t count) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + count), '\n'));
    at_ += count;
  }

  std::size_t next_tag() const {
    for (std::size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' && (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#')) return i;
    }
    return std::string::npos;
  }

  // The text up to a tag, less what "{%-" takes away, or what "{%" does at the start of its line (lstrip_blocks).
  void read_text(std::size_t tag) {
    std::string text = source_.substr(at_, tag == std::string::npos ? std::string::npos : tag - at_);
    const std::size_t whole = text.size();
    if (tag != std::string::npos) {
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      if (sign == '-') {
        while (!text.empty() && is_space(text.back())) text.pop_back();
      } else if (sign != '+' && source_[tag + 1] != '{') {
        const std::size_t newline = text.rfind('\n');
        const std::size_t begin = newline == std::string::npos ? 0 : newline + 1;
        const bool is_line_start = newline != std::string::npos || line_starts_;
        if (is_line_start && std::all_of(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end(), is_space))
          text.resize(begin);
      }
    }
    if (!text.empty()) add(TokenKind::text, std::move(text));
    advance(whole);
  }

  // After the end of a tag: "-" takes all white space away, a block or comment its line end (trim_blocks).
  void end_tag(char sign, bool trims) {
    const std::size_t begin = at_;
    if (sign == '-') {
      std::size_t end = at_;
      while (end < source_.size() && is_space(source_[end])) ++end;
      advance(end - at_);
    } else if (trims && sign != '+' && peek() == '\n') {
      advance(1);
    }
    line_starts_ = at_ > begin && source_[at_ - 1] == '\n';
  }

  void skip_comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos) stop("a comment {# has no end");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    end_tag(sign, true);
  }

  void read_tag(bool is_block) {
    add(is_block ? TokenKind::block_begin : TokenKind::output_begin, "");
    const char close = is_block ? '%' : '}';
    std::string open;  // brackets
    for (;;) {
      while (at_ < source_.size() && is_space(source_[at_])) advance(1);
      if (at_ >= source_.size()) stop(is_block ? "a block {% has no end" : "an expression {{ has no end");
      const bool signed_end = (peek() == '-' || (is_block && peek() == '+')) && peek(1) == close && peek(2) == '}';
      const bool ends = open.empty() && (signed_end || (peek() == close && peek(1) == '}'));
      if (ends) {
        const char sign = signed_end ? peek() : '\0';
        add(is_block ? TokenKind::block_end : TokenKind::output_end, "");
        advance(signed_end ? 3 : 2);
        end_tag(sign, is_block);
        return;
      }
      read_token(open);
    }
  }

  void read_token(std::string& open) {
    const char c = peek();
    if (starts_name(c)) {
      std::size_t end = at_;
      while (end < source_.size() && (starts_name(source_[end]) || is_digit(source_[end]))) ++end;
      add(TokenKind::name, source_.substr(at_, end - at_));
      advance(end - at_);
    } else if (is_digit(c)) {
      read_number();
    } else if (c == '\'' || c == '"') {
      read_string(c);
    } else {
      read_sign(open);
    }
  }

  void read_number() {
    std::size_t end = at_;
    const auto digits = [&] {
      while (end < source_.size() && (is_digit(source_[end]) || source_[end] == '_')) ++end;
    };
    digits();
    bool real = false;
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      real = true;
      ++end;
      digits();
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      std::size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
      if (exponent < source_.size() && is_digit(source_[exponent])) {
        real = true;
        end = exponent;
        digits();
      }
    }
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    if (end < source_.size() && starts_name(source_[end])) stop(fmt::format("'{}' is no number", text + source_[end]));
    add(real ? TokenKind::real : TokenKind::integer, std::move(text));
    advance(end - at_);
  }

  // The escapes of Python; what is none of them keeps its backslash.
  void read_string(char quote) {
    std::string value;
    std::size_t i = at_ + 1;
    for (; i < source_.size() && source_[i] != quote; ++i) {
      if (source_[i] != '\\' || i + 1 >= source_.size()) {
        value += source_[i];
        continue;
      }
      const char c = source_[++i];
      constexpr std::string_view kNames = "ntrabfv\\'\"";
      constexpr std::string_view kMeanings = "\n\t\r\a\b\f\v\\'\"";
      if (const std::size_t known = kNames.find(c); known != std::string_view::npos) {
        value += kMeanings[known];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        i += append_code_point(i, c == 'x' ? 2 : c == 'u' ? 4 : 8, value);
      } else if (c == 'N' || is_digit(c)) {
        stop(fmt::format("the escape \\{} in a string is not supported", c));
      } else if (c != '\n') {
        value.append({'\\', c});
      }
    }
    if (i >= source_.size()) stop("a string has no end");
    add(TokenKind::string, std::move(value));
    advance(i + 1 - at_);
  }

  std::size_t append_code_point(std::size_t before, std::size_t digits, std::string& value) const {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::uint32_t code_point = 0;
    for (std::size_t i = 1; i <= digits; ++i) {
      const char c = before + i < source_.size() ? source_[before + i] : '\0';
      const std::size_t digit = kDigits.find(c >= 'A' && c <= 'F' ? static_cast<char>(c + 32) : c);
      if (c == '\0' || digit == std::string_view::npos) stop("a string has an escape that is cut short");
      code_point = code_point << 4 | static_cast<std::uint32_t>(digit);
    }
    if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF))
      stop(fmt::format("a string has the escape of {:#x}, which is no character", code_point));
    append_utf8(code_point, value);
    return digits;
  }

  void read_sign(std::string& open) {
    static constexpr std::array<std::string_view, 27> kSigns = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "*",
                                                                "/",  "%",  "~",  "<",  ">",  "=",  ".", ":", "|",
                                                                ",",  "(",  ")",  "[",  "]",  "{",  "}", ";", "&"};
    const auto sign = std::find_if(kSigns.begin(), kSigns.end(), [&](std::string_view one) {
      return std::string_view(source_).substr(at_).starts_with(one);
    });
    if (sign == kSigns.end()) {
      const Utf8Step step = read_utf8(std::string_view(source_).substr(at_));
      stop(fmt::format("the character '{}' is not expected", source_.substr(at_, step.size)));
    }
    constexpr std::string_view kOpen = "([{", kClose = ")]}";
    if (kOpen.find((*sign)[0]) != std::string_view::npos) open += (*sign)[0];
    if (const std::size_t closes = kClose.find((*sign)[0]); closes != std::string_view::npos) {
      if (open.empty() || open.back() != kOpen[closes]) stop(fmt::format("'{}' closes nothing", *sign));
      open.pop_back();
    }
    add(TokenKind::sign, std::string(*sign));
    advance(sign->size());
  }

  std::string source_;
  std::string file_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const std::string& file) { return Lexer(source, file).run(); }

void fail(const std::string& doing, const std::string& file, int line, const std::string& detail) {
  throw Error({.doing = doing, .object = file, .detail = fmt::format("line {}: {}", line, detail)});
}

}  // namespace nodewright::jinja
