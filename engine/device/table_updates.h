// Entries of the block tables on their way to the device: one small launch before the step that needs them, and none
// where nothing has changed. What a launch reads is pinned and a slot's own, so that it stays until the slot is free.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "graph/plan_run.h"
#include "kernels_src/step/update_tables.h"
#include "models/step/decode_state.h"
#include "runtime/kernels/kernel_cache.h"

namespace nodewright {

// The pages of a sequence from its page `first` on.
struct TablePages {
  int32_t sequence = 0;
  int64_t first = 0;
  std::span<const int32_t> pages;
  int64_t group = 0;  // of layers (ModelConfig::page_group)
};

class TableUpdates {
 public:
  static KernelRequest kernel_request() { return {"update_tables", {}}; }

  // `state`: of any bucket; its tables are those of all. Launches go to `stream`, which must outlive this.
  TableUpdates(Device& device, KernelCache& kernels, const DecodeState& state, const Stream& stream);

  // Submits the changes, which are copied at once. The launches of the last call must have completed. Waits for the
  // stream where there are more than the pinned memory holds, which a step of running sequences never has.
  void submit(std::span<const TablePages> changes);

 private:
  bool add(const TablePages& change);

  const Stream& stream_;
  int64_t table_stride_, sequences_;
  PinnedBuffer memory_;
  View<int32_t> n_runs_, pages_;
  View<TableRun> runs_;
  uint64_t held_ = 0;  // pages
  std::unique_ptr<PlanRun> run_;
};

}  // namespace nodewright
