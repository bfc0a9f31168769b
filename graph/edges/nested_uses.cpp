#include "graph/edges/nested_uses.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <string>

namespace nodewright {

std::string_view kept_name(std::string_view name) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> names;
  const std::lock_guard lock(mutex);
  const auto found = names.find(name);
  return found != names.end() ? *found : *names.emplace(name).first;
}

std::vector<NestedUse> nested_uses(std::span<const Plan* const> plans, bool may_not_run) {
  std::vector<uint64_t> cuts;
  for (const Plan* plan : plans)
    for (const PlanNode& node : plan->nodes)
      for (const Use& use : node.uses) {
        const uint64_t begin = plan->buffers[use.buffer].range.address + use.offset;
        cuts.insert(cuts.end(), {begin, begin + use.bytes});
      }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  std::vector<NestedUse> pieces(cuts.empty() ? 0 : cuts.size() - 1);
  for (size_t i = 0; i < pieces.size(); ++i) pieces[i] = {.begin = cuts[i], .end = cuts[i + 1], .field = {}};
  std::vector<const Plan*> writer(pieces.size());  // the plan whose node wrote the piece last
  for (const Plan* plan : plans)
    for (const PlanNode& node : plan->nodes)
      for (const Use& use : node.uses) {
        const uint64_t begin = plan->buffers[use.buffer].range.address + use.offset;
        const auto first = std::lower_bound(cuts.begin(), cuts.end(), begin) - cuts.begin();
        for (auto i = static_cast<size_t>(first); i < pieces.size() && pieces[i].end <= begin + use.bytes; ++i) {
          NestedUse& piece = pieces[i];
          if (piece.field.empty()) piece.field = kept_name(node.name);
          piece.buffer = plan->buffers[use.buffer].range.address;
          if (reads(use.access) && writer[i] != plan) piece.reads_first = true;
          if (!writes(use.access)) continue;
          piece.writes = true;
          piece.reads_first |= may_not_run;
          writer[i] = plan;
        }
      }
  std::vector<NestedUse> joined;
  for (const NestedUse& piece : pieces) {
    if (piece.field.empty()) continue;  // between two uses
    if (!joined.empty() && joined.back().end == piece.begin && joined.back().buffer == piece.buffer &&
        joined.back().field == piece.field && joined.back().access() == piece.access())
      joined.back().end = piece.end;
    else
      joined.push_back(piece);
  }
  return joined;
}

}  // namespace nodewright
