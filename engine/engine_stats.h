// What an engine counts while it serves. Plain numbers: cli and tests read them, engine/engine_report writes them out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "graph/plan_run.h"

namespace nodewright {

// Steps that ran in plans of one bucket.
struct BucketUse {
  int64_t steps = 0;
  int64_t rows = 0;   // of those steps, the ones that counted
  int64_t exact = 0;  // steps without padding
};

struct EngineStats {
  std::map<std::pair<int, RunMode>, BucketUse> buckets;  // by rows of the plan and by how it was run
  std::map<int, int64_t> step_rows;                      // steps by the rows that counted
  std::map<std::string, int64_t> fallbacks;              // steps that had no graph, by the reason
  int64_t prefill_steps = 0;                             // steps with prompt tokens
  int64_t prompt_tokens = 0;                             // that went through the layers
  int64_t output_tokens = 0;                             // that requests accepted
  int64_t drafted = 0;                                   // tokens that were guessed, of requests that had not ended
  int64_t accepted_drafts = 0;                           // of those, the ones that requests accepted
  int64_t padded_rows = 0;
  int64_t zombie_rows = 0;  // computed for requests that had ended
  int64_t most_pages = 0;   // owned at once
  // From the commit of a last step in flight to the next launch, with requests to serve: the device waits for the host.
  int64_t idle_gaps = 0;
  double idle_ms = 0, longest_idle_ms = 0;

  int64_t steps() const {
    int64_t sum = 0;
    for (const auto& [bucket, use] : buckets) sum += use.steps;
    return sum;
  }
};

}  // namespace nodewright
