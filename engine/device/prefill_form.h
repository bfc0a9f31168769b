// How steps with prompt tokens are launched. All three run the same kernels with the same arguments: equal bits.
#pragma once

#include <optional>
#include <string_view>

#include "graph/plan_run.h"
#include "graph/run/piecewise_run.h"

namespace nodewright {

// graph: as every other step, attention inside. piecewise: graphs of the nodes between attention, which is launched by
// itself. eager: node by node.
enum class PrefillForm : uint8_t { graph, piecewise, eager };

std::string_view to_string(PrefillForm form);
// "graph", "piecewise" or "eager". Throws Error with Fault::usage otherwise.
PrefillForm prefill_form(std::string_view word);

// A plan in one of the forms but graph, which is a PlanRun's affair.
class PromptRun {
 public:
  PromptRun(const Plan& plan, PrefillForm form, const Stream& stream);
  void launch();

 private:
  std::optional<PlanRun> eager_;
  std::optional<PiecewiseRun> piecewise_;
};

}  // namespace nodewright
