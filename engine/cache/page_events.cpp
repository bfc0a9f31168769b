#include "engine/cache/page_events.h"

namespace nodewright {

void PageEventLog::store(uint64_t page, std::optional<uint64_t> parent, std::span<const int32_t> tokens,
                         int32_t adapter) {
  const bool continues = !events_.empty() && events_.back().kind == PageEvent::Kind::stored && parent &&
                         events_.back().pages.back() == *parent;
  if (!continues) events_.push_back({.kind = PageEvent::Kind::stored, .parent = parent, .adapter = adapter});
  events_.back().pages.push_back(page);
  events_.back().tokens.insert(events_.back().tokens.end(), tokens.begin(), tokens.end());
}

void PageEventLog::remove(uint64_t page) {
  if (events_.empty() || events_.back().kind != PageEvent::Kind::removed)
    events_.push_back({.kind = PageEvent::Kind::removed});
  events_.back().pages.push_back(page);
}

// What was logged before and not taken has no effect any more.
void PageEventLog::clear() { events_.assign(1, {.kind = PageEvent::Kind::cleared}); }

}  // namespace nodewright
