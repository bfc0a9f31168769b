#include "engine/device/table_updates.h"

#include <algorithm>

#include "graph/graph_builder.h"

namespace nodewright {
namespace {

// Whole tables of 128 sequences of 131 072 tokens: more in one step is rare enough to wait for.
constexpr uint64_t kMostPages = uint64_t{1} << 18;

// One for each table.
uint64_t runs_of(const DecodeState& state) {
  return state.block_table.count / static_cast<uint64_t>(state.table_stride);
}
uint64_t pages_of(const DecodeState& state) {
  return std::clamp(kMostPages, static_cast<uint64_t>(state.table_stride), state.block_table.count);
}

constexpr uint64_t kRunsAt = sizeof(TableRun);  // after n_runs, aligned

}  // namespace

TableUpdates::TableUpdates(Device& device, KernelCache& kernels, const DecodeState& state, const Stream& stream)
    : stream_(stream),
      table_stride_(state.table_stride),
      sequences_(static_cast<int64_t>(state.last_token.count)),
      memory_(device, "host.tables", kRunsAt + runs_of(state) * sizeof(TableRun) + pages_of(state) * sizeof(int32_t)) {
  auto* const bytes = static_cast<std::byte*>(memory_.data());
  n_runs_ = {reinterpret_cast<int32_t*>(bytes), 1};
  runs_ = {reinterpret_cast<TableRun*>(bytes + kRunsAt), runs_of(state)};
  pages_ = {reinterpret_cast<int32_t*>(bytes + kRunsAt + runs_.bytes()), pages_of(state)};
  n_runs_.data[0] = 0;

  GraphBuilder g(device, "tables");
  g.declare({"host.tables", reinterpret_cast<uint64_t>(memory_.data()), memory_.bytes(), "input"}, {.live_in = true});
  g.declare({"block_table", state.block_table.address(), state.block_table.bytes(), "state"},
            {.live_in = true, .live_out = true});
  g.launch("update",
           kernels.kernel<UpdateTables>(kernel_request(), update_tables_shape(static_cast<int64_t>(runs_of(state)))),
           {.n_runs = n_runs_, .runs = runs_, .pages = pages_, .block_table = state.block_table});
  run_ = std::make_unique<PlanRun>(std::move(g).finish(EdgePolicy::full), RunMode::eager, stream);
}

void TableUpdates::submit(std::span<const TablePages> changes) {
  n_runs_.data[0] = 0;
  held_ = 0;
  for (const TablePages& change : changes) {
    if (add(change)) continue;
    run_->launch();
    stream_.synchronize();
    n_runs_.data[0] = 0;
    held_ = 0;
    add(change);  // there is always room for a table
  }
  if (n_runs_.data[0] > 0) run_->launch();
}

// False where there is no room for it now.
bool TableUpdates::add(const TablePages& change) {
  const int32_t run = n_runs_.data[0];
  if (static_cast<uint64_t>(run) == runs_.count || held_ + change.pages.size() > pages_.count) return false;
  runs_.data[run] = {(change.group * sequences_ + change.sequence) * table_stride_ + change.first,
                     static_cast<int32_t>(held_), static_cast<int32_t>(change.pages.size())};
  std::ranges::copy(change.pages, pages_.data + held_);
  held_ += change.pages.size();
  ++n_runs_.data[0];
  return true;
}

}  // namespace nodewright
