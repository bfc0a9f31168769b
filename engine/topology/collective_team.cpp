#include "engine/topology/collective_team.h"

#include <fmt/format.h>

#include "runtime/error.h"

namespace nodewright {

// If one launch were refused, the other ranks would wait for it.
void CollectiveTeam::launch_graphs(const StepLaunch& launch) {
  const Collectives& collectives = *first().collectives();
  if (collectives.given_up())
    throw Error({.doing = "launch a step of",
                 .object = fmt::format("{} ranks", collectives.ranks()),
                 .detail = "one of them has left, or a step did not end",
                 .advice = "start again"});
  try {
    for (const auto& device : devices_) device->launch(launch);
  } catch (...) {
    give_up();
    throw;
  }
}

void CollectiveTeam::give_up() {
  for (const auto& device : devices_) device->collectives()->give_up();
}

}  // namespace nodewright
