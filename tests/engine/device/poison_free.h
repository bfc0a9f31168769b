// NaN bytes wherever no step of an engine may look. Waits for the device: what is not ordered shows without it.
#pragma once

#include "engine/engine.h"
#include "tests/engine/parity/golden_model.h"

namespace nodewright::test {

// What a free slot and a free page hold must not matter.
inline void poison_free(Engine& engine, LoadedModel& loaded) {
  const PipelineState& pipeline = engine.pipeline();
  if (const std::optional<int> slot = pipeline.free_slot()) engine.slots().poison(*slot);
  const uint64_t page_bytes = KvCache::page_bytes(loaded.model.config());
  const KvPool& pool = pipeline.pool();
  for (int64_t layer = 0; layer < loaded.model.config().layers; ++layer) {
    const bool windowed = loaded.model.config().page_group(layer) == 1;
    for (int32_t page = 0; page < (windowed ? pool.window_pages().total() : pool.options().pages); ++page)
      if (windowed ? pool.window_pages().is_free(page) : pool.state_of(page) == PageState::free)
        fill_device(loaded.device,
                    engine.slots().cache().layer(layer).address() + static_cast<uint64_t>(page) * page_bytes,
                    std::byte{0xff}, page_bytes, "kv");
  }
}

}  // namespace nodewright::test
