// One sequence of the nanoGPT model: a prompt, then token after token until the context is full. The prompt runs
// eagerly, as in the article; a step runs in the mode that was chosen.
//
//   NanogptSequence sequence(device, stream, kernels, weights, {.mode = RunMode::explicit_});
//   int32_t token = sequence.start(prompt, {.temperature = 1.0f, .seed = 42});
//   while (const std::optional<int32_t> next = sequence.step()) ...
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "examples/nanogpt/nanogpt_graph.h"
#include "graph/plan_run.h"

namespace nodewright {

struct NanogptSampling {
  float temperature = 0.0f;  // below 1e-5: greedy; else the choice is a draw from softmax(logits / temperature)
  uint64_t seed = 0;         // with the position, the whole random state
};

struct NanogptOptions {
  RunMode mode = RunMode::explicit_;
  EdgePolicy policy = EdgePolicy::programmatic;
};

class NanogptSequence {
 public:
  // Compiles or loads the kernels, takes the memory, builds the step. `weights` must outlive the sequence.
  NanogptSequence(Device& device, const Stream& stream, KernelCache& kernels, const NanogptWeights& weights,
                  const NanogptOptions& options);

  // Builds the plan of prompts of this length now instead of in start(). Throws Error (usage) unless it is 1 to
  // context.
  void prepare(int64_t prompt_length);

  // Forgets what was, and returns the token after `prompt`. Throws Error (usage) for a length that prepare() refuses or
  // a token outside the vocabulary, and for a NaN among the logits.
  int32_t start(std::span<const int32_t> prompt, const NanogptSampling& sampling);

  // Puts the last choice, or `forced` in its place, into the cache and returns the token after it; nothing when the
  // context is full: learned positions end there. Throws Error as start() does.
  std::optional<int32_t> step(std::optional<int32_t> forced = std::nullopt);

  // Submits `count` steps back to back without waiting, for measuring. Throws Error when they do not fit.
  void submit(int64_t count);

  int64_t length() const { return length_; }                            // tokens in the cache
  int64_t room() const { return weights_.config().context - length_; }  // steps that fit
  void read_logits(std::span<float> logits) const;                      // of the last choice, vocab floats
  const Plan& step_plan() const { return step_plan_; }
  const Plan& prompt_plan(int64_t prompt_length) { return prepare(prompt_length), prompts_.at(prompt_length); }

 private:
  void check_token(int32_t token) const;
  int32_t finish();

  Device& device_;
  const Stream& stream_;
  KernelCache& kernels_;
  const NanogptWeights& weights_;
  NanogptOptions options_;
  NanogptState state_;
  Plan step_plan_;
  PlanRun step_;
  std::map<int64_t, Plan> prompts_;  // by length
  int64_t length_ = 0;
  bool is_forced_ = false;  // the device's token of the step is not -1
};

}  // namespace nodewright
