#include "text/grammar/grammar.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/work_budget.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr int32_t kUnknownState = -2;

}  // namespace

GrammarVocabulary::GrammarVocabulary(const Tokenizer& tokenizer, int64_t columns)
    : place_(static_cast<size_t>(columns), -1), mask_words_(static_cast<size_t>((columns + 31) / 32)) {
  const int64_t most = std::min(columns, static_cast<int64_t>(tokenizer.vocab_size()));
  for (int32_t id = 0; id < most; ++id) {
    if (!tokenizer.has(id) || tokenizer.is_special(id)) continue;
    if (const std::string_view bytes = tokenizer.id_to_bytes(id); !bytes.empty())
      words_.push_back({std::string(bytes), id, 0});
  }
  for (const Word& word : words_) word_bytes_ += word.bytes.size();
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

Grammar::Grammar(std::shared_ptr<const GrammarVocabulary> vocabulary, const std::string& pattern, GrammarLimits limits)
    : vocabulary_(std::move(vocabulary)),
      pattern_(std::make_shared<const BytePattern>(parse_byte_pattern(pattern))),
      text_(pattern.substr(0, 200)),
      limits_(limits),
      seen_(pattern_->states.size(), 0) {
  most_work_ = limits_.step_work;
  state_of({pattern_->start});
}

Grammar::Grammar(const Grammar& other)
    : vocabulary_(other.vocabulary_),
      pattern_(other.pattern_),
      text_(other.text_),
      limits_(other.limits_),
      by_members_(other.by_members_),
      seen_(other.seen_.size(), 0),
      state_bytes_(other.state_bytes_),
      bytes_(other.bytes_.load()),
      work_(other.work_) {
  for (const auto& state : other.states_) states_.push_back(std::make_unique<State>(*state));
}

size_t Grammar::pattern_bytes() const {
  size_t bytes = seen_.size() * sizeof(uint32_t);
  for (const BytePattern::State& state : pattern_->states)
    bytes +=
        sizeof state + state.edges.capacity() * sizeof(BytePattern::Edge) + state.free.capacity() * sizeof(int32_t);
  return bytes;
}

void Grammar::work(uint64_t amount) {
  work_ += amount;
  WorkBudget::spend(amount);
  if (work_ > most_work_)
    throw Error({.doing = "follow regular expression",
                 .object = text_,
                 .detail = fmt::format("one step takes more work than {} states and edges", limits_.step_work),
                 .advice = "fewer or smaller repetitions, and fewer alternatives that begin alike",
                 .fault = Fault::usage});
}

void Grammar::refuse_growth(const std::string& detail) const {
  throw Error({.doing = "follow regular expression",
               .object = text_,
               .detail = "the texts so far need more than " + detail,
               .advice = "fewer or smaller repetitions",
               .fault = Fault::usage});
}

// The state of these members and all that they reach without a byte.
int32_t Grammar::state_of(std::vector<int32_t> members) {
  ++search_;
  for (const int32_t m : members) seen_[static_cast<size_t>(m)] = search_;
  for (size_t i = 0; i < members.size(); ++i) {
    const std::vector<int32_t>& free = pattern_->states[static_cast<size_t>(members[i])].free;
    work(1 + free.size());
    for (const int32_t to : free)
      if (seen_[static_cast<size_t>(to)] != search_) {
        seen_[static_cast<size_t>(to)] = search_;
        members.push_back(to);
      }
  }
  // Members that have bytes, and the end, are all that matter.
  std::erase_if(members, [&](int32_t m) {
    return m != pattern_->accept && pattern_->states[static_cast<size_t>(m)].edges.empty();
  });
  std::ranges::sort(members);
  if (const auto found = by_members_.find(members); found != by_members_.end()) return found->second;
  if (states_.size() >= limits_.states) refuse_growth(fmt::format("{} states", limits_.states));
  const size_t bytes = sizeof(State) + 2 * members.size() * sizeof(int32_t);
  if (state_bytes_ + bytes > limits_.bytes) refuse_growth(fmt::format("{} bytes", limits_.bytes));
  auto state = std::make_unique<State>();
  state->next.fill(kUnknownState);
  for (const int32_t m : members) {
    state->complete |= m == pattern_->accept;
    state->continues |= !pattern_->states[static_cast<size_t>(m)].edges.empty();
  }
  state->members = members;
  const auto id = static_cast<int32_t>(states_.size());
  states_.push_back(std::move(state));
  by_members_.emplace(std::move(members), id);
  state_bytes_ += bytes;
  bytes_ += bytes;
  return id;
}

int32_t Grammar::after_byte(int32_t from, uint8_t byte) {
  State& state = *states_[static_cast<size_t>(from)];
  int32_t& next = state.next[byte];
  if (next != kUnknownState) return next;
  std::vector<int32_t> members;
  for (const int32_t m : state.members) {
    const std::vector<BytePattern::Edge>& edges = pattern_->states[static_cast<size_t>(m)].edges;
    work(1 + edges.size());
    for (const BytePattern::Edge& edge : edges)
      if (edge.first <= byte && byte <= edge.last) members.push_back(edge.to);
  }
  std::ranges::sort(members);
  members.erase(std::ranges::unique(members).begin(), members.end());
  return next = members.empty() ? -1 : state_of(std::move(members));
}

int32_t Grammar::after(int32_t state, int32_t token) {
  const std::string_view bytes = vocabulary_->bytes_of(token);
  if (bytes.empty()) return -1;
  most_work_ = work_ + limits_.step_work;
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
  most_work_ = work_ + limits_.step_work + vocabulary_->word_bytes();
  std::vector<uint32_t> made(vocabulary_->mask_words(), 0);
  std::vector<int32_t> path{from};  // after 0, 1, ... bytes of the last word
  for (const GrammarVocabulary::Word& word : vocabulary_->words()) {
    if (word.shared >= path.size()) continue;  // begins with what was refused
    path.resize(word.shared + 1);
    work(1);
    while (path.size() <= word.bytes.size()) {
      const int32_t next = after_byte(path.back(), static_cast<uint8_t>(word.bytes[path.size() - 1]));
      if (next < 0) break;
      path.push_back(next);
    }
    if (path.size() > word.bytes.size()) made[static_cast<size_t>(word.token) / 32] |= 1u << (word.token % 32);
  }
  const size_t more = made.size() * sizeof(uint32_t);
  if (bytes() + more > limits_.bytes) drop_masks();
  bytes_ += more;
  return mask = std::move(made);
}

// They can be made again; states cannot, since texts are at them.
void Grammar::drop_masks() {
  for (const auto& state : states_) std::vector<uint32_t>().swap(state->mask);
  bytes_ = state_bytes_;
}

}  // namespace nodewright
