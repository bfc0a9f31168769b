#include "text/grammar/shared_grammar.h"

namespace nodewright {
namespace {

Grammar with_first_mask(Grammar grammar) {
  grammar.allowed(grammar.start());
  return grammar;
}

}  // namespace

SharedGrammar::SharedGrammar(std::shared_ptr<const GrammarVocabulary> vocabulary, const std::string& pattern,
                             GrammarLimits limits)
    : first_(with_first_mask(Grammar(std::move(vocabulary), pattern, limits))),
      pattern_bytes_(pattern.size() + first_.pattern_bytes()) {}

std::shared_ptr<Grammar> SharedGrammar::of_this_thread() {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Grammar>& own = automata_[std::this_thread::get_id()];
  if (!own || own->is_worn()) own = std::make_shared<Grammar>(first_);
  return own;
}

size_t SharedGrammar::bytes() const {
  size_t bytes = pattern_bytes_ + first_.bytes();
  const std::lock_guard lock(mutex_);
  for (const auto& [thread, automaton] : automata_) bytes += automaton->bytes();
  return bytes;
}

}  // namespace nodewright
