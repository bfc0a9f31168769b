#include "cli/serve/rank_part.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "cli/options/adapter_options.h"
#include "cli/output/say.h"
#include "engine/engine_parts.h"
#include "engine/ranks/rank_follower.h"
#include "engine/ranks/rank_terms.h"
#include "engine/ranks/socket_collectives.h"
#include "runtime/error.h"
#include "runtime/libraries/nccl_collectives.h"
#include "runtime/memory/host_heap.h"

namespace nodewright::cli {
namespace {

StepSlotsOptions slots_of(const EngineOptions& engine, Session& session) {
  return slot_options(completed_options(engine, session.config(), session.device()), session.config());
}

std::vector<RankTerm> terms_of(const EngineOptions& engine, const SessionOptions& options, Session& session) {
  const bool reads_weights = options.load_format != "dummy";
  std::vector<RankTerm> terms{{"program", NODEWRIGHT_VERSION},
                              {"weights (--load-format)", reads_weights ? "of the checkpoint" : "drawn"},
                              {"checkpoint (--model)", checkpoint_identity(options.model, reads_weights)}};
  std::string merged;
  for (const NamedFolder& one : named_folders("--merge-adapter", options.merged))
    merged += fmt::format("{}{}", merged.empty() ? "" : ",", checkpoint_identity(one.folder, true));
  terms.push_back({"merged adapters (--merge-adapter)", merged.empty() ? "none" : merged});
  for (RankTerm& one : rank_terms(slots_of(engine, session), session.device(), session.config()))
    terms.push_back(std::move(one));
  return terms;
}

// What has failed may not free what its driver has, and may still wait for a rank that is gone.
[[noreturn]] void end_at_once(RankLink& link, const std::string& reason) {
  link.leave(reason);
  say("nodewright: {}\n", reason);
  finish_saying();
  std::_Exit(1);
}

// NCCL waits for all ranks without an end: where one leaves meanwhile, so does this one.
std::unique_ptr<Collectives> nccl_of(RankLink& link, Device& device) {
  const std::shared_ptr<const NcclLibrary> library = NcclLibrary::load();
  nccl::UniqueId id{};
  if (link.rank() == 0) id = NcclCollectives::new_id(*library);
  const std::vector<std::byte> shared = link.from_first(std::as_bytes(std::span(&id, 1)));
  if (shared.size() != sizeof(id))
    throw Error({.doing = "join NCCL's group",
                 .detail = fmt::format("rank 0 sent an id of {} bytes, and one has {}", shared.size(), sizeof(id)),
                 .advice = "the same program on all ranks"});
  std::memcpy(&id, shared.data(), sizeof(id));
  const auto joins = std::make_shared<std::atomic<bool>>(true);
  link.when_lost([joins, &link](const std::string& reason) {
    if (*joins) end_at_once(link, reason);
  });
  auto collectives = std::make_unique<NcclCollectives>(library, device, id, link.rank(), link.ranks());
  *joins = false;
  return collectives;
}

std::unique_ptr<Collectives> collectives_of(RankLink& link, Device& device) {
  if (device.driver().is_cpu()) return std::make_unique<SocketCollectives>(link);
  return nccl_of(link, device);
}

}  // namespace

void RankPart::agree(const EngineOptions& engine, const SessionOptions& options) {
  link_.agree(terms_of(engine, options, session_));
  collectives_ = collectives_of(link_, session_.device());
  session_.exchange_by(*collectives_);
  link_.when_lost([this](const std::string&) { collectives_->give_up(); });
}

void RankPart::lead(EngineOptions& engine) {
  engine.followers = &followers_.emplace(link_);
  engine.least_pages = [this](int64_t own) { return link_.least(own); };
}

int follow_rank_zero(const RankMeeting& meeting, const DeviceChoice& devices, const SessionOptions& options,
                     const EngineSettings& settings, const EngineNeeds& needs) {
  const std::shared_ptr<Driver> driver = open_driver(devices.driver);
  if (!driver->is_cpu()) fill_huge_heap();  // the CPU driver keeps no graphs of its own
  OpenedDevice opened = open_devices(driver, devices.ordinals, options.trace ? Observe::yes : Observe::no);
  if (options.trace) opened.interposer->trace_to([](std::string_view line) { say("{}\n", line); });
  RankLink link(meeting);
  try {
    Session session(options, std::move(opened), Loading::begun);
    RankPart part(link, session);
    const EngineOptions engine = engine_options(settings, options, session, needs);
    part.agree(engine, options);
    StepSlotsOptions own = slots_of(engine, session);
    own.least_pages = [&link](int64_t pages) { return link.least(pages); };
    StepSlots slots(session.places(), own);
    say("nodewright: rank {} of {} follows {}\n", meeting.rank, meeting.ranks,
        rank_address_text(meeting.host, meeting.port));
    try {
      RankFollower(link, slots).run();
    } catch (const std::exception& error) {
      end_at_once(link, error.what());
    }
  } catch (const Error& error) {
    link.leave(error.what());
    throw;
  }
  return 0;
}

}  // namespace nodewright::cli
