// The load of an engine loop, by which requests are distributed among several. A value.
#pragma once

#include <cstdint>

#include "engine/engine.h"
#include "serve/fields/request_reader.h"

namespace nodewright {

struct LoopLoad {
  int64_t outputs = 0;      // that have not ended
  int64_t rows = 0;         // outputs that the engine computes at once; 0: it does not run yet
  int64_t tokens = 0;       // of prompts, to be computed, and of outputs, to be chosen: at most max_tokens each
  int64_t free_pages = 0;   // of the cache, less what outputs that wait will take; below 0: they wait for pages
  int64_t max_context = 0;  // tokens of a sequence; 0: not known yet
  int64_t page_tokens = 0;  // of a page; 0: not known yet
  int64_t most_pages = 0;   // of one sequence, at its longest

  // Pages that the outputs of a prompt take when they are admitted: they share all but the last.
  int64_t pages_for(int64_t prompt_tokens, int64_t outputs) const;
  // Adds a request's outputs that the engine has not seen.
  void add(const AskedRequest& asked);
};

// The load of the engine's requests. Takes time in proportion to them.
LoopLoad load_of(const Engine& engine);

}  // namespace nodewright
