// Which tokens may come next where the text must match a regular expression: the deterministic automaton of a
// BytePattern, made as far as texts go, and for each of its states the mask over the vocabulary, made once.
//
//   const auto words = std::make_shared<GrammarVocabulary>(tokenizer, config.vocab);
//   Grammar grammar(words, "(yes|no)");
//   const std::vector<uint32_t>& mask = grammar.allowed(grammar.start());
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "text/grammar/patterns/byte_pattern.h"
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
  size_t word_bytes() const { return word_bytes_; }  // of all words together
  // The bytes of a token; empty where it is none of the words.
  std::string_view bytes_of(int32_t token) const;

 private:
  std::vector<Word> words_;
  std::vector<int32_t> place_;  // [columns] in words_, or -1
  size_t mask_words_, word_bytes_ = 0;
};

struct GrammarLimits {
  size_t states = 20'000;
  size_t bytes = size_t{64} << 20;  // of states and masks; masks make room for each other
  // Limit of one call, beyond a walk over the vocabulary: states, edges and bytes of tokens visited.
  uint64_t step_work = 8'000'000;
};

// Not thread-safe, since states and masks are made when they are asked for: text/grammar/shared_grammar.h gives each
// thread one of its own.
class Grammar {
 public:
  // Throws Error as parse_byte_pattern.
  Grammar(std::shared_ptr<const GrammarVocabulary> vocabulary, const std::string& pattern, GrammarLimits limits = {});
  // With the states and masks that `other` has made so far.
  Grammar(const Grammar& other);
  Grammar& operator=(const Grammar&) = delete;

  int32_t start() const { return 0; }
  // The state after a token's bytes, or -1 where they may not follow. Throws Error where the automaton grows too large,
  // or one call takes more than GrammarLimits::step_work.
  int32_t after(int32_t state, int32_t token);
  // [mask_words()] A bit for each token that may follow: token i is bit i % 32 of word i / 32. Valid until the next
  // call. Throws Error as after().
  const std::vector<uint32_t>& allowed(int32_t state);
  // Whether the text so far matches; and whether nothing may follow it.
  bool is_complete(int32_t state) const { return at(state).complete; }
  bool is_final(int32_t state) const { return at(state).complete && !at(state).continues; }
  size_t states() const { return states_.size(); }
  // Memory of states and masks, about. Callable on any thread.
  size_t bytes() const { return bytes_; }
  size_t pattern_bytes() const;  // of the pattern, about; never changes
  // Whether the limits are so near that texts may soon be refused which a new automaton would follow.
  bool is_worn() const { return 2 * states_.size() > limits_.states || 2 * state_bytes_ > limits_.bytes; }
  uint64_t work() const { return work_; }  // so far

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
  void work(uint64_t amount);
  [[noreturn]] void refuse_growth(const std::string& detail) const;
  void drop_masks();

  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::shared_ptr<const BytePattern> pattern_;
  std::string text_;  // of the pattern, its beginning, for messages
  GrammarLimits limits_;
  std::vector<std::unique_ptr<State>> states_;
  std::map<std::vector<int32_t>, int32_t> by_members_;
  std::vector<uint32_t> seen_;  // [states of the pattern] the search that saw it last
  uint32_t search_ = 0;
  size_t state_bytes_ = 0;
  std::atomic<size_t> bytes_ = 0;
  uint64_t work_ = 0, most_work_ = 0;
};

}  // namespace nodewright
