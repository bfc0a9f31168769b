// Which tokens may come next where the text must follow a context-free grammar, which no regular expression is equal
// to. The matcher is xgrammar, which a build may lack (cmake/NodewrightXgrammar.cmake); its headers are known to one
// .cpp.
//
//   ContextFreeCompiler compiler(words);
//   ContextFreeText text(compiler.compile(R"(root ::= "(" root ")" | "")"));
//   text.add_allowed(mask);  text.push(token);
//
// Grammars are rules of xgrammar's EBNF, much like GBNF, and `root` is the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "text/grammar/grammar.h"

namespace nodewright {

// Whether this build has xgrammar. Without it every function below throws Error (usage) that says so.
bool has_context_free_grammars();

// Throws Error (usage) with the line where `rules` are not of the syntax, for more than 256 KiB, and for what xgrammar
// would take and then ignore.
void check_context_free_rules(const std::string& rules);

// The rules of one of xgrammar's structural tags, whose JSON schemas have been replaced by grammars: its own reading of
// schemas leaves keywords out. Throws Error (usage).
std::string structural_tag_rules(const std::string& json);

// Compiled for one vocabulary. Immutable.
class ContextFreeGrammar;

// Thread-safe.
class ContextFreeCompiler {
 public:
  // `cache_bytes`: of compiled grammars that are kept, the ones used last; those in use live on without it. The one
  // compiled last may exceed it.
  explicit ContextFreeCompiler(std::shared_ptr<const GrammarVocabulary> vocabulary,
                               size_t cache_bytes = size_t{256} << 20);
  ~ContextFreeCompiler();
  ContextFreeCompiler(const ContextFreeCompiler&) = delete;
  ContextFreeCompiler& operator=(const ContextFreeCompiler&) = delete;

  // Throws Error (usage) as check_context_free_rules. Spends WorkBudget by the rules and the vocabulary before it
  // begins, since nothing stops it then; what is cancelled meanwhile throws WorkCancelled at its end.
  std::shared_ptr<const ContextFreeGrammar> compile(const std::string& rules);
  // Approximate bytes of the compiled grammars that are kept.
  size_t cached_bytes() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// The place of one text in a grammar. Used by one thread at a time.
class ContextFreeText {
 public:
  explicit ContextFreeText(std::shared_ptr<const ContextFreeGrammar> grammar);
  ~ContextFreeText();
  ContextFreeText(const ContextFreeText&) = delete;
  ContextFreeText& operator=(const ContextFreeText&) = delete;

  // Goes one token on. Throws Error where it may not come here, or where the grammar is so ambiguous that a step takes
  // longer than 200 ms of the processor.
  void push(int32_t token);
  // The text is these tokens: goes back after those that it has in common with the tokens so far, and on from there.
  void follow(std::span<const int32_t> tokens);
  // Sets the bits of the tokens that may follow: token i is bit i % 32 of word i / 32. Throws Error as push().
  void add_allowed(std::span<uint32_t> allowed);
  // Whether the text so far follows the grammar; and whether nothing may follow it.
  bool is_complete() const;
  bool is_final();
  size_t tokens() const;  // so far

 private:
  struct Place;
  std::span<const uint32_t> mask();

  std::unique_ptr<Place> place_;
};

}  // namespace nodewright
