// Drafts for speculative decoding, guessed from a request's own tokens: a step that checks them costs little more than
// one that does not, and the tokens that come out are the same.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace nodewright {

// Where each n-gram of a request's tokens occurred last, kept up as they come: neither a token nor a draft takes longer
// because there are many.
class NgramIndex {
 public:
  // `longest`: tokens of an n-gram at most.
  explicit NgramIndex(int64_t longest = 3) : longest_(longest) {}

  void append(int32_t token);
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }

  // At most `most` tokens: those that followed the latest earlier occurrence of what the tokens end with, which is of
  // the longest n-gram that occurs earlier. Where they reach the end of the tokens, they go on with themselves: a cycle
  // is drafted whole. Empty where not even the last token occurs earlier.
  std::vector<int32_t> draft(int64_t most) const;

 private:
  std::span<const int32_t> ngram(int64_t end, int64_t length) const;

  int64_t longest_;
  std::vector<int32_t> tokens_;
  // By the n-gram's hash: after its last occurrence that ends before the last token. Of two with one hash the later.
  std::unordered_map<uint64_t, int64_t> ends_;
};

}  // namespace nodewright
