// One request from submission to its one end: what it asks for, how far it has come, and why it ended. Holds no memory
// of the device and decides nothing about steps.
//
//   waiting -> prefilling -> decoding -> finishing -> ended       finishing: resolved, but a step in flight has its row
//
// It decodes as soon as its whole prompt is launched: the next step may follow the last chunk as it follows any other.
// A preempted request waits again, and what it has put out is computed anew as if it were a part of its prompt.
// From waiting, prefilling and decoding it may be resolved at any time, and ends at once when no step has its row.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/shared_list.h"
#include "engine/schedule/turn_lines.h"
#include "models/step/hidden_states.h"

namespace nodewright {

using RequestId = int64_t;  // 1, 2, ... in the order of submission

enum class RequestPhase { waiting, prefilling, decoding, finishing, ended };
// complete: what its grammar asks for is all there, and nothing may follow.
enum class EndReason { stop_id, stop_string, complete, length, cancelled, failed };
std::string_view name_of(RequestPhase phase);
std::string_view name_of(EndReason reason);
// "stop", as OpenAI's interface calls all that ends a text by itself, "length", `cancelled` or `failed`.
std::string_view finish_word(EndReason reason, std::string_view cancelled, std::string_view failed);

struct RequestSpec {
  SharedList<int32_t> prompt;
  int64_t max_tokens = 16;
  SharedList<int32_t> stop_ids;
  bool constrained = false;  // what each token may be depends on the token before it
  HiddenStates hidden = HiddenStates::none;
  bool scores_prompt = false;  // every token of the prompt is computed, and scored
  // A request submitted before with the same prompt. This one is admitted when that prompt is computed, and shares its
  // pages, a copy of the last one; as any other where that request has ended. 0: none.
  RequestId like = 0;
  RequestId call = 0;      // the first request of the call that it belongs to, submitted before; 0: itself
  uint64_t client = 0;     // who asks: clients share the engine, and their calls each one's share
  std::string adapter;     // name of a loaded LoRA adapter; empty: none
  int32_t adapter_id = 0;  // of that adapter, for as long as it is loaded; set by the engine; 0: none
  // Whether it asks for something of every token, so that none may come from the prefix cache.
  bool computes_all() const { return scores_prompt || hidden == HiddenStates::full; }
};

// Launched steps that have a request's row and are not committed: at most one per slot.
inline constexpr int kMostInFlight = 2;

class Request {
 public:
  // `max_context`: tokens of prompt and outputs together. Throws Error where why_not() gives a reason.
  Request(RequestId id, RequestSpec spec, int64_t max_context);
  // Why no such request can be served; empty when it can.
  static std::string why_not(const RequestSpec& spec, int64_t max_context);

  RequestId id() const { return id_; }
  RequestId call() const { return spec_.call == 0 ? id_ : spec_.call; }  // the first request of its call
  TurnLines::Item turn() const { return {spec_.client, call(), id_}; }
  const RequestSpec& spec() const { return spec_; }
  RequestPhase phase() const { return phase_; }
  bool is_resolved() const { return reason_.has_value(); }
  std::optional<EndReason> reason() const { return reason_; }
  // Committed tokens, the stop id included.
  const std::vector<int32_t>& outputs() const { return outputs_; }
  int32_t sequence() const { return sequence_; }  // of the pool; -1 before it is admitted
  int in_flight() const { return in_flight_; }
  int choosing() const { return choosing_; }  // steps in flight that choose a token of it: the newest ones
  // Positions whose keys and values the device has, or will have when every launched step has run.
  int64_t computed() const { return computed_; }
  uint64_t last_step() const { return last_step_; }       // number of the last step launched, revoked ones included
  int64_t found_tokens() const { return found_tokens_; }  // of the prompt, in the cache when it was first admitted
  int64_t prompt_tokens() const { return static_cast<int64_t>(spec_.prompt.size()); }
  int64_t known_tokens() const { return prompt_tokens() + static_cast<int64_t>(outputs_.size()); }
  // Tokens of the prompt, and of outputs that are computed anew, that no launched step has.
  int64_t prompt_left() const { return phase_ == RequestPhase::prefilling ? prefill_end_ - computed_ : 0; }
  // Tokens that were known when it was admitted: a row that begins before their end is of the prompt.
  int64_t prefill_end() const { return prefill_end_; }
  // The least of max_tokens and what the prompt leaves of the context.
  int64_t most_outputs() const { return most_outputs_; }
  // Positions that it may write. Those of the prompt and of every output but the last, which nothing reads.
  int64_t reserved_length() const { return prompt_tokens() + most_outputs_ - 1; }
  // Index of the output that the next step to be launched chooses.
  int64_t next_output() const { return static_cast<int64_t>(outputs_.size()) + choosing_; }
  // Tokens after the last output in the step in flight, which is then the only one: guessed, and wrong perhaps.
  int64_t drafted() const { return drafted_; }
  // The most that a step may draft: with one token more they are what is left of most_outputs().
  int64_t most_drafts() const;
  // Prompt and outputs as one.
  std::vector<int32_t> tokens() const;
  int32_t token_at(int64_t position) const;
  // False where that token is chosen by a step in flight.
  bool knows(int64_t position) const { return position < known_tokens(); }
  // Whether a step that chooses one more token may be launched. Counts the tokens of steps in flight as spent.
  bool can_decode() const;

  // Each throws Error, and changes nothing, in a phase that does not allow it.
  void admit(int32_t sequence, int64_t start);  // the first `start` known tokens were found in the cache
  void preempt();                               // its pages are gone; in no step in flight
  // A step with a row of this request was launched. Tokens of the prompt or, when it decodes, the last output and
  // drafts after it.
  void launch(int64_t tokens, uint64_t step);
  void revoke(int64_t tokens);  // the same step never reached the device
  // A step with its row has been committed, whatever became of the row. What was drafted and not accepted is not
  // computed.
  void commit();
  // The token that a committed step chose, and the end that follows from it, if any. To be called before commit(), and
  // again for each draft that was right.
  std::optional<EndReason> accept(int32_t token, bool completes_stop_string, bool completes_grammar = false);
  void resolve(EndReason reason);

 private:
  void demand(bool holds, std::string_view transition) const;
  void leave_step();

  RequestId id_;
  RequestSpec spec_;
  int64_t most_outputs_;
  RequestPhase phase_ = RequestPhase::waiting;
  std::optional<EndReason> reason_;
  std::vector<int32_t> outputs_;
  int32_t sequence_ = -1;
  int64_t computed_ = 0;
  int64_t found_tokens_ = 0;
  int64_t prefill_end_ = 0;  // tokens known when it was admitted
  int in_flight_ = 0, choosing_ = 0;
  int64_t drafted_ = 0;
  uint64_t last_step_ = 0;
};

}  // namespace nodewright
