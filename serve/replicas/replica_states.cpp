#include "serve/replicas/replica_states.h"

#include <nlohmann/json.hpp>
#include <vector>

namespace nodewright {
namespace {

using StatesJson = nlohmann::ordered_json;

std::string text_of(const StatesJson& json) { return json.dump(-1, ' ', false, StatesJson::error_handler_t::replace); }

StatesJson json_of_states(std::span<const ReplicaState> states, bool with_load) {
  StatesJson all = StatesJson::array();
  for (const ReplicaState& state : states) {
    StatesJson one{{"engine", all.size()}, {"state", word_of(state.admission)}};
    if (with_load) one.update({{"open", state.open}, {"tokens", state.tokens}});
    if (!state.failure.empty()) one["reason"] = state.failure;
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace

std::string_view word_of(Admission admission) {
  constexpr std::string_view kWords[] = {"ready", "full", "loading", "asleep", "draining", "failed"};
  return kWords[static_cast<size_t>(admission)];
}

std::string health_body(std::span<const ReplicaState> states) {
  return text_of({{"replicas", json_of_states(states, false)}});
}

std::string live_body(Replicas& replicas) {
  std::vector<const ServeMetrics*> engines;
  for (size_t i = 0; i < replicas.count(); ++i) engines.push_back(&replicas.metrics(i));
  const std::string states = replicas.count() > 1 ? text_of(json_of_states(replicas.states(), true)) : "";
  return ServeMetrics::live_json(word_of(replicas.admission()), engines, states);
}

}  // namespace nodewright
