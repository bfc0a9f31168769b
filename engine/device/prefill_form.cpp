#include "engine/device/prefill_form.h"

#include <string>

#include "models/plan/decoder_graph.h"
#include "runtime/error.h"

namespace nodewright {

std::string_view to_string(PrefillForm form) {
  constexpr std::string_view kNames[] = {"graph", "piecewise", "eager"};
  return kNames[static_cast<size_t>(form)];
}

PrefillForm prefill_form(std::string_view word) {
  for (const PrefillForm form : {PrefillForm::graph, PrefillForm::piecewise, PrefillForm::eager})
    if (word == to_string(form)) return form;
  throw Error({.doing = "choose a form of prefill",
               .object = std::string(word),
               .detail = "no such form",
               .advice = "graph, piecewise or eager",
               .fault = Fault::usage});
}

PromptRun::PromptRun(const Plan& plan, PrefillForm form, const Stream& stream) {
  if (form == PrefillForm::piecewise)
    piecewise_.emplace(plan, is_attention, stream);
  else
    eager_.emplace(plan, RunMode::eager, stream);
}

void PromptRun::launch() {
  if (piecewise_) piecewise_->launch();
  if (eager_) eager_->launch();
}

}  // namespace nodewright
