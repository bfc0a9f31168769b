// Graphs and weights of an engine, replaced while it is paused, or given up while it sleeps.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/engine.h"
#include "engine/engine_parts.h"
#include "engine/option_range.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

void same(const char* name, int64_t is, int64_t was) {
  if (is != was)
    throw Error({.doing = "replace weights",
                 .object = name,
                 .detail = fmt::format("it is {}, and the engine was made for {}", is, was),
                 .advice = "an engine of its own for a model of another shape",
                 .fault = Fault::usage});
}

// Layers, as many as both have.
int64_t same_blocks(const ModelConfig& a, const ModelConfig& b) {
  int64_t count = 0;
  for (int64_t layer = 0; layer < std::min(a.layers, b.layers); ++layer)
    count += a.feed_forward(layer) == b.feed_forward(layer) ? 1 : 0;
  return count;
}

// The adapters that are loaded must fit, too.
void check_same_matrices(const ModelConfig& now, const ModelConfig& next) {
  same("hidden", next.hidden, now.hidden);
  same("heads", next.heads, now.heads);
  same("intermediate", next.intermediate, now.intermediate);
  same("layers whose feed-forward block is of the same kind", same_blocks(now, next), now.layers);
  same("gated", next.gated, now.gated);
}

// What the cache holds, and what requests were checked against, must fit the new weights.
void check_same_shape(const ModelConfig& now, const ModelConfig& next, int64_t max_context) {
  same("layers", next.layers, now.layers);
  same("kv heads", next.kv_heads, now.kv_heads);
  same("head_dim", next.head_dim, now.head_dim);
  same("vocabulary", next.vocab, now.vocab);
  same("window of all layers", next.window_of_all(), now.window_of_all());
  same("layers with a window", next.sliding_layers(), now.sliding_layers());
  same("window", next.window, now.window);
  check_option("max context", max_context, 1, next.longest_context());
}

void check_gives(HiddenStates hidden, const Request& request) {
  if (request.spec().hidden <= hidden) return;
  throw Error({.doing = "rebuild graphs",
               .object = "hidden",
               .detail = fmt::format("it is {}, and request {} asks for {} hidden states", name_of(hidden),
                                     request.id(), name_of(request.spec().hidden)),
               .advice = fmt::format("hidden states {}, or cancel the request", name_of(request.spec().hidden)),
               .fault = Fault::usage});
}

}  // namespace

void Engine::resume() {
  demand_awake("resume");
  pipeline_.resume(std::exchange(rebuilt_, PipelineState::Rebuilt::nothing));
}

void Engine::rebuild_graphs(const GraphOptions& graphs) {
  demand_paused("rebuild graphs");
  for (const RequestId id : pipeline_.waiting()) check_gives(graphs.hidden, *pipeline_.find(id));
  for (const RequestId id : pipeline_.admitted()) check_gives(graphs.hidden, *pipeline_.find(id));
  EngineOptions options = options_;
  options.hidden = graphs.hidden;
  options.buckets = graphs.buckets;
  options.exact_buckets = graphs.exact_buckets;
  options.mode = graphs.mode;
  options.policy = graphs.policy;
  options_ = checked_options(options, model_->config());
  scheduling_ = scheduling();
  rebuild(std::max(rebuilt_, PipelineState::Rebuilt::graphs));
}

void Engine::replace_weights(const DecoderModel& model) {
  demand_paused("replace weights");
  if (model_->config().shard.is_part() || model_->config().stage.is_part())
    throw Error({.doing = "replace weights",
                 .detail = "the engine runs on several devices, each with a part of them",
                 .advice = "an engine of its own for other weights",
                 .fault = Fault::usage});
  check_same_shape(model_->config(), model.config(), options_.max_context);
  if (options_.max_adapters > 0) check_same_matrices(model_->config(), model.config());
  model_ = &model;
  rebuild(PipelineState::Rebuilt::weights);
}

void Engine::sleep() {
  if (is_asleep()) return;
  slots_.demand_one_process("sleep");
  if (pipeline_.mode() != PipelineMode::running || !pipeline_.is_drained() || !pipeline_.admitted().empty())
    throw Error({.doing = "sleep",
                 .object = "engine",
                 .detail = pipeline_.describe(),
                 .advice = "resume() it where it is paused, and advance() until no request is admitted"});
  pipeline_.pause();
  pipeline_.lose_pages();
  drained_.reset();
  try {
    slots_.release();
  } catch (const Error& error) {
    pipeline_.fail(error.what());
    throw;
  }
}

void Engine::wake() {
  if (!is_asleep()) return;
  if (pipeline_.mode() == PipelineMode::failed)
    throw Error({.doing = "wake", .object = "engine", .detail = pipeline_.describe()});
  slots_.restore(*model_, slot_options(options_, model_->config()));
  adapters_.lose_slots();
  pipeline_.resume(PipelineState::Rebuilt::graphs);
}

void Engine::demand_awake(const char* doing) const {
  if (is_asleep()) throw Error({.doing = doing, .object = "engine", .detail = "it sleeps", .advice = "wake()"});
}

void Engine::demand_paused(const char* doing) const {
  demand_awake(doing);
  slots_.demand_one_process(doing);
  if (pipeline_.mode() != PipelineMode::paused)
    throw Error({.doing = doing,
                 .object = "engine",
                 .detail = pipeline_.describe(),
                 .advice = "pause(), and advance() until nothing is in flight"});
}

void Engine::rebuild(PipelineState::Rebuilt rebuilt) {
  try {
    slots_.rebuild(*model_, slot_options(options_, model_->config()));
    for (const RequestId id : pipeline_.admitted()) set_counts(*pipeline_.find(id));
  } catch (const Error& error) {
    pipeline_.fail(error.what());
    throw;
  }
  rebuilt_ = rebuilt;
}

}  // namespace nodewright
