// What a request may go on with, guessed from its own tokens: a step that checks the guess costs little more than one
// that does not, and the tokens that come out are the same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nodewright {

// At most `most` tokens: those that followed the latest earlier occurrence of what `tokens` end with, which is of the
// longest n-gram that occurs earlier, of at most `longest_ngram` tokens. Where they reach the end of `tokens`, they go
// on with themselves: a cycle is drafted whole. Empty where not even the last token occurs earlier.
std::vector<int32_t> ngram_draft(std::span<const int32_t> tokens, int64_t most, int64_t longest_ngram = 3);

}  // namespace nodewright
