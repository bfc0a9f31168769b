// text/grammar/context_free.h in a build without xgrammar: every function says so.
#include "runtime/error.h"
#include "text/grammar/context_free.h"

namespace nodewright {
namespace {

[[noreturn]] void refuse_without_xgrammar() {
  throw Error({.doing = "read grammar",
               .object = "rules",
               .detail = "this build follows regular expressions alone; it has no xgrammar",
               .advice = "run make xgrammar and build again",
               .fault = Fault::usage});
}

}  // namespace

class ContextFreeGrammar {};
struct ContextFreeCompiler::Parts {};
struct ContextFreeText::Place {};

bool has_context_free_grammars() { return false; }
void check_context_free_rules(const std::string&) { refuse_without_xgrammar(); }
std::string structural_tag_rules(const std::string&) { refuse_without_xgrammar(); }

ContextFreeCompiler::ContextFreeCompiler(std::shared_ptr<const GrammarVocabulary>, size_t) {
  refuse_without_xgrammar();
}
ContextFreeCompiler::~ContextFreeCompiler() = default;
std::shared_ptr<const ContextFreeGrammar> ContextFreeCompiler::compile(const std::string&) {
  refuse_without_xgrammar();
}
size_t ContextFreeCompiler::cached_bytes() const { return 0; }

ContextFreeText::ContextFreeText(std::shared_ptr<const ContextFreeGrammar>) { refuse_without_xgrammar(); }
ContextFreeText::~ContextFreeText() = default;
void ContextFreeText::push(int32_t) { refuse_without_xgrammar(); }
void ContextFreeText::follow(std::span<const int32_t>) { refuse_without_xgrammar(); }
void ContextFreeText::add_allowed(std::span<uint32_t>) { refuse_without_xgrammar(); }
bool ContextFreeText::is_complete() const { return false; }
bool ContextFreeText::is_final() { return false; }
size_t ContextFreeText::tokens() const { return 0; }

}  // namespace nodewright
