#include "serve/loop/loop_load.h"

#include <algorithm>

namespace nodewright {
namespace {

int64_t tokens_before(const Request& request) {
  const int64_t outputs = std::max<int64_t>(request.most_outputs() - request.next_output(), 0);
  return outputs + (request.phase() == RequestPhase::waiting ? request.known_tokens() : request.prompt_left());
}

}  // namespace

int64_t LoopLoad::pages_for(int64_t prompt_tokens, int64_t outputs) const {
  if (page_tokens == 0) return 0;
  return std::min((prompt_tokens + page_tokens) / page_tokens, most_pages) + outputs - 1;
}

void LoopLoad::add(const AskedRequest& asked) {
  const auto prompt = static_cast<int64_t>(asked.spec.prompt.size()),
             count = static_cast<int64_t>(asked.outputs.size());
  const int64_t room = max_context == 0 ? asked.spec.max_tokens : std::max<int64_t>(max_context - prompt, 0);
  outputs += count;
  tokens += prompt + count * std::min(asked.spec.max_tokens, room);
  free_pages -= pages_for(prompt, count);
}

LoopLoad load_of(const Engine& engine) {
  const PipelineState& pipeline = engine.pipeline();
  const KvPool& pool = pipeline.pool();
  LoopLoad load{.rows = engine.max_batch(),
                .free_pages = pool.available(),
                .max_context = pipeline.options().max_context,
                .page_tokens = pool.page_tokens(),
                .most_pages = pool.most_pages(pipeline.options().max_context)};
  for (const RequestId id : pipeline.admitted()) {
    const Request& request = *pipeline.find(id);
    if (request.is_resolved()) continue;  // its row is free when a step in flight has ended
    ++load.outputs;
    load.tokens += tokens_before(request);
  }
  for (const RequestId id : pipeline.waiting()) {
    const Request& request = *pipeline.find(id);
    ++load.outputs;
    const bool shares = request.spec().like != 0;
    load.tokens += tokens_before(request) - (shares ? request.prompt_tokens() : 0);
    load.free_pages -= shares ? 1 : load.pages_for(request.known_tokens(), 1);
  }
  return load;
}

}  // namespace nodewright
