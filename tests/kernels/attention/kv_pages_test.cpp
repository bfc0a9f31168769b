// Where elements lie in the rows of pages.
#include "kernels_src/attention/kv_pages.h"

#include <gtest/gtest.h>

#include <set>

namespace nodewright::test {
namespace {

constexpr int kPageSlots = 64;

TEST(KvInRow, IsAPermutationOfTheRowsPiecesThatKeepsTheirElementsTogether) {
  for (const int piece : {8, 16})
    for (int padded = piece; padded <= 256; padded += piece)
      for (int slot = 0; slot < kPageSlots; ++slot) {
        std::set<int> places;
        for (int d = 0; d < padded; ++d) {
          const int place = kv_in_row(slot, d, padded, piece);
          EXPECT_TRUE(place >= 0 && place < padded) << "element " << d << " of " << padded << ", slot " << slot;
          EXPECT_EQ(place - kv_in_row(slot, d / piece * piece, padded, piece), d % piece);
          places.insert(place);
        }
        EXPECT_EQ(places.size(), static_cast<size_t>(padded));
      }
}

// Shared memory serves 128 bytes at a time, one piece of each eighth of them: a matrix instruction loads the same piece
// of eight rows, which lie as they do in the page.
TEST(KvInRow, TheSamePieceOfEightRowsIsInEightDifferentBanks) {
  for (const int piece : {8, 16})
    for (int padded = piece; padded <= 256; padded += piece)
      for (int first = 0; first < kPageSlots; first += 8)
        for (int d = 0; d < padded; d += piece) {
          std::set<int> banks;
          for (int slot = first; slot < first + 8; ++slot)
            banks.insert((slot * padded + kv_in_row(slot, d, padded, piece)) / piece % 8);
          EXPECT_EQ(banks.size(), 8u) << "element " << d << " of " << padded << ", slots from " << first;
        }
}

}  // namespace
}  // namespace nodewright::test
