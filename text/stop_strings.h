// Stop strings of one request, found in its text as it comes, across tokens: whole characters only, as TextStream gives
// them. What could still begin a stop string is held back.
#pragma once

#include <string>
#include <vector>

#include "text/text_stream.h"

namespace nodewright {

class StopStrings {
 public:
  // The tokenizer must outlive this. `strings`: none of them empty. `shown`: as TextStream has it.
  StopStrings(const Tokenizer& tokenizer, std::vector<std::string> strings, std::vector<TokenId> shown = {})
      : stream_(tokenizer, true, TextStart::behind_prompt, std::move(shown)), strings_(std::move(strings)) {}

  // True when the text now holds a stop string: it ends before the one that is complete first, of those complete at
  // once before the one that began first, and takes no more tokens. `may_stop`: false while the request wants more;
  // what is then complete passes as text.
  bool push(TokenId id, bool may_stop = true);
  // No more tokens: what is held back is text.
  void finish();

  // The text so far, without what is held back.
  const std::string& text() const { return text_; }
  // The stop string that ended it; empty where none did.
  const std::string& matched() const { return matched_; }

 private:
  bool scan(bool may_stop);

  TextStream stream_;
  std::vector<std::string> strings_;
  std::string text_, held_, matched_;
  bool stopped_ = false;
};

}  // namespace nodewright
