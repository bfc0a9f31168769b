#include "graph/edges/touched_ranges.h"

#include <algorithm>

namespace nodewright {

std::vector<WordUse> word_uses(const std::vector<ValueOperation>& operations) {
  std::vector<WordUse> uses;
  for (const ValueOperation& operation : operations) {
    const auto same = [&](const WordUse& use) {
      return use.address == operation.address && use.bytes == operation.bytes;
    };
    auto use = std::find_if(uses.begin(), uses.end(), same);
    if (use == uses.end()) use = uses.insert(uses.end(), {operation.address, operation.bytes});
    use->read_first |= operation.waits && !use->written;
    use->written |= !operation.waits;
  }
  return uses;
}

}  // namespace nodewright
