// Which tokens may come next where the text must match a regular expression: the deterministic automaton of a
// BytePattern, made as far as texts go, and for each of its states the mask over the vocabulary, made once.
//
//   const auto words = std::make_shared<GrammarVocabulary>(tokenizer, config.vocab);
//   Grammar grammar(words, "(yes|no)");
//   const std::vector<uint32_t>& mask = grammar.allowed(grammar.start());
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "text/grammar/byte_pattern.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright {

// The bytes of every token that is text: no special ones, none of nothing. Immutable.
class GrammarVocabulary {
 public:
  // `columns`: of the model, which may have more than the tokenizer has tokens, or fewer.
  GrammarVocabulary(const Tokenizer& tokenizer, int64_t columns);

  struct Word {
    std::string bytes;
    int32_t token = 0;
    size_t shared = 0;  // first bytes in common with the word before
  };
  const std::vector<Word>& words() const { return words_; }  // sorted by their bytes
  size_t columns() const { return place_.size(); }
  size_t mask_words() const { return mask_words_; }
  // The bytes of a token; empty where it is none of the words.
  std::string_view bytes_of(int32_t token) const;

 private:
  std::vector<Word> words_;
  std::vector<int32_t> place_;  // [columns] in words_, or -1
  size_t mask_words_;
};

// Not thread-safe: states and masks are made when they are asked for.
class Grammar {
 public:
  // Throws Error as parse_byte_pattern.
  Grammar(std::shared_ptr<const GrammarVocabulary> vocabulary, const std::string& pattern);

  int32_t start() const { return 0; }
  // The state after a token's bytes, or -1 where they may not follow. Throws Error where the automaton grows too large.
  int32_t after(int32_t state, int32_t token);
  // [mask_words()] A bit for each token that may follow: token i is bit i % 32 of word i / 32.
  const std::vector<uint32_t>& allowed(int32_t state);
  // Whether the text so far matches; and whether nothing may follow it.
  bool is_complete(int32_t state) const { return at(state).complete; }
  bool is_final(int32_t state) const { return at(state).complete && !at(state).continues; }
  size_t states() const { return states_.size(); }

 private:
  struct State {
    std::vector<int32_t> members;   // of the pattern's states, sorted
    std::array<int32_t, 256> next;  // -1: none; kUnknown
    bool complete = false, continues = false;
    std::vector<uint32_t> mask;  // empty: not made yet
  };

  const State& at(int32_t state) const { return *states_[static_cast<size_t>(state)]; }
  int32_t after_byte(int32_t state, uint8_t byte);
  int32_t state_of(std::vector<int32_t> members);

  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::string text_;
  BytePattern pattern_;
  std::vector<std::unique_ptr<State>> states_;
  std::map<std::vector<int32_t>, int32_t> by_members_;
};

}  // namespace nodewright
