// An expression whose texts many requests follow, on the threads of several engines: the pattern and what is known of
// it from the start are shared, and each thread has an automaton of its own, which grows with the texts of that thread.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "text/grammar/grammar.h"

namespace nodewright {

// Thread-safe.
class SharedGrammar {
 public:
  // Makes the first mask, so that an expression whose first step is too much work is refused here and not on an
  // engine's thread. Throws Error as Grammar.
  SharedGrammar(std::shared_ptr<const GrammarVocabulary> vocabulary, const std::string& pattern,
                GrammarLimits limits = {});

  // The automaton of the calling thread, to be used on that thread alone; another one when it is worn.
  std::shared_ptr<Grammar> of_this_thread();
  // Memory of the pattern and the automata, about.
  size_t bytes() const;

 private:
  const Grammar first_;  // never changes: the others begin as copies
  const size_t pattern_bytes_;
  mutable std::mutex mutex_;
  std::map<std::thread::id, std::shared_ptr<Grammar>> automata_;
};

}  // namespace nodewright
