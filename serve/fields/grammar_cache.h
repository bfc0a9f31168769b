// Automata of expressions that were asked for, by the expression: the ones used last, as far as their bytes fit.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "text/grammar/shared_grammar.h"

namespace nodewright {

// Not thread-safe. Requests that use a grammar keep it when it is dropped here.
class GrammarCache {
 public:
  explicit GrammarCache(size_t most_bytes = size_t{256} << 20) : most_bytes_(most_bytes) {}

  // Null where it is not kept.
  std::shared_ptr<SharedGrammar> find(const std::string& pattern);
  // `pattern` is not kept yet. Automata grow, so what they have now is counted, and the one added is kept in any case.
  void add(const std::string& pattern, std::shared_ptr<SharedGrammar> grammar);
  size_t size() const { return by_pattern_.size(); }

 private:
  struct Kept {
    std::string pattern;
    std::shared_ptr<SharedGrammar> grammar;
  };

  size_t most_bytes_;
  std::list<Kept> kept_;                                              // used last first
  std::map<std::string_view, std::list<Kept>::iterator> by_pattern_;  // of the strings in kept_
};

}  // namespace nodewright
