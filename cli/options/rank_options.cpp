#include "cli/options/rank_options.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdlib>

#include "cli/options/refusals.h"
#include "cli/options/whole_number.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

[[noreturn]] void refuse_beside_rank(const std::string& option, const std::string& why, const std::string& way_out) {
  refuse_pair("--rank and " + option, why, way_out);
}

// "10.0.0.1:29500", "[::1]:29500", "node-0:29500".
RankMeeting place_of(const std::string& text) {
  const auto refuse = [&](const char* why) {
    throw Error({.doing = "use --rendezvous",
                 .object = text,
                 .detail = why,
                 .advice = "HOST:PORT of rank 0, such as 10.0.0.1:29500 or [::1]:29500",
                 .fault = Fault::usage});
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) refuse("it is no HOST:PORT");
  RankMeeting place;
  place.host = text.substr(0, colon);
  if (place.host.front() == '[' && place.host.back() == ']' && place.host.size() > 2)
    place.host = place.host.substr(1, place.host.size() - 2);
  else if (place.host.find(':') != std::string::npos)
    refuse("an address of IPv6 stands in brackets");
  const char* const end = text.data() + text.size();
  const auto [stopped, failure] = std::from_chars(text.data() + colon + 1, end, place.port);
  if (failure != std::errc() || stopped != end || place.port == 0) refuse("its port is none from 1 to 65535");
  return place;
}

// The option, or else the variable. One that is there and empty is a mistake in what fills it.
std::string secret_of(const RankOptions& options) {
  constexpr const char* kVariable = "NODEWRIGHT_RENDEZVOUS_SECRET";
  const char* const of_environment = std::getenv(kVariable);
  if (!options.secret && of_environment == nullptr) return "";
  std::string secret = options.secret ? *options.secret : std::string(of_environment);
  if (secret.empty())
    refuse_option(options.secret ? "--rendezvous-secret" : kVariable, "it is empty, and anybody could join",
                  "a text that all ranks know, or leave it out");
  return secret;
}

void check_session(const SessionOptions& session) {
  if (session.stages > 1) refuse_beside_rank("--pp", "stages run in one process", "--tp");
  if (session.tensor_parallel < 2)
    refuse_beside_rank("--tp", "a rank is one of several, and --tp says of how many", "--tp 2, or more");
  if (*session.rank >= session.tensor_parallel)
    refuse_beside_rank("--tp", fmt::format("--tp {} has no rank {}", session.tensor_parallel, *session.rank),
                       fmt::format("--rank 0 to {}", session.tensor_parallel - 1));
  if (session.mode != "explicit")
    refuse_beside_rank("--mode", "graphs that exchange are explicit ones", "--mode explicit");
}

void check_engine(const EngineSettings& engine) {
  if (engine.engine.overlap > 1)
    refuse_beside_rank("--overlap", "halves of a step take turns at exchanging packets, which stay in one process",
                       "--overlap 1, or --tp without --rank");
  const char* const told = "other processes hear of no adapters";
  if (!engine.adapters.empty()) refuse_beside_rank("--adapter", told, "--merge-adapter, or --tp without --rank");
  if (engine.max_adapters.value_or(0) > 0)
    refuse_beside_rank("--max-adapters", told, "--merge-adapter, or --tp without --rank");
  if (engine.prefill != "graph")
    refuse_beside_rank("--prefill", "prompts are whole graphs where ranks exchange", "--prefill graph");
  if (engine.engine.allow_eager)
    refuse_beside_rank("--allow-eager", "no step is launched node by node where ranks exchange",
                       "a bucket for every number of rows");
}

}  // namespace

void add_rank_options(CLI::App& command, RankOptions& options, SessionOptions& session) {
  command
      .add_option("--rank", session.rank,
                  "rank of this process, where each of the --tp ranks is a process with a device of its "
                  "own: 0 serves, the others follow it")
      ->check(whole_number<uint16_t>);
  command.add_option("--rendezvous", options.rendezvous,
                     "HOST:PORT at which rank 0 waits for the others, in a network that is trusted");
  command
      .add_option("--rendezvous-secret", options.secret,
                  "text that all ranks must know to join (default: NODEWRIGHT_RENDEZVOUS_SECRET, or none)")
      ->needs("--rank");
  command
      .add_option("--rendezvous-timeout", options.timeout_s,
                  "seconds after which a rank that has not come counts as missing")
      ->check(whole_number<uint16_t, 1>)
      ->needs("--rank")
      ->capture_default_str();
}

std::optional<RankMeeting> meeting_of(const RankOptions& options, const SessionOptions& session,
                                      const EngineSettings& engine) {
  if (!session.rank) {
    if (options.rendezvous.empty()) return std::nullopt;
    refuse_pair("--rendezvous and --rank", "the first is there, and not the second",
                "--rank 0 for the process that serves, and the next numbers for the others");
  }
  if (options.rendezvous.empty())
    refuse_beside_rank("--rendezvous", "the first is there, and not the second",
                       "--rendezvous HOST:PORT of rank 0, the same for all ranks");
  check_session(session);
  check_engine(engine);
  RankMeeting meeting = place_of(options.rendezvous);
  meeting.rank = static_cast<size_t>(*session.rank);
  meeting.ranks = static_cast<size_t>(session.tensor_parallel);
  meeting.patience = std::chrono::seconds(options.timeout_s);
  meeting.secret = secret_of(options);
  return meeting;
}

}  // namespace nodewright::cli
