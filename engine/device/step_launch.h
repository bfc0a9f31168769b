// A step as the host submits it.
#pragma once

#include <cstdint>
#include <span>

#include "engine/device/table_updates.h"
#include "engine/device/token_score.h"
#include "engine/schedule/pipeline.h"

namespace nodewright {

struct StepLaunch {
  int slot = 0;
  int bucket = 0;                           // one of the buckets, or 0 with eager_rows
  int32_t live = 0;                         // rows that are written
  int32_t sampled = 0;                      // of those, the first rows: their next token is chosen
  std::span<const PageCopy> copies;         // run before the step, in this order
  std::span<const TablePages> tables = {};  // of sequences whose pages have changed since the last launch
  bool prompt = false;                      // it has prompt tokens
  bool chooses_again = true;                // sample() may be told so: logits are kept
  bool adapted = false;                     // rows have adapters; else the inputs' say nothing
  int32_t hidden = 0;                       // rows, the first, whose hidden states come back with the tokens
  std::span<const ScoredRow> scored = {};   // told with the tokens; only with options.choices
};

}  // namespace nodewright
