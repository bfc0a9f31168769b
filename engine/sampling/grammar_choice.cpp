#include "engine/sampling/grammar_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/error.h"

namespace nodewright {
namespace {

// One request's place in its grammar.
struct GrammarPlace {
  std::shared_ptr<SharedGrammar> shared;
  std::vector<int32_t> eos;
  std::shared_ptr<Grammar> grammar;  // of the engine's thread, which is not known before the first call
  int32_t state = 0;
  size_t tokens = 0;  // that led here

  Grammar& automaton() {
    if (!grammar) grammar = shared->of_this_thread();
    return *grammar;
  }
  void push(int32_t token) {
    state = automaton().after(state, token);
    ++tokens;
    if (state < 0)
      throw Error({.doing = "follow the grammar", .detail = fmt::format("token {} may not come here", token)});
  }
};

void allow_ends(const std::vector<int32_t>& eos, std::span<uint32_t> allowed) {
  for (const int32_t id : eos)
    if (id >= 0 && static_cast<size_t>(id) / 32 < allowed.size())
      allowed[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
}

}  // namespace

ChoiceOptions constrained_to(std::shared_ptr<SharedGrammar> grammar, std::vector<int32_t> eos) {
  const auto place = std::make_shared<GrammarPlace>(GrammarPlace{std::move(grammar), std::move(eos)});
  ChoiceOptions options;
  options.allow = [place](std::span<const int32_t> outputs, std::span<uint32_t> allowed) {
    while (place->tokens < outputs.size()) place->push(outputs[place->tokens]);
    const std::vector<uint32_t>& mask = place->automaton().allowed(place->state);
    std::ranges::copy(std::span(mask).first(std::min(mask.size(), allowed.size())), allowed.begin());
    if (place->automaton().is_complete(place->state)) allow_ends(place->eos, allowed);
  };
  options.ends = [place](int32_t token) -> std::optional<EndReason> {
    place->push(token);
    return place->automaton().is_final(place->state) ? std::optional(EndReason::complete) : std::nullopt;
  };
  return options;
}

ChoiceOptions constrained_to(std::shared_ptr<const ContextFreeGrammar> grammar, std::vector<int32_t> eos) {
  const auto text = std::make_shared<ContextFreeText>(std::move(grammar));
  ChoiceOptions options;
  options.allow = [text, eos = std::move(eos)](std::span<const int32_t> outputs, std::span<uint32_t> allowed) {
    text->follow(outputs);
    text->add_allowed(allowed);
    if (text->is_complete()) allow_ends(eos, allowed);
  };
  options.ends = [text](int32_t token) -> std::optional<EndReason> {
    text->push(token);
    return text->is_final() ? std::optional(EndReason::complete) : std::nullopt;
  };
  return options;
}

}  // namespace nodewright
