// Changes of the prefix cache, as a log for an index kept elsewhere (a router, say). A page stands in
// it by the hash of its tokens and of all before them, which is the same in every process.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace nodewright {

struct PageEvent {
  enum class Kind : uint8_t {
    stored,   // prompts may find these pages from now on
    removed,  // they no longer do
    cleared,  // they find nothing any more
  };
  Kind kind = Kind::stored;
  std::vector<uint64_t> pages;     // hashes; stored: each continues the one before it. Removed: continuations first
  std::optional<uint64_t> parent;  // stored: what the first of them continues; none: it begins prompts
  std::vector<int32_t> tokens;     // stored: of all of them, page after page
  int32_t adapter = 0;             // stored: whose keys and values they have; 0: none
  bool operator==(const PageEvent&) const = default;
};

// Successive pages of a prompt become one event, and so do successive removals. A value, and not thread-safe.
class PageEventLog {
 public:
  void store(uint64_t page, std::optional<uint64_t> parent, std::span<const int32_t> tokens, int32_t adapter = 0);
  void remove(uint64_t page);
  void clear();
  // Since the last call, oldest first.
  std::vector<PageEvent> take() { return std::exchange(events_, {}); }

 private:
  std::vector<PageEvent> events_;
};

}  // namespace nodewright
