// Teams under seeded schedules of the CPU driver, which choose the block that runs next and the store that arrives: the
// bits are those of the ordinary schedule, in networks of every family, of many sizes of steps and of 2, 4 and 8 ranks.
#include <algorithm>
#include <cstdlib>
#include <random>

#include "tests/engine/ranks/shared_sizes.h"
#include "tests/engine/ranks/team_decoder.h"
#include "tests/support/scratch_folder.h"

namespace nodewright {
namespace {

using namespace test;

struct ScheduledTeam {
  std::string golden;
  int ranks = 2;
  int64_t rows = 1;
};

// A chunk, part of one, then two tokens.
std::vector<Logits> logits_under(const ScheduledTeam& of, const std::filesystem::path& folder,
                                 const std::string& schedule) {
  LoadedTeam loaded(folder, of.ranks, schedule, true);
  TeamDecoder decoder(loaded, of.rows);
  const auto vocab = static_cast<size_t>(loaded.models[0].config().vocab);
  return agreed(
      decoder.forced(some_tokens(static_cast<size_t>(of.rows + 2), vocab, 5), some_tokens(2, vocab, 6), true));
}

void expect_same_bits(const ScheduledTeam& of, int first_seed, int seeds) {
  ScratchFolder folder;
  write_shared_sizes(of.golden, folder.path());
  const std::vector<Logits> expected = logits_under(of, folder.path(), "cpu");
  for (int seed = first_seed; seed < first_seed + seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + of.golden + ", " + std::to_string(of.rows) + " rows, " +
                 std::to_string(of.ranks) + " ranks");
    ASSERT_TRUE(same_bits(logits_under(of, folder.path(), "cpu:seed=" + std::to_string(seed)), expected));
  }
}

TEST(TeamSchedulesOnCpuDriver, TenOfThemGiveTheSameBits) {
  expect_same_bits({"llama/biases", 2, 8}, 0, 3);
  expect_same_bits({"olmo2/wide_norms", 2, 3}, 8, 2);
  expect_same_bits({"gemma2/caps", 4, 1}, 14, 4);
  expect_same_bits({"cohere2/hybrid", 8, 3}, 26, 1);
}

// NODEWRIGHT_TEAM_SCHEDULES: how many, over all families.
int schedules_of_a_family() {
  const char* named = std::getenv("NODEWRIGHT_TEAM_SCHEDULES");
  const auto families = static_cast<int>(shared_families().size());
  return ((named == nullptr ? 1000 : std::atoi(named)) + families - 1) / families;
}

class TeamScheduleSweepOnCpuDriver : public testing::TestWithParam<std::string> {};

// Six teams for each family; its place decides their sizes.
TEST_P(TeamScheduleSweepOnCpuDriver, GivesTheSameBits) {
  constexpr int kTeams = 6;
  const std::vector<std::string> families = shared_families();
  const auto place = std::find(families.begin(), families.end(), GetParam()) - families.begin();
  std::mt19937 random(static_cast<unsigned>(place));
  const int seeds = (schedules_of_a_family() + kTeams - 1) / kTeams;
  for (int team = 0; team < kTeams && !HasFatalFailure(); ++team) {
    // Small steps, whose kernels differ most, as often as all others.
    const int64_t rows = 1 + static_cast<int64_t>(random() % (team % 2 == 0 ? 16 : 64));
    expect_same_bits({GetParam(), 2 << team % 3, rows}, static_cast<int>(random() % 100000), seeds);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TeamScheduleSweepOnCpuDriver, testing::ValuesIn(shared_families()),
                         golden_test_name);

}  // namespace
}  // namespace nodewright
