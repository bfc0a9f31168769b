#include "tests/fuzz/grammar_walk.h"

#include <cstdlib>
#include <filesystem>
#include <span>

#include "tests/fuzz/fuzz_target.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright::fuzz {
namespace {

constexpr uint64_t kNoLimit = UINT64_MAX / 2;
// Smaller than a server's, so that inputs reach them.
constexpr GrammarLimits kLimits{.states = 3000, .bytes = size_t{8} << 20, .step_work = 500'000};
// What one call may count beyond its limit, which it then does not do: the transitions of one state.
constexpr uint64_t kMostTransitions = 250'000;

// The first tokens of models/demo, named by $NODEWRIGHT_SOURCE_DIR or below the working folder: two special ones, all
// bytes, and pieces of two bytes or more.
const std::shared_ptr<const GrammarVocabulary>& vocabulary() {
  static const std::shared_ptr<const GrammarVocabulary> words = [] {
    const char* named = std::getenv("NODEWRIGHT_SOURCE_DIR");
    const std::filesystem::path source = named != nullptr && *named != '\0' ? named : ".";
    return std::make_shared<GrammarVocabulary>(Tokenizer::from_file(source / "models/demo/tokenizer.json"), 300);
  }();
  return words;
}

int32_t token_of_byte(char byte) {
  static const std::array<int32_t, 256> tokens = [] {
    std::array<int32_t, 256> all{};
    for (const GrammarVocabulary::Word& word : vocabulary()->words())
      if (word.bytes.size() == 1) all[static_cast<uint8_t>(word.bytes[0])] = word.token;
    return all;
  }();
  return tokens[static_cast<uint8_t>(byte)];
}

bool has(const std::vector<uint32_t>& mask, int32_t token) {
  return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
}

}  // namespace

void check_refusal(const Error& error) {
  require(!error.parts().doing.empty() && !error.parts().detail.empty(), "a refusal says what was refused, and why");
}

GrammarWalk::GrammarWalk(const std::string& pattern, Script& script)
    : all_(kNoLimit), script_(script), whole_(vocabulary(), pattern, kLimits), broken_(whole_) {}

template <class Call>
auto GrammarWalk::metered(const char* what, const Call& call) {
  const uint64_t walk = vocabulary()->word_bytes();
  const Meter meter(kNoLimit);
  auto result = fuzz::metered(what, {kLimits.step_work + walk + kMostTransitions, walk}, call);
  units_ = meter.units();
  require(units_ <= kLimits.step_work + walk, "a call that was not refused stayed within its limit");
  return result;
}

// Cancelled before it begins, then where the script says, then not at all.
template <class Call>
auto GrammarWalk::interrupted(const Call& call) {
  try {
    const WorkBudget budget(kNoLimit, [] { return true; });
    return call();  // there was nothing to do
  } catch (const WorkCancelled&) {
  }
  try {
    const WorkBudget budget(script_.below(static_cast<uint32_t>(units_ + 1)));
    return call();
  } catch (const WorkExceeded&) {
  }
  return call();
}

bool GrammarWalk::step(std::string_view preferred) {
  const std::vector<uint32_t> mask = checked_mask();
  check_tokens(mask);
  if (script_.below(4) == 0) preferred = {};
  for (const char byte : preferred)
    if (has(mask, token_of_byte(byte))) return push(token_of_byte(byte)), true;
  const auto columns = static_cast<int32_t>(vocabulary()->columns());
  const auto first = static_cast<int32_t>(script_.below(static_cast<uint32_t>(columns)));
  for (int32_t i = 0; i < columns; ++i)
    if (const int32_t token = (first + i) % columns; has(mask, token)) return push(token), true;
  return false;
}

std::vector<uint32_t> GrammarWalk::checked_mask() {
  const std::vector<uint32_t> mask = metered("a mask", [&] { return whole_.allowed(state_); });
  require(interrupted([&] { return broken_.allowed(broken_state_); }) == mask,
          "a mask that was interrupted is the same");
  check_bytes();
  return mask;
}

// All bytes are tokens: where a byte may come, so may a token, and where none may come, the text is complete.
void GrammarWalk::check_tokens(const std::vector<uint32_t>& mask) {
  bool any = false;
  metered("a token for each column", [&] {
    for (int32_t token = 0; token < static_cast<int32_t>(vocabulary()->columns()); ++token) {
      const bool may_come = whole_.after(state_, token) >= 0;
      require(has(mask, token) == may_come, "a mask allows a token that may come, and no other");
      any |= may_come;
    }
    return true;
  });
  require(any || is_complete(), "a text that is not complete can go on");
  require(whole_.is_final(state_) == (is_complete() && !any), "a text is final where nothing may follow");
}

void GrammarWalk::push(int32_t token) {
  const int32_t next = metered("a token", [&] { return whole_.after(state_, token); });
  broken_state_ = interrupted([&] { return broken_.after(broken_state_, token); });
  require(next >= 0 && broken_state_ >= 0, "what a mask allows may come");
  state_ = next;
  require(broken_.is_complete(broken_state_) == is_complete(), "a text that was interrupted is complete where it was");
  text_ += vocabulary()->bytes_of(token);
  check_bytes();
}

void GrammarWalk::check_bytes() const {
  const size_t mask = vocabulary()->mask_words() * sizeof(uint32_t);
  require(whole_.bytes() <= kLimits.bytes + mask, "an automaton stays within its bytes");
  const size_t reported = whole_.pattern_bytes() + whole_.bytes() + broken_.bytes();
  require(all_.live() <= 2 * reported + 65'536, "an automaton reports the memory that it takes");
}

}  // namespace nodewright::fuzz
