#include "graph/plan_run.h"

#include <utility>

#include "graph/run/eager_run.h"

namespace nodewright {

std::string_view to_string(RunMode mode) {
  switch (mode) {
    case RunMode::eager:
      return "eager";
    case RunMode::captured:
      return "captured";
    case RunMode::explicit_:
      return "explicit";
  }
  return "?";
}

PlanRun::PlanRun(Plan plan, RunMode mode, const Stream& stream) : stream_(stream) {
  switch (mode) {
    case RunMode::eager:
      check_plan(plan);
      run_ = std::move(plan);
      break;
    case RunMode::captured:
      run_.emplace<CapturedGraph>(plan, stream);
      break;
    case RunMode::explicit_:
      run_.emplace<ExplicitGraph>(std::move(plan)).upload(stream);
      break;
  }
}

void PlanRun::launch() {
  if (const Plan* plan = std::get_if<Plan>(&run_)) {
    buffers_.check(*plan);
    run_eager(*plan, stream_);
  }
  if (CapturedGraph* captured = std::get_if<CapturedGraph>(&run_)) captured->launch(stream_);
  if (ExplicitGraph* exec = std::get_if<ExplicitGraph>(&run_)) exec->launch(stream_);
}

}  // namespace nodewright
