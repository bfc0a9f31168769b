// Whole networks on a team against the same shards as branches of one ordinary graph on one device, made of the team's
// plans and of those of ranks that exchange by a library's calls: the same logits, tokens, keys and values, bit for
// bit.
#include "tests/engine/ranks/team_oracle.h"

#include <algorithm>

#include "tests/engine/parity/coded_checkpoint.h"
#include "tests/engine/ranks/shared_sizes.h"
#include "tests/engine/ranks/team_decoder.h"
#include "tests/support/scratch_folder.h"

namespace nodewright {
namespace {

using namespace test;

struct OracleCase {
  std::filesystem::path folder;
  bool draws = false;
  int ranks = 2;
  int64_t rows = 1;
  int64_t most_sampled = 0;
  std::string name() const {
    return folder.filename().string() + ", " + std::to_string(ranks) + " ranks, " + std::to_string(rows) + " rows" +
           (most_sampled > 0 ? " of which " + std::to_string(most_sampled) + " choose" : "");
  }
};

// After a step of `tokens` tokens, whose last has row `last`.
void expect_same_step(const TeamParts& team, const TeamParts& one, int64_t tokens, int64_t last) {
  const int64_t rows = last == 0 ? 1 : tokens;
  for (int64_t row = 0; row < rows; ++row) {
    const std::vector<Logits> found = team.logits(row), expected = one.logits(row);
    for (size_t rank = 0; rank < found.size(); ++rank)
      ASSERT_TRUE(same_bits(found[rank], expected[rank])) << "rank " << rank << ", row " << row;
    ASSERT_EQ(team.chosen(row), one.chosen(row)) << "row " << row;
  }
}

// Prompts of two or three chunks, and a few tokens after.
void compare_with_one_device(const OracleCase& of) {
  SCOPED_TRACE(of.name());
  LoadedTeam many(of.folder, of.ranks, test_device(), of.draws);
  LoadedTeam alone(of.folder, many, of.draws);
  TeamDecoder team(many, of.rows, Numerics::fast, of.most_sampled);
  OneDeviceTeam one(alone, of.rows, Numerics::fast, of.most_sampled);
  OneDeviceTeam gathered(alone, of.rows, Numerics::fast, of.most_sampled, true);
  const auto vocab = static_cast<size_t>(many.models[0].config().vocab);
  const int64_t chunks = of.rows > 8 ? 1 : 2;  // whole ones
  const Tokens prompt = some_tokens(static_cast<size_t>(chunks * of.rows + (of.rows + 1) / 2), vocab, 5);
  const Tokens continuation = some_tokens(2, vocab, 6);
  forced_steps(prompt, continuation, of.rows, [&](std::span<const int32_t> tokens, int64_t first) {
    const int64_t last = team.run(tokens, first, true);
    one.run(tokens, first, true);
    gathered.run(tokens, first, true);
    expect_same_step(team.parts(), one.parts(), static_cast<int64_t>(tokens.size()), last);
    expect_same_step(gathered.parts(), one.parts(), static_cast<int64_t>(tokens.size()), last);
    return std::vector<Logits>{};
  });
  // Where the head may leave out what no choice reads.
  const int32_t token = continuation.back();
  const auto first = static_cast<int64_t>(prompt.size() + continuation.size());
  const int64_t last = team.run({&token, 1}, first, true, false);
  one.run({&token, 1}, first, true, false);
  gathered.run({&token, 1}, first, true, false);
  ASSERT_EQ(team.parts().chosen(last), one.parts().chosen(last));
  ASSERT_EQ(gathered.parts().chosen(last), one.parts().chosen(last));
  for (size_t rank = 0; rank < many.ranks(); ++rank) {
    ASSERT_EQ(team.parts().pages(rank), one.parts().pages(rank)) << "rank " << rank;
    ASSERT_EQ(gathered.parts().pages(rank), one.parts().pages(rank)) << "rank " << rank;
  }
}

// Two devices and the goldens whose heads they share.
class TeamOracle : public testing::TestWithParam<std::string> {};

TEST_P(TeamOracle, HasTheBitsOfItsShardsOnOneDevice) {
  for (const int64_t rows : {1, 8, 17}) {
    compare_with_one_device({.folder = golden_folder(GetParam()), .rows = rows});
    if (HasFatalFailure()) return;
  }
}

// Some in every test run, the rest in sweeps and on GPUs.
const std::vector<std::string> kComparedGoldens = {"llama/odd_sizes", "gemma2/caps"};
INSTANTIATE_TEST_SUITE_P(TwoDevices, TeamOracle, testing::ValuesIn(kComparedGoldens), golden_test_name);
INSTANTIATE_TEST_SUITE_P(TwoDevicesSweep, TeamOracle, testing::ValuesIn(split_goldens(kComparedGoldens)),
                         golden_test_name);

// Weights in codes, of which a rank has rows or columns.
class CodedTeam : public testing::TestWithParam<CodedCase> {};

TEST_P(CodedTeam, HasTheBitsOfItsShardsOnOneDeviceAndTheLogitsOfBf16) {
  const CodedCheckpoint checkpoint(GetParam());
  compare_with_one_device({.folder = checkpoint.coded(), .rows = GetParam().rows});
  if (HasFatalFailure()) return;
  const Tokens prompt = some_tokens(20, SmallNetwork::kVocab, 3),
               continuation = some_tokens(3, SmallNetwork::kVocab, 4);
  std::vector<std::vector<Logits>> all;
  for (const std::string& folder : {checkpoint.coded(), checkpoint.in_bf16()}) {
    LoadedTeam team(folder, 2, test_device());
    for (const DecoderModel& model : team.models) {
      const WeightLayouts& layouts = model.config().layouts;
      for (const WeightLayout& layout : {layouts.qkv, layouts.out, layouts.gate_up, layouts.down})
        EXPECT_EQ(layout.is_quantized(), folder == checkpoint.coded());
    }
    all.push_back(agreed(TeamDecoder(team, GetParam().rows).forced(prompt, continuation)));
  }
  EXPECT_LE(relative_error(all[0], all[1]), 0.01);
}

INSTANTIATE_TEST_SUITE_P(TwoDevices, CodedTeam,
                         testing::Values(CodedCase{Coding::fp8_blocks, false, 1},
                                         CodedCase{Coding::fp8_blocks, false, 8}, CodedCase{Coding::int4, false, 1},
                                         CodedCase{Coding::int4, false, 40}, CodedCase{Coding::fp8_rows, true, 1},
                                         CodedCase{Coding::int4, true, 8}),
                         name_of_coded);
INSTANTIATE_TEST_SUITE_P(TwoDevicesSweep, CodedTeam, testing::ValuesIn(coded_cases({1, 3, 8, 17, 40})), name_of_coded);

// All families in sizes that eight devices share. Which of them share a step of which size, the family's place decides.
class TeamOracleSweepOnCpuDriver : public testing::TestWithParam<std::string> {};

TEST_P(TeamOracleSweepOnCpuDriver, HasTheBitsOfItsShardsOnOneDevice) {
  ScratchFolder folder;
  write_shared_sizes(GetParam(), folder.path());
  const std::vector<std::string> families = shared_families();
  auto place = std::find(families.begin(), families.end(), GetParam()) - families.begin();
  for (const int64_t rows : {1, 3, 8, 17, 64}) {
    compare_with_one_device({.folder = folder.path(), .draws = true, .ranks = 2 << place++ % 3, .rows = rows});
    if (HasFatalFailure()) return;
  }
  compare_with_one_device(
      {.folder = folder.path(), .draws = true, .ranks = 2 << place % 3, .rows = 64, .most_sampled = 8});
}

INSTANTIATE_TEST_SUITE_P(Families, TeamOracleSweepOnCpuDriver, testing::ValuesIn(shared_families()), golden_test_name);

class TeamOracleOnGpus : public testing::TestWithParam<std::string> {};

TEST_P(TeamOracleOnGpus, HasTheBitsOfItsShardsOnOneDevice) {
  ScratchFolder folder;
  write_shared_sizes(GetParam(), folder.path());
  for (const auto& [rows, sampled] : {std::pair<int64_t, int64_t>{1, 0}, {3, 0}, {8, 0}, {17, 0}, {64, 8}}) {
    compare_with_one_device(
        {.folder = folder.path(), .draws = true, .ranks = 4, .rows = rows, .most_sampled = sampled});
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(FourDevices, TeamOracleOnGpus, testing::ValuesIn(shared_families()), golden_test_name);

// Norms over the heads of all ranks: three exchanges a layer, of an odd number of layers one more in the first.
TEST(TeamOddNormsSweepOnCpuDriver, HasTheBitsOfAnOddNumberOfNormsOverAllHeads) {
  ScratchFolder folder;
  write_shared_sizes("olmo2/wide_norms", folder.path(), 3);
  for (const auto& [ranks, rows] : {std::pair{2, 3}, {4, 1}, {8, 17}})
    compare_with_one_device({.folder = folder.path(), .draws = true, .ranks = ranks, .rows = rows});
  const ModelConfig part = shard_of(read_model_config(folder.path()), {0, 2});
  EXPECT_EQ(exchanges_of_step(part), 12);
  EXPECT_TRUE(norms_heads_apart(part, 0));
  EXPECT_FALSE(norms_heads_apart(part, 1));
}

// One bit of one rank's weights: the oracle is none that would not see it.
TEST(TeamOracleOnCpuDriver, SeesABitOfARanksWeights) {
  ScratchFolder folder;
  write_shared_sizes("qwen2/biases", folder.path());
  LoadedTeam many(folder.path(), 4, "cpu", true);
  LoadedTeam alone(folder.path(), many, true);
  const WeightMatrix& down = alone.models[3].weights().layers()[1].down;
  bf16 element{};
  read_device(alone.device(3), std::as_writable_bytes(std::span(&element, 1)), down.data.address(), "down");
  element.bits ^= 1;
  write_device(alone.device(3), down.data.address(), std::as_bytes(std::span(&element, 1)), "down");
  TeamDecoder team(many, 1);
  OneDeviceTeam one(alone, 1);
  const Tokens token{7};
  team.run(token, 0, true);
  one.run(token, 0, true);
  EXPECT_FALSE(same_bits(team.logits(0), one.parts().logits(0)));
}

}  // namespace
}  // namespace nodewright
