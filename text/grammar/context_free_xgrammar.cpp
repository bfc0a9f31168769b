// text/grammar/context_free.h by xgrammar, whose headers no other file includes.
#include <fmt/format.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <map>
#include <mutex>
#include <stdexcept>
#include <variant>
#include <vector>

#include "base/work_budget.h"
#include "runtime/error.h"
#include "text/grammar/context_free.h"

namespace nodewright {
namespace {

constexpr size_t kMostRuleBytes = size_t{256} << 10;
constexpr int kCompilingThreads = 2;
constexpr int kDeepestRules = 1000;  // xgrammar recurses over nested rules; its default, 10 000, needs more stack
// Bytes of rules × columns of the vocabulary for a unit of WorkBudget: 8000 rules, 0.3 MB as printed, over 1064 columns
// took 2.5 s of two threads (CPU, two cores, 2026-11-27), so that what the server may spend on a call, 2e9 units, is
// half a minute at worst, and 31 KB of rules over 128 000 columns.
constexpr size_t kPlacesOfWork = 2;
constexpr size_t kMostFailures = 64;     // that the compiler's cache holds
constexpr size_t kMostUsed = 256;        // grammars that are found again without parsing
constexpr int64_t kLongestStepMs = 200;  // of the processor, which all requests of an engine share
constexpr int64_t kNsOfWork = 5;         // a unit of WorkBudget

thread_local std::string* warnings = nullptr;  // of the call of xgrammar that this thread is in

// Processor time of this thread alone.
int64_t thread_time_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

[[noreturn]] void refuse_rules(const std::string& detail) {
  throw Error({.doing = "read grammar", .object = "rules", .detail = detail, .fault = Fault::usage});
}

// Calls xgrammar. What it throws, and what it warns of, is refused: it warns of what it ignores.
template <typename Call>
auto checked(const Call& call) {
  struct Collector {
    std::string text;
    std::string* outer = std::exchange(warnings, &text);
    ~Collector() { warnings = outer; }
  } collector;
  try {
    auto result = call();
    if (!collector.text.empty()) refuse_rules(collector.text);
    return result;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    refuse_rules(error.what());
  }
}

// A rule may carry a temperature, which our sampling does not read.
void refuse_temperatures(const std::string& printed) {
  for (size_t begin = 0; begin < printed.size();) {
    const size_t end = std::min(printed.find('\n', begin), printed.size());
    const std::string_view line = std::string_view(printed).substr(begin, end - begin);
    const std::string_view head = line.substr(0, std::min(line.find(" ::= "), line.size()));
    if (head.find("temperature=") != std::string_view::npos)
      refuse_rules(
          fmt::format("the rule {} has a temperature, which is not supported", head.substr(0, head.find('['))));
    begin = end + 1;
  }
}

// Checked, as xgrammar prints them.
std::string parsed_rules(const std::string& rules) {
  if (rules.size() > kMostRuleBytes)
    refuse_rules(fmt::format("it has {} bytes, and at most {} are taken", rules.size(), kMostRuleBytes));
  if (rules.find('\0') != std::string::npos) refuse_rules("it holds a zero byte");
  [[maybe_unused]] static const bool is_limited = [] {
    xgrammar::SetMaxRecursionDepth(kDeepestRules);
    return true;
  }();
  xgrammar::Grammar grammar = checked([&] { return xgrammar::Grammar::FromEBNF(rules); });
  std::string printed = grammar.ToString();
  refuse_temperatures(printed);
  return printed;
}

}  // namespace

class ContextFreeGrammar {
 public:
  ContextFreeGrammar(xgrammar::CompiledGrammar made, std::shared_ptr<const GrammarVocabulary> words)
      : compiled(std::move(made)), vocabulary(std::move(words)) {}

  xgrammar::CompiledGrammar compiled;
  std::shared_ptr<const GrammarVocabulary> vocabulary;
};

struct ContextFreeCompiler::Parts {
  std::shared_ptr<const GrammarVocabulary> vocabulary;
  xgrammar::GrammarCompiler compiler;
  std::mutex mutex;
  size_t failures = 0;                                                  // in the compiler's cache
  std::map<std::string, std::weak_ptr<const ContextFreeGrammar>> used;  // by rules; at most kMostUsed
};

struct ContextFreeText::Place {
  std::shared_ptr<const ContextFreeGrammar> grammar;
  xgrammar::GrammarMatcher matcher;
  std::vector<int32_t> tokens;
  std::vector<uint32_t> mask;
  bool has_mask = false;  // of the tokens so far

