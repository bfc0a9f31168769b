// Oniguruma behind Regex. Searching reads the compiled expression only; every region is local to its call.
#include "text/tokenizer/steps/regex.h"

#include <oniguruma.h>

#include "runtime/error.h"
#include "text/tokenizer/load_error.h"
#include "text/unicode/unicode_versions.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

const OnigUChar* bytes(std::string_view text) { return reinterpret_cast<const OnigUChar*>(text.data()); }

std::string words_of(int code, OnigErrorInfo* info) {
  OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN];
  const int size = info ? onig_error_code_to_str(message, code, info) : onig_error_code_to_str(message, code);
  return std::string(reinterpret_cast<const char*>(message), static_cast<std::size_t>(size));
}

// Oniguruma wants to be told the encoding once, before threads share it.
void initialize_once() {
  static const int status = [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    return onig_initialize(encodings, 1);
  }();
  if (status != ONIG_NORMAL) throw Error({.doing = "start Oniguruma", .detail = words_of(status, nullptr)});
}

struct Region {
  OnigRegion* region = onig_region_new();
  Region() = default;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region() { onig_region_free(region, 1); }
};

}  // namespace

std::string escaped_for_regex(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    const bool means_something =
        c == '\\' || std::string_view("^$.|?*+()[]{}#-&~ \t\n\r\f\v").find(c) != std::string_view::npos;
    if (means_something) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

void Regex::Free::operator()(re_pattern_buffer* regex) const noexcept { onig_free(regex); }

Regex::Regex(const std::string& pattern, const std::string& file) : pattern_(pattern) {
  initialize_once();
  regex_t* regex = nullptr;
  OnigErrorInfo info{};
  const int status = onig_new(&regex, bytes(pattern_), bytes(pattern_) + pattern_.size(), ONIG_OPTION_NONE,
                              ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
  if (status != ONIG_NORMAL)
    fail_load(file, "the regular expression '" + pattern_ + "' does not compile: " + words_of(status, &info));
  regex_.reset(regex);
}

// Empty matches move on by one character, and one right after another match does not count, as in the Rust crate
// `onig` that the oracle uses.
void Regex::append_pieces(std::string_view text, std::vector<Piece>& pieces) const {
  const Region found;
  const std::string older = with_older_characters(text);
  const OnigUChar* begin = bytes(older);
  const OnigUChar* end = begin + older.size();
  std::size_t done = 0;  // bytes of text that are in pieces
  std::size_t from = 0;  // where the next search starts
  std::size_t behind_match = text.size() + 1;
  while (from < text.size()) {
    const int at = onig_search(regex_.get(), begin, end, begin + from, end, found.region, ONIG_OPTION_NONE);
    if (at == ONIG_MISMATCH) break;
    if (at < 0) {
      throw Error({.doing = "split text with regular expression",
                   .object = pattern_,
                   .detail = std::to_string(text.size()) + " bytes of text: " + words_of(at, nullptr),
                   .advice = "send a shorter text"});
    }
    const auto match_begin = static_cast<std::size_t>(found.region->beg[0]);
    const auto match_end = static_cast<std::size_t>(found.region->end[0]);
    if (match_begin > done) pieces.push_back({text.substr(done, match_begin - done)});
    if (match_begin < match_end || match_begin != behind_match)
      pieces.push_back({text.substr(match_begin, match_end - match_begin), true});
    behind_match = match_end;
    done = from = match_end;
    if (match_begin == match_end && from < text.size()) from += read_utf8(text.substr(from)).size;
  }
  if (done < text.size()) pieces.push_back({text.substr(done)});
}

}  // namespace nodewright
