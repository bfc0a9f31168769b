// An index of a cache as a router keeps it, made of page events alone; and what the cache itself offers, to compare.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/cache/kv_pool.h"
#include "engine/cache/page_events.h"

namespace nodewright::test {

// Tokens of pages and of all before them.
using Prefixes = std::set<std::vector<int32_t>>;

class PageIndex {
 public:
  explicit PageIndex(int64_t page_tokens) : page_tokens_(page_tokens) {}

  // Empty, or what is wrong with the event.
  std::string apply(const PageEvent& event) {
    switch (event.kind) {
      case PageEvent::Kind::stored:
        return store(event);
      case PageEvent::Kind::removed:
        for (const uint64_t page : event.pages)
          if (pages_.erase(page) == 0) return "a page was removed that was not there";
        return {};
      case PageEvent::Kind::cleared:
        pages_.clear();
        return {};
    }
    return "an unknown kind";
  }

  Prefixes content() const {
    Prefixes content;
    for (const auto& [page, prefix] : pages_) content.insert(prefix);
    return content;
  }

 private:
  std::string store(const PageEvent& event) {
    if (std::ssize(event.tokens) != std::ssize(event.pages) * page_tokens_) return "tokens of other pages";
    if (event.parent && !pages_.contains(*event.parent)) return "a page continues one that is not there";
    std::vector<int32_t> prefix = event.parent ? pages_.at(*event.parent) : std::vector<int32_t>();
    for (size_t i = 0; i < event.pages.size(); ++i) {
      const auto first = event.tokens.begin() + static_cast<int64_t>(i) * page_tokens_;
      prefix.insert(prefix.end(), first, first + page_tokens_);
      if (!pages_.emplace(event.pages[i], prefix).second) return "a page was stored twice";
    }
    return {};
  }

  int64_t page_tokens_;
  std::map<uint64_t, std::vector<int32_t>> pages_;  // by hash
};

inline Prefixes content_of(const KvPool& pool) {
  const SharedPages& pages = pool.shared_pages();
  Prefixes content;
  for (int32_t index = 0; index < pages.total(); ++index) {
    if (!pages.at(index).is_offered) continue;
    std::vector<int32_t> prefix;
    for (int32_t page = index; page >= 0; page = pages.at(page).parent)
      prefix.insert(prefix.begin(), pages.at(page).tokens.begin(), pages.at(page).tokens.end());
    content.insert(std::move(prefix));
  }
  return content;
}

}  // namespace nodewright::test
