// A request that follows a grammar: its masks, and the end of its text.
//
//   const auto words = std::make_shared<GrammarVocabulary>(tokenizer, config.vocab);
//   const auto grammar = std::make_shared<SharedGrammar>(words, "(yes|no)");
//   engine.submit(spec, sampling, constrained_to(grammar, config.eos));
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/sampling/choice_options.h"
#include "text/grammar/context_free.h"
#include "text/grammar/shared_grammar.h"

namespace nodewright {

// A request's masks and its end: of `eos` each is allowed exactly where the text is complete, and the request ends
// where nothing else may follow. Fills `allow` and `ends`, which are called on one thread, the engine's.
ChoiceOptions constrained_to(std::shared_ptr<SharedGrammar> grammar, std::vector<int32_t> eos);
// The same of a context-free grammar.
ChoiceOptions constrained_to(std::shared_ptr<const ContextFreeGrammar> grammar, std::vector<int32_t> eos);

}  // namespace nodewright
