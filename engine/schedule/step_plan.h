// What one step is to do: its rows, each some tokens of a request, and the bucket that holds them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/schedule/request.h"

namespace nodewright {

enum class StepKind { decode, prefill };

// Successive tokens of one request in a step. After each draft a token is chosen, too.
struct RowPlan {
  RequestId request = 0;
  int64_t first = 0;    // position of its first token
  int64_t tokens = 1;   // of the prompt; otherwise the token that the request's last step chose, and its drafts
  bool samples = true;  // chooses the next token; not for a chunk that leaves some of the prompt
  int64_t output = 0;   // index of that token among the request's outputs: keys its random number and its mask
  std::vector<int32_t> drafts = {};  // what may follow the last output: accepted as far as it is what is chosen
  // Tokens that choose: its last ones.
  int64_t chosen() const { return samples ? 1 + static_cast<int64_t>(drafts.size()) : 0; }
  bool operator==(const RowPlan&) const = default;
};

struct StepPlan {
  StepKind kind = StepKind::decode;  // prefill: at least one row is of a prompt
  int bucket = 0;                    // tokens of the graph; 0: eager
  std::vector<RowPlan> rows;
  bool operator==(const StepPlan&) const = default;
  int64_t tokens() const;
  int64_t chosen() const;
};

// Why a step of this kind cannot have the row, whose request this is (null: there is none); empty when it can.
std::string why_not_row(StepKind kind, const RowPlan& row, const Request* request);

}  // namespace nodewright
