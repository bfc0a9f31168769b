// The form of a text is the joined forms of its parts wherever a part starts with a character that neither composes
// with what stands before it nor changes places with it. So the text is cut where the writer changes, and only where
// characters of both do meet, the few between two such characters are one part.
#include "text/tokenizer/steps/marked_normal_form.h"

#include <algorithm>
#include <vector>

#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

bool begins_character(std::string_view text, std::size_t at) {
  return (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
}

// ASCII, and the unified ideographs: they are starters, and no composition has one as its second character.
bool is_inert(std::string_view text, std::size_t at) {
  if (static_cast<unsigned char>(text[at]) < 0x80) return true;
  const char32_t c = read_utf8(text.substr(at)).code_point;
  return c >= 0x4E00 && c <= 0x9FFF;
}

class FormCuts {
 public:
  FormCuts(const MarkedText& from, NormalForm form) : from_(from), text_(from.text), form_(form) {
    for (std::size_t at = 1; at < text_.size(); ++at) {
      const bool changes = ((from.marks[at - 1] ^ from.marks[at]) & kUsersByte) != 0;
      if ((changes || is_barrier(at)) && begins_character(text_, at)) add(at);
    }
    cuts_.push_back(text_.size());
    std::sort(cuts_.begin(), cuts_.end());
  }

  const std::vector<std::size_t>& ends() const { return cuts_; }

 private:
  bool is_barrier(std::size_t at) const { return (from_.marks[at] & kBarrier) != 0; }
  bool is_safe(std::size_t at) const { return is_barrier(at) || (begins_character(text_, at) && is_inert(text_, at)); }

  void add(std::size_t at) {
    if (is_safe(at)) {
      cuts_.push_back(at);
      return;
    }
    std::size_t begin = at - 1, end = at + 1;
    while (begin > 0 && !is_safe(begin)) --begin;
    while (end < text_.size() && !is_safe(end)) ++end;
    const auto formed = [&](std::size_t from, std::size_t to) {
      return to_normal_form(text_.substr(from, to - from), form_);
    };
    if (formed(begin, at) + formed(at, end) == formed(begin, end)) {
      cuts_.push_back(at);
    } else {
      cuts_.push_back(begin);
      cuts_.push_back(end);
    }
  }

  const MarkedText& from_;
  std::string_view text_;
  NormalForm form_;
  std::vector<std::size_t> cuts_;
};

}  // namespace

MarkedText to_normal_form(const MarkedText& from, NormalForm form) {
  if (!from.is_marked()) return {to_normal_form(std::string_view(from.text), form), {}};
  MarkedWriter to(from);
  const FormCuts cuts(from, form);
  for (const std::size_t end : cuts.ends())
    if (end > to.done()) to.replace(end - to.done(), to_normal_form(to.rest().substr(0, end - to.done()), form));
  return to.take();
}

}  // namespace nodewright
