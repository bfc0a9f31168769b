// A text on its way through a normalizer, with a mark for each byte that says who wrote it. Every step moves the marks
// along with the text, so that after normalizing it is still known where special tokens may be found.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nodewright {

inline constexpr char kUsersByte = 1;  // the user wrote this byte, not the template
inline constexpr char kBarrier = 2;    // no step joins this byte with those before it

struct MarkedText {
  std::string text;   // valid UTF-8
  std::string marks;  // [bytes of text], of the two bits above; empty: the text has no marks

  bool is_marked() const { return !marks.empty(); }
  // Whether a barrier stands between two of the bytes `begin` to `end`.
  bool has_barrier_within(std::size_t begin, std::size_t end) const;
};

// Writes what a step makes of a text, from its start to its end. The text must outlive it.
class MarkedWriter {
 public:
  explicit MarkedWriter(const MarkedText& from) : from_(from) { to_.text.reserve(from.text.size()); }

  // The part of the text that is not written yet.
  std::string_view rest() const { return std::string_view(from_.text).substr(done_); }
  std::size_t done() const { return done_; }

  // The next `size` bytes as they are.
  void keep(std::size_t size);
  // `normal` in place of the next `size` bytes: it is the user's if one of them is.
  void replace(std::size_t size, std::string_view normal);
  void drop(std::size_t size) { replace(size, {}); }
  // Text that stands for nothing the caller wrote, such as the space that a tokenizer puts before a text.
  void insert(std::string_view own);
  // Takes back the last bytes that were written.
  void erase_end(std::size_t size);

  const std::string& written() const { return to_.text; }
  MarkedText take() { return std::move(to_); }

 private:
  const MarkedText& from_;
  MarkedText to_;
  std::size_t done_ = 0;  // bytes of from_
  char barrier_ = 0;      // of a byte that was dropped: the next one gets it
};

}  // namespace nodewright
