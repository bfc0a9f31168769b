// What the ranks of a team have of a mixture's weights, against the whole of them: the router, and of every expert some
// rows of gate and up and the same columns of down.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "models/decoder_model.h"
#include "runtime/device_selection.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

// [rows, stride] as it lies on the device.
std::vector<uint16_t> bits_of_matrix(Device& device, const WeightMatrix& matrix) {
  std::vector<uint16_t> bits(matrix.data.count);
  read_device(device, std::as_writable_bytes(std::span(bits)), matrix.data.address(), "matrix");
  return bits;
}

TEST(ExpertPartsOnCpuDriver, AreTheRanksShareOfEveryExpert) {
  OpenedDevice device = open_device("cpu");
  const auto folder = test::source_dir() / "tests/golden/qwen3_moe/normed";
  constexpr int64_t kRanks = 2;
  const DecoderModel whole = DecoderModel::begin_load(device, folder);
  whole.wait();
  const ModelConfig& config = whole.config();
  const int64_t inner = config.experts.intermediate, own = inner / kRanks, experts = config.experts.count;
  uint64_t bytes = 0;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const DecoderModel part = DecoderModel::begin_load(device, folder, {}, {.shard = {rank, kRanks}});
    part.wait();
    bytes += part.weights().bytes();
    for (size_t l = 0; l < static_cast<size_t>(config.layers); ++l) {
      const LayerWeights &all = whole.weights().layers()[l], &some = part.weights().layers()[l];
      ASSERT_EQ(bits_of_matrix(device, some.router), bits_of_matrix(device, all.router));
      const std::vector<uint16_t> all_up = bits_of_matrix(device, all.gate_up),
                                  up = bits_of_matrix(device, some.gate_up);
      const std::vector<uint16_t> all_down = bits_of_matrix(device, all.down), down = bits_of_matrix(device, some.down);
      ASSERT_EQ(some.gate_up.rows, 2 * own * experts);
      ASSERT_EQ(some.down.cols, own);
      const auto same = [](const std::vector<uint16_t>& a, int64_t from_a, const std::vector<uint16_t>& b,
                           int64_t from_b, int64_t count) {
        return std::equal(a.begin() + from_a, a.begin() + from_a + count, b.begin() + from_b);
      };
      for (int64_t expert = 0; expert < experts; ++expert) {
        for (int64_t i = 0; i < 2 * own; ++i)
          ASSERT_TRUE(same(up, (2 * own * expert + i) * some.gate_up.stride, all_up,
                           (2 * (inner * expert + rank * own) + i) * all.gate_up.stride, config.hidden))
              << "rank " << rank << ", expert " << expert << ", row " << i;
        for (int64_t n = config.hidden * expert; n < config.hidden * (expert + 1); ++n)
          ASSERT_TRUE(same(down, n * some.down.stride, all_down, n * all.down.stride + rank * own, own))
              << "rank " << rank << ", row " << n;
      }
    }
  }
  EXPECT_LT(bytes, whole.weights().bytes() * 5 / 4) << "the ranks share what they need not all have";
}

}  // namespace
}  // namespace nodewright
