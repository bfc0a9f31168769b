// Which tokens of prompts the steps in flight score, and which are reported already: a prompt that was preempted is
// computed again.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "engine/schedule/pipeline.h"
#include "engine/topology/step_slots.h"

namespace nodewright {

class PromptScores {
 public:
  struct PromptToken {
    RequestId request = 0;
    int64_t position = 0;
  };

  // The slot's next step asks for nothing yet.
  void begin(int slot) { at(slot) = {}; }
  // Requests the score of the token at `position` + 1, unless it was reported, with the `top` likeliest tokens.
  // `step_row`: of the token at `position`.
  void ask(int slot, const Request& request, int64_t position, int32_t step_row, int top);
  // What the slot's last step was asked for, and in the same order of which tokens.
  std::span<const ScoredRow> rows(int slot) { return at(slot).rows; }
  std::span<const PromptToken> tokens(int slot) { return at(slot).tokens; }

  void set_told(const PromptToken& token) { next_[token.request] = token.position + 1; }
  void forget(RequestId id) { next_.erase(id); }

 private:
  struct Asked {
    std::vector<ScoredRow> rows;
    std::vector<PromptToken> tokens;
  };

  Asked& at(int slot) { return asked_[static_cast<size_t>(slot)]; }

  std::array<Asked, kSlots> asked_;
  std::map<RequestId, int64_t> next_;  // position that is to be told; not there: 1
};

}  // namespace nodewright
