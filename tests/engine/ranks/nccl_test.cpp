// Ranks that gather by NCCL instead of sending packets: the same logits, tokens, keys and values, bit for bit; and what
// ends a rank that waits for another one. Two GPUs, or four: the CPU driver has no NCCL.
#include <chrono>

#include "graph/graph_exec.h"
#include "runtime/libraries/nccl_collectives.h"
#include "tests/engine/ranks/shared_sizes.h"
#include "tests/engine/ranks/team_decoder.h"
#include "tests/support/scratch_folder.h"

namespace nodewright {
namespace {

using namespace test;

// As TeamDecoder, a graph a rank with library nodes.
class NcclDecoder {
 public:
  NcclDecoder(LoadedTeam& loaded, int64_t rows, int64_t most_sampled = 0)
      : parts_(loaded, rows, Numerics::fast, most_sampled, {}, 1, true),
        groups_(NcclCollectives::of_devices(NcclLibrary::load(), loaded.devices)) {
    for (size_t rank = 0; rank < loaded.ranks(); ++rank) {
      streams_.emplace_back(loaded.device(rank), "steps");
      graphs_.push_back(std::make_unique<ExplicitGraph>(parts_.collective_plan(rank, *groups_[rank])));
    }
  }
  int64_t run(std::span<const int32_t> tokens, int64_t first, bool keeps = true) {
    const int64_t last = parts_.write_step(tokens, first, true, keeps);
    for (size_t rank = 0; rank < graphs_.size(); ++rank) launch(rank);
    for (const Stream& stream : streams_) stream.synchronize();
    return last;
  }
  void launch(size_t rank) { graphs_[rank]->launch(streams_[rank]); }
  const Stream& stream(size_t rank) const { return streams_[rank]; }
  const TeamParts& parts() const { return parts_; }
  NcclCollectives& group(size_t rank) { return *groups_[rank]; }

 private:
  TeamParts parts_;
  std::vector<std::unique_ptr<NcclCollectives>> groups_;  // after the graphs, which hold its calls
  std::vector<Stream> streams_;
  std::vector<std::unique_ptr<ExplicitGraph>> graphs_;
};

class NcclOnGpus : public testing::TestWithParam<std::tuple<int, std::string>> {};

TEST_P(NcclOnGpus, HasTheBitsOfPackets) {
  const auto& [ranks, family] = GetParam();
  ScratchFolder folder;
  write_shared_sizes(family, folder.path());
  LoadedTeam loaded(folder.path(), ranks, test_device(), true);
  const auto vocab = static_cast<size_t>(loaded.models[0].config().vocab);
  for (const auto& [rows, sampled] : {std::pair<int64_t, int64_t>{1, 0}, {3, 0}, {8, 0}, {17, 0}, {64, 8}}) {
    SCOPED_TRACE(std::to_string(rows) + " rows");
    TeamDecoder packets(loaded, rows, Numerics::fast, sampled);
    NcclDecoder nccl(loaded, rows, sampled);
    const Tokens prompt = some_tokens(static_cast<size_t>(2 * rows + (rows + 1) / 2), vocab, 5);
    int64_t first = 0;
    while (first < static_cast<int64_t>(prompt.size())) {
      const auto left = std::span(prompt).subspan(static_cast<size_t>(first));
      const auto tokens = left.first(std::min(left.size(), static_cast<size_t>(rows)));
      const int64_t last = packets.run(tokens, first, true);
      ASSERT_EQ(nccl.run(tokens, first), last);
      const std::vector<Logits> expected = packets.logits(last), found = nccl.parts().logits(last);
      for (size_t rank = 0; rank < found.size(); ++rank)
        ASSERT_TRUE(same_bits(found[rank], expected[rank])) << "rank " << rank << ", token " << first;
      ASSERT_EQ(nccl.parts().chosen(last), packets.parts().chosen(last));
      first += static_cast<int64_t>(tokens.size());
    }
    for (size_t rank = 0; rank < loaded.ranks(); ++rank)
      ASSERT_EQ(nccl.parts().pages(rank), packets.parts().pages(rank)) << "rank " << rank;
  }
}

std::string family_of(const testing::TestParamInfo<NcclOnGpus::ParamType>& of) {
  return golden_test_name({std::get<1>(of.param), of.index});
}

INSTANTIATE_TEST_SUITE_P(TwoDevices, NcclOnGpus,
                         testing::Combine(testing::Values(2), testing::ValuesIn(shared_families())), family_of);
INSTANTIATE_TEST_SUITE_P(FourDevices, NcclOnGpus,
                         testing::Combine(testing::Values(4), testing::ValuesIn(shared_families())), family_of);

TEST(TwoDevicesNcclOnGpus, ARankAloneEndsWhenTheGroupIsGivenUp) {
  ScratchFolder folder;
  write_shared_sizes("llama/biases", folder.path());
  LoadedTeam loaded(folder.path(), 2, test_device(), true);
  NcclDecoder nccl(loaded, 1);
  nccl.run(Tokens{7}, 0);
  nccl.launch(0);
  EXPECT_FALSE(nccl.stream(0).done());
  for (size_t rank = 0; rank < 2; ++rank) nccl.group(rank).give_up();
  nccl.stream(0).synchronize();  // or it waits for the other rank for ever
  for (size_t rank = 0; rank < 2; ++rank) {
    DeviceBuffer buffer(loaded.device(rank), "after", 4096);  // the contexts live
    fill_device(loaded.device(rank), buffer.address(), std::byte{1}, 4096, "after");
    EXPECT_TRUE(nccl.group(rank).given_up());
    EXPECT_THROW(nccl.group(rank).all_gather(nccl.stream(rank).get(), buffer.address(), buffer.address(), 64), Error);
  }
}

}  // namespace
}  // namespace nodewright
