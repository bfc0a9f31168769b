// Steps of a team in two lanes: the bits of two steps of half as many rows, one lane's padding changes nothing in the
// other, and the plan has a chain of nodes for each lane with the exchanges in turn.
#include <algorithm>
#include <string>

#include "tests/engine/shared_sizes.h"
#include "tests/engine/team_decoder.h"
#include "tests/support/scratch_folder.h"

namespace nodewright {
namespace {

using namespace test;

constexpr int64_t kRowsOfStep = 96, kRowsOfHalf = kRowsOfStep / 2;

struct LaneCase {
  const char* golden;
  int ranks = 2;
};

class TeamLanes : public testing::TestWithParam<LaneCase> {
 protected:
  TeamLanes() {
    write_shared_sizes(GetParam().golden, folder_.path(), 0, true);
    loaded_ = std::make_unique<LoadedTeam>(folder_.path(), GetParam().ranks, test_device(), true);
  }
  // One row chooses.
  TeamDecoder decoder(int64_t rows, int64_t lanes) { return TeamDecoder(*loaded_, rows, Numerics::fast, 1, {}, lanes); }

  ScratchFolder folder_;
  std::unique_ptr<LoadedTeam> loaded_;
};

// The same tokens at the same positions: the early lane's, where nobody chooses, and the late lane's.
TEST_P(TeamLanes, HaveTheBitsOfTwoStepsOfHalfAsManyRows) {
  TeamDecoder lanes = decoder(kRowsOfStep, 2), halves = decoder(kRowsOfHalf, 1);
  ASSERT_TRUE(lanes.parts().in_lanes());
  const auto vocab = static_cast<size_t>(loaded_->models[0].config().vocab);
  int64_t first = 0;
  // Whole steps, some padding in the early lane, the late lane alone, whole and with padding.
  for (const int64_t rows : {kRowsOfStep, kRowsOfStep - 11, kRowsOfHalf, kRowsOfHalf - 7, int64_t{1}}) {
    SCOPED_TRACE(std::to_string(rows) + " rows");
    const Tokens tokens = some_tokens(static_cast<size_t>(rows), vocab, static_cast<unsigned>(rows));
    const int64_t early = std::max<int64_t>(0, rows - kRowsOfHalf);
    const int64_t last = lanes.run(tokens, first, true);
    if (early > 0) halves.run(std::span(tokens).first(static_cast<size_t>(early)), first, true, true, false);
    const int64_t expected_last =
        halves.run(std::span(tokens).subspan(static_cast<size_t>(early)), first + early, true);
    first += rows;
    EXPECT_EQ(last, expected_last);
    const std::vector<Logits> found = lanes.logits(last), expected = halves.logits(expected_last);
    for (size_t rank = 0; rank < found.size(); ++rank) {
      EXPECT_TRUE(same_bits(found[rank], expected[rank])) << "rank " << rank;
      EXPECT_EQ(lanes.parts().pages(rank), halves.parts().pages(rank)) << "rank " << rank;
    }
    EXPECT_EQ(lanes.parts().chosen(last), halves.parts().chosen(expected_last));
  }
}

INSTANTIATE_TEST_SUITE_P(TwoDevices, TeamLanes,
                         testing::Values(LaneCase{"llama/odd_sizes"}, LaneCase{"qwen2/biases"}, LaneCase{"gemma2/caps"},
                                         LaneCase{"cohere/parallel"}, LaneCase{"qwen3_moe/normed"}),
                         [](const auto& info) {
                           std::string name = info.param.golden;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });
INSTANTIATE_TEST_SUITE_P(FourRanksOnCpuDriver, TeamLanes,
                         testing::Values(LaneCase{"llama/odd_sizes", 4}, LaneCase{"qwen3_moe/normed", 4}),
                         [](const auto& info) {
                           std::string name = info.param.golden;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

}  // namespace
}  // namespace nodewright
