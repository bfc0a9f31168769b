#include "cli/serve/shown_model.h"

#include <fmt/format.h>

#include <utility>

#include "cli/output/say.h"
#include "cli/serve/plan_times.h"
#include "serve/api/asked/call_options.h"

namespace nodewright::cli {
namespace {

ModelCard card_of(const SessionOptions& options, Session& session, const OpenAiApi& api, int rows,
                  std::vector<int> buckets) {
  return {.name = api.model().names.front(),
          .device = session.device().name(),
          .weights = "bf16",  // whatever the file holds (models/weights/bf16_conversion.h)
          .numerics = options.numerics,
          .mode = options.mode,
          .tuning = session.tuning_words(),
          .context = api.model().max_model_len,
          .rows = rows,
          .buckets = std::move(buckets),
          .chats = api.chats(),
          .tokenizes = api.model().tokenizer.has_value(),
          .sampling = default_sampling(api.model())};
}

PlanPages plans_of(const SessionOptions& options, Session& session, Engine& engine, const std::string& name, int rows,
                   bool timed) {
  PlanFacts about{{"model", name},
                  {"context", std::to_string(engine.pipeline().options().max_context)},
                  {"edges", options.edges},
                  {"numerics", options.numerics},
                  {"tuning", session.tuning_words()}};
  const int bucket = decode_bucket(engine.slots(), rows);
  if (!timed || bucket == 0) return {engine.slots(), std::move(about)};
  const int64_t context = timed_context(engine, rows);
  say("nodewright: times the nodes of the graph of {} rows, {} keys each\n", bucket, context);
  PlanTimings timings = time_plan(session, engine, bucket, rows);
  about.emplace_back("timed", fmt::format("the graph of {} rows, {} keys each", bucket, context));
  return {engine.slots(), std::move(about), std::move(timings), bucket};
}

}  // namespace

ShownModel shown_model(const SessionOptions& options, Session& session, Engine& engine, const OpenAiApi& api, int rows,
                       bool timed) {
  PlanPages plans = plans_of(options, session, engine, api.model().names.front(), rows, timed);
  ModelCard card = card_of(options, session, api, rows, plans.buckets());
  return {std::move(card), std::move(plans)};
}

}  // namespace nodewright::cli