  // Throws where a step takes too long for those that share the engine's thread. xgrammar counts no work: its time is
  // what it spends.
  void check_time(int64_t start_ns) const {
    const int64_t took_ns = thread_time_ns() - start_ns, took_ms = took_ns / 1'000'000;
    WorkBudget::spend(static_cast<uint64_t>(took_ns / kNsOfWork));
    if (took_ms > kLongestStepMs)
      throw Error({.doing = "follow the grammar",
                   .detail = fmt::format("the step behind {} tokens took {} ms, and at most {} are allowed",
                                         tokens.size(), took_ms, kLongestStepMs),
                   .advice = "a grammar that is less ambiguous",
                   .fault = Fault::usage});
  }
};

bool has_context_free_grammars() { return true; }

void check_context_free_rules(const std::string& rules) { parsed_rules(rules); }

std::string structural_tag_rules(const std::string& json) {
  return checked([&] {
    auto made = xgrammar::Grammar::FromStructuralTag(json);
    if (const auto* error = std::get_if<xgrammar::StructuralTagError>(&made))
      refuse_rules(std::visit([](const auto& one) { return std::string(one.what()); }, *error));
    return std::get<xgrammar::Grammar>(made).ToString();
  });
}

// Special tokens, and columns without a token, are empty words: xgrammar never allows those. Nor does it know stop ids.
ContextFreeCompiler::ContextFreeCompiler(std::shared_ptr<const GrammarVocabulary> vocabulary, size_t cache_bytes) {
  std::vector<std::string> words(vocabulary->columns());
  for (const GrammarVocabulary::Word& word : vocabulary->words()) words[static_cast<size_t>(word.token)] = word.bytes;
  const xgrammar::TokenizerInfo info(words, xgrammar::VocabType::RAW, std::nullopt, std::vector<int32_t>{});
  parts_.reset(new Parts{std::move(vocabulary),
                         xgrammar::GrammarCompiler(info, kCompilingThreads, true, static_cast<int64_t>(cache_bytes)),
                         {},
                         0,
                         {}});
}

ContextFreeCompiler::~ContextFreeCompiler() = default;

std::shared_ptr<const ContextFreeGrammar> ContextFreeCompiler::compile(const std::string& rules) {
  {
    const std::lock_guard lock(parts_->mutex);
    if (const auto found = parts_->used.find(rules); found != parts_->used.end())
      if (auto grammar = found->second.lock()) return grammar;
  }
  // Compiling walks over the vocabulary for each place of the rules, and nothing stops it: it is paid for before.
  const size_t places = parsed_rules(rules).size();
  WorkBudget::spend(places * parts_->vocabulary->columns() / kPlacesOfWork);
  WorkBudget::look_now();
  try {
    auto compiled = checked([&] { return parts_->compiler.CompileGrammar(rules); });
    auto grammar = std::make_shared<const ContextFreeGrammar>(std::move(compiled), parts_->vocabulary);
    const std::lock_guard lock(parts_->mutex);
    if (parts_->used.size() >= kMostUsed)
      std::erase_if(parts_->used, [](const auto& one) { return one.second.expired(); });
    if (parts_->used.size() < kMostUsed) parts_->used[rules] = grammar;
    WorkBudget::look_now();  // nobody may want it any more
    return grammar;
  } catch (const Error&) {
    // A failure stays in the cache, and counts no bytes there.
    const std::lock_guard lock(parts_->mutex);
    if (++parts_->failures % kMostFailures == 0) parts_->compiler.ClearCache();
    throw;
  }
}

size_t ContextFreeCompiler::cached_bytes() const {
  return static_cast<size_t>(std::max<int64_t>(parts_->compiler.GetCacheSizeBytes(), 0));
}

ContextFreeText::ContextFreeText(std::shared_ptr<const ContextFreeGrammar> grammar)
    : place_(new Place{grammar, xgrammar::GrammarMatcher(grammar->compiled), {}, {}}) {
  place_->mask.resize(grammar->vocabulary->mask_words());
}

ContextFreeText::~ContextFreeText() = default;

void ContextFreeText::push(int32_t token) {
  const int64_t start_ns = thread_time_ns();
  // The vocabulary is asked first: xgrammar looks through all special ids, and warns.
  if (place_->grammar->vocabulary->bytes_of(token).empty() || !place_->matcher.AcceptToken(token))
    throw Error({.doing = "follow the grammar", .detail = fmt::format("token {} may not come here", token)});
  place_->tokens.push_back(token);
  place_->has_mask = false;
  place_->check_time(start_ns);
}

void ContextFreeText::follow(std::span<const int32_t> tokens) {
  std::vector<int32_t>& known = place_->tokens;
  const auto same = static_cast<size_t>(std::ranges::mismatch(known, tokens).in1 - known.begin());
  if (same < known.size()) {
    place_->matcher.Rollback(static_cast<int>(known.size() - same));
    known.resize(same);
    place_->has_mask = false;
  }
  for (const int32_t token : tokens.subspan(same)) push(token);
}

std::span<const uint32_t> ContextFreeText::mask() {
  if (place_->has_mask) return place_->mask;
  const int64_t start_ns = thread_time_ns();
  int64_t words = std::ssize(place_->mask), stride = 1;
  DLTensor tensor{.data = place_->mask.data(),
                  .device = {kDLCPU, 0},
                  .ndim = 1,
                  .dtype = xgrammar::GetBitmaskDLType(),
                  .shape = &words,
                  .strides = &stride,
                  .byte_offset = 0};
  place_->matcher.FillNextTokenBitmask(&tensor);
  place_->has_mask = true;
  place_->check_time(start_ns);
  return place_->mask;
}

void ContextFreeText::add_allowed(std::span<uint32_t> allowed) {
  const std::span<const uint32_t> mask = this->mask();
  for (size_t i = 0; i < std::min(mask.size(), allowed.size()); ++i) allowed[i] |= mask[i];
}

bool ContextFreeText::is_complete() const { return place_->matcher.IsCompleted(); }

bool ContextFreeText::is_final() {
  return is_complete() && std::ranges::all_of(mask(), [](uint32_t word) { return word == 0; });
}

size_t ContextFreeText::tokens() const { return place_->tokens.size(); }

}  // namespace nodewright

// xgrammar's messages (XGRAMMAR_LOG_CUSTOMIZE). Those of its own threads are about nothing that a caller waits for.
namespace xgrammar {

[[noreturn]] void LogFatalImpl(const std::string& file, int line, const std::string& message);
void LogMessageImpl(const std::string& file, int line, int level, const std::string& message);

void LogFatalImpl(const std::string&, int, const std::string& message) { throw std::runtime_error(message); }

void LogMessageImpl(const std::string&, int, int, const std::string& message) {
  if (nodewright::warnings == nullptr) return;
  if (!nodewright::warnings->empty()) *nodewright::warnings += "; ";
  *nodewright::warnings += message;
}

}  // namespace xgrammar
