// The graphs of a bucket in a slot, by kind.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "engine/device/prefill_form.h"
#include "graph/plan_run.h"
#include "models/plan/choice_graph.h"
#include "models/plan/decoder_graph.h"

namespace nodewright {

// A step, ready to be launched on the streams that it was built for. Not thread-safe.
class StepRun {
 public:
  virtual ~StepRun() = default;
  virtual void launch() = 0;
  // That of the explicit graph, of several devices that of the first; null where there is none.
  virtual const Plan* plan() { return nullptr; }
  // Those of the explicit graph; 0 where there is none.
  virtual size_t nodes() { return 0; }
};

// prompt: a step with prompt tokens in a form of its own (PrefillForm). adapted: a step in which rows have adapters.
// choice: the second choice of a step's rows.
enum class GraphKind : uint8_t { plain, prompt, adapted, adapted_prompt, choice };

struct StepGraph {
  DecodeState state;
  ChoiceState choice;  // only with options.choices
  std::map<GraphKind, std::unique_ptr<StepRun>> runs;

  StepRun& run(GraphKind kind) const { return *runs.at(kind); }
  // The step's own; prompts take theirs where there is one.
  StepRun& step(bool prompt, bool adapted) const;
};

// A plan of one device, in any mode.
class PlanStepRun : public StepRun {
 public:
  PlanStepRun(Plan plan, RunMode mode, const Stream& stream) : run_(std::move(plan), mode, stream) {}
  void launch() override { run_.launch(); }
  const Plan* plan() override;
  size_t nodes() override;

 private:
  PlanRun run_;
};

// A plan in one of the forms of prompts.
class PromptStepRun : public StepRun {
 public:
  PromptStepRun(const Plan& plan, PrefillForm form, const Stream& stream) : run_(plan, form, stream) {}
  void launch() override { run_.launch(); }

 private:
  PromptRun run_;
};

}  // namespace nodewright
