// What the page of `nodewright serve` shows of the model beside its counters: the card, and the plans of its graphs.
#pragma once

#include "cli/session.h"
#include "engine/engine.h"
#include "serve/api/openai_api.h"
#include "serve/metrics/model_card.h"
#include "serve/page/plan_pages.h"

namespace nodewright::cli {

struct ShownModel {
  ModelCard card;
  PlanPages plans;
};

// `rows`: outputs computed at once. With `timed`, the nodes of the largest decode graph are timed first
// (cli/serve/plan_times.h), and a line on stderr says so. Before the engine runs.
ShownModel shown_model(const SessionOptions& options, Session& session, Engine& engine, const OpenAiApi& api, int rows,
                       bool timed);

}  // namespace nodewright::cli
