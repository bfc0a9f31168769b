// Guesses how requests go on, for speculative decoding: from the n-grams of their tokens, or by a function of the
// caller.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "engine/schedule/drafts.h"
#include "engine/schedule/request.h"

namespace nodewright {

class Drafter {
 public:
  using Guesses = std::function<std::vector<int32_t>(const Request&)>;

  // At most `most` drafts of a request. Without `guesses` those are of n-grams; with them, as far as they are tokens of
  // the vocabulary.
  Drafter(int most, int64_t vocab, Guesses guesses) : most_(most), vocab_(vocab), guesses_(std::move(guesses)) {}

  // Where n-grams draft, empty until index_tokens() has reached the request's last token.
  std::vector<int32_t> drafts_of(const Request& request) const;

  bool uses_ngrams() const { return most_ > 0 && !guesses_; }
  // Catches up with the tokens of a request, by a limited number of them.
  void index_tokens(const Request& request);
  void forget(RequestId id) { ngrams_.erase(id); }

 private:
  int most_;
  int64_t vocab_;
  Guesses guesses_;
  std::map<RequestId, NgramIndex> ngrams_;  // after their tokens at first
};

}  // namespace nodewright
