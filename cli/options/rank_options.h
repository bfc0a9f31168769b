// --rank, --rendezvous, --rendezvous-timeout and --rendezvous-secret of `serve`: one process for each rank of --tp.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "cli/options/engine_options.h"
#include "cli/session.h"
#include "engine/ranks/rendezvous.h"

namespace nodewright::cli {

struct RankOptions {
  std::string rendezvous;  // HOST:PORT of rank 0
  int64_t timeout_s = 60;
  std::optional<std::string> secret;
};

// --rank is the session's.
void add_rank_options(CLI::App& command, RankOptions& options, SessionOptions& session);

// Nothing without --rank. Throws Error (usage) where one of the options is missing or is none, or where others of the
// session and the engine do not go together with ranks in processes of their own.
std::optional<RankMeeting> meeting_of(const RankOptions& options, const SessionOptions& session,
                                      const EngineSettings& engine);

}  // namespace nodewright::cli
