// One rank of a model whose ranks are processes: what it must have in common with the others, how it exchanges with
// them, and `nodewright serve` of a rank other than the first.
#pragma once

#include <memory>
#include <optional>

#include "cli/options/engine_options.h"
#include "cli/session.h"
#include "engine/ranks/rank_followers.h"
#include "engine/ranks/rank_link.h"
#include "runtime/device_selection.h"
#include "runtime/libraries/collectives.h"

namespace nodewright::cli {

class RankPart {
 public:
  // Both must outlive this, which outlives what is built of the session.
  RankPart(RankLink& link, Session& session) : link_(link), session_(session) {}
  ~RankPart() { link_.stop_watching(); }
  RankPart(const RankPart&) = delete;
  RankPart& operator=(const RankPart&) = delete;

  // With all other ranks: the same checkpoint, program and options, or Error (usage). From then on what is built of the
  // session exchanges with them.
  void agree(const EngineOptions& engine, const SessionOptions& options);
  // Rank 0: an engine of these options tells the others of its steps.
  void lead(EngineOptions& engine);

 private:
  RankLink& link_;
  Session& session_;
  std::unique_ptr<Collectives> collectives_;
  std::optional<RankFollowers> followers_;
};

// Serves as another rank than the first, until rank 0 ends: the exit code. Where rank 0 leaves otherwise, or the device
// fails, that is reported on stderr, and the process ends at once.
int follow_rank_zero(const RankMeeting& meeting, const DeviceChoice& devices, const SessionOptions& options,
                     const EngineSettings& settings, const EngineNeeds& needs);

}  // namespace nodewright::cli
