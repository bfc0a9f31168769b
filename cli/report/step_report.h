// What an iteration log says: how many steps a graph of their own size ran, what padding cost, which buckets would have
// fitted better, how long steps took. As text, and as a drawing (cli/report/step_plot.h).
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "cli/report/step_log.h"

namespace nodewright::cli {

// Steps of one kind.
struct StepGroup {
  int64_t steps = 0;
  int64_t exact = 0, padded = 0, without_graph = 0;  // they add up to `steps`
  int64_t rows = 0, computed_rows = 0;
  std::vector<double> us;
  void add(const StepRecord& step);
};

struct StepReport {
  StepGroup decode, with_prompts, all;
  std::map<int64_t, StepGroup> buckets;    // by the rows that were computed
  std::map<std::string, int64_t> reasons;  // steps without a graph
  std::map<int, int64_t> step_rows;        // steps by the rows that counted
  std::vector<int> used, suggested;        // buckets: those that ran, and as many or `count` that pad least,
                                           // the largest that there was among them
  int64_t suggested_padding = 0;           // rows, had these steps run in them
  int64_t prompt_tokens = 0, decode_rows = 0, drafts = 0;
  double seconds = 0, mean_waiting = 0;
  int64_t most_waiting = 0, least_free_pages = 0;
};

// `count`: of the suggested buckets; 0: as many as were used.
StepReport report_of(const StepLog& log, size_t count);
std::string to_text(const StepReport& report, const StepLogHead& head);

}  // namespace nodewright::cli
