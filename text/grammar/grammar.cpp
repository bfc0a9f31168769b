#include "text/grammar/grammar.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr int32_t kUnknownState = -2;
// 1 KiB of transitions each, and a mask of up to 32 KiB for those at which a token ends.
constexpr size_t kMostGrammarStates = 20'000;

}  // namespace

GrammarVocabulary::GrammarVocabulary(const Tokenizer& tokenizer, int64_t columns)
    : place_(static_cast<size_t>(columns), -1), mask_words_(static_cast<size_t>((columns + 31) / 32)) {
  const int64_t most = std::min(columns, static_cast<int64_t>(tokenizer.vocab_size()));
  for (int32_t id = 0; id < most; ++id) {
    if (!tokenizer.has(id) || tokenizer.is_special(id)) continue;
    if (const std::string_view bytes = tokenizer.id_to_bytes(id); !bytes.empty())
      words_.push_back({std::string(bytes), id, 0});
  }
  std::ranges::stable_sort(words_, {}, &Word::bytes);
  for (size_t i = 0; i < words_.size(); ++i) {
    place_[static_cast<size_t>(words_[i].token)] = static_cast<int32_t>(i);
    if (i == 0) continue;
    const std::string &a = words_[i - 1].bytes, &b = words_[i].bytes;
    words_[i].shared = static_cast<size_t>(std::ranges::mismatch(a, b).in2 - b.begin());
  }
}

std::string_view GrammarVocabulary::bytes_of(int32_t token) const {
  if (token < 0 || static_cast<size_t>(token) >= place_.size() || place_[static_cast<size_t>(token)] < 0) return {};
  return words_[static_cast<size_t>(place_[static_cast<size_t>(token)])].bytes;
}

Grammar::Grammar(std::shared_ptr<const GrammarVocabulary> vocabulary, const std::string& pattern)
    : vocabulary_(std::move(vocabulary)), text_(pattern), pattern_(parse_byte_pattern(pattern)) {
  state_of({pattern_.start});
}

// The state of these members and all that they reach without a byte.
int32_t Grammar::state_of(std::vector<int32_t> members) {
  std::vector<bool> seen(pattern_.states.size(), false);
  for (const int32_t m : members) seen[static_cast<size_t>(m)] = true;
  for (size_t i = 0; i < members.size(); ++i)
    for (const int32_t to : pattern_.states[static_cast<size_t>(members[i])].free)
      if (!seen[static_cast<size_t>(to)]) {
        seen[static_cast<size_t>(to)] = true;
        members.push_back(to);
      }
  // Members that have bytes, and the end, are all that matter.
  std::erase_if(members, [&](int32_t m) {
    return m != pattern_.accept && pattern_.states[static_cast<size_t>(m)].edges.empty();
  });
  std::ranges::sort(members);
  if (const auto found = by_members_.find(members); found != by_members_.end()) return found->second;
  if (states_.size() >= kMostGrammarStates)
    throw Error({.doing = "follow regular expression",
                 .object = text_.substr(0, 200),
                 .detail = fmt::format("the texts so far need more than {} states", kMostGrammarStates),
                 .advice = "fewer or smaller repetitions"});
  auto state = std::make_unique<State>();
  state->next.fill(kUnknownState);
  for (const int32_t m : members) {
    state->complete |= m == pattern_.accept;
    state->continues |= !pattern_.states[static_cast<size_t>(m)].edges.empty();
  }
  state->members = members;
  const auto id = static_cast<int32_t>(states_.size());
  states_.push_back(std::move(state));
  by_members_.emplace(std::move(members), id);
  return id;
}

int32_t Grammar::after_byte(int32_t from, uint8_t byte) {
  State& state = *states_[static_cast<size_t>(from)];
  int32_t& next = state.next[byte];
  if (next != kUnknownState) return next;
  std::vector<int32_t> members;
  for (const int32_t m : state.members)
    for (const BytePattern::Edge& edge : pattern_.states[static_cast<size_t>(m)].edges)
      if (edge.first <= byte && byte <= edge.last) members.push_back(edge.to);
  std::ranges::sort(members);
  members.erase(std::ranges::unique(members).begin(), members.end());
  return next = members.empty() ? -1 : state_of(std::move(members));
}

int32_t Grammar::after(int32_t state, int32_t token) {
  const std::string_view bytes = vocabulary_->bytes_of(token);
  if (bytes.empty()) return -1;
  for (const char c : bytes) {
    state = after_byte(state, static_cast<uint8_t>(c));
    if (state < 0) return -1;
  }
  return state;
}

// In the order of their bytes words share beginnings with those before them, whose states `path` still has.
const std::vector<uint32_t>& Grammar::allowed(int32_t from) {
  std::vector<uint32_t>& mask = states_[static_cast<size_t>(from)]->mask;
  if (!mask.empty()) return mask;
  std::vector<uint32_t> made(vocabulary_->mask_words(), 0);
  std::vector<int32_t> path{from};  // after 0, 1, ... bytes of the last word
  for (const GrammarVocabulary::Word& word : vocabulary_->words()) {
    if (word.shared >= path.size()) continue;  // begins with what was refused
    path.resize(word.shared + 1);
    while (path.size() <= word.bytes.size()) {
      const int32_t next = after_byte(path.back(), static_cast<uint8_t>(word.bytes[path.size() - 1]));
      if (next < 0) break;
      path.push_back(next);
    }
    if (path.size() > word.bytes.size()) made[static_cast<size_t>(word.token) / 32] |= 1u << (word.token % 32);
  }
  return mask = std::move(made);
}

}  // namespace nodewright
