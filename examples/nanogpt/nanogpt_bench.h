// The measurements of "NanoGPT: CUDA Graph Replay" on our model of it (examples/nanogpt/nanogpt_graph.h): its five
// configurations and its sweep of generation lengths, in the three runs of one plan.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/spread.h"
#include "examples/nanogpt/nanogpt_sequence.h"

namespace nodewright {

// One row of the article's tables.
struct NanogptConfiguration {
  std::string name;
  int64_t prompt = 0;     // tokens
  int64_t generated = 0;  // tokens: the first comes from the prompt, each other one from a step
  bool operator==(const NanogptConfiguration&) const = default;
};
std::vector<NanogptConfiguration> nanogpt_named_configurations();
// The article's sweep: a prompt of 8 tokens.
inline constexpr int64_t kNanogptSweepPrompt = 8;
std::vector<int64_t> nanogpt_sweep_lengths();

struct NanogptBenchOptions {
  EdgePolicy policy = EdgePolicy::programmatic;
  int samples = 20;          // generations of each row and mode
  uint64_t seed = 42;        // of the choices, as in the article
  float temperature = 1.0f;  // as the article's softmax and multinomial
};

// In the order of RunMode.
inline constexpr std::array kNanogptModes = {RunMode::eager, RunMode::captured, RunMode::explicit_};

struct NanogptFigures {
  Spread step_ms;         // host time of one step, from the launch until its token is read; every step of every sample
  Spread end_to_end_ms;   // from the prompt on the host to the last token; graphs were built before
  Spread device_step_ms;  // device time a step when steps follow each other without waiting
  Spread build_ms;        // plan and, where there is one, graph: paid once
  std::vector<int32_t> greedy, sampled;  // the tokens
};

struct NanogptLine {
  NanogptConfiguration configuration;
  std::array<NanogptFigures, 3> modes;  // in the order of kNanogptModes
  std::string changed;                  // the mode whose tokens were not the same in every sample; empty: none

  double tokens_per_s(size_t mode) const;
  double step_speedup(size_t mode) const;  // over eager, of medians
  double end_to_end_speedup(size_t mode) const;
};

// Nothing when the three modes chose the same tokens, greedy and sampled, in every sample. Else the modes and the
// place.
std::optional<std::string> token_difference(const NanogptLine& line);

class NanogptBench {
 public:
  // Takes memory for one sequence a mode, and builds their steps.
  NanogptBench(Device& device, const Stream& stream, KernelCache& kernels, const NanogptWeights& weights,
               const NanogptBenchOptions& options);

  // Throws Error (usage) naming a configuration that does not fit the context.
  void check(const NanogptConfiguration& configuration) const;
  // The modes take turns within each sample, in an order that changes from sample to sample. Throws Error as check().
  NanogptLine measure(const NanogptConfiguration& configuration);

  const Plan& step_plan() const { return sequences_[0].step_plan(); }

 private:
  double build_ms(RunMode mode) const;

  Device& device_;
  const Stream& stream_;
  const NanogptWeights& weights_;
  NanogptBenchOptions options_;
  NanogptKernels step_kernels_;
  NanogptState build_state_;  // what the plans that are built only to be timed refer to
  std::array<NanogptSequence, 3> sequences_;
};

}  // namespace nodewright
