// What the ranks of a team have of a mixture's weights, against the whole of them: the router, and of every expert some
// rows of gate and up and the same columns of down; in bf16, and rounded to FP8 with a scale for each whole row.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "models/decoder_model.h"
#include "runtime/device_selection.h"
#include "tests/models/int4_checkpoint.h"
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

TEST(ExpertPartsOnCpuDriver, HaveTheCodesAndScalesOfTheWhole) {
  OpenedDevice device = open_device("cpu");
  constexpr int64_t kRanks = 2;
  const test::SmallNetwork network = test::kExpertsSharedByTwo;
  const test::Int4Checkpoint checkpoint(test::Int4Form::compressed, 128, "", "", network);
  const auto loaded = [&](Shard shard) {
    DecoderModel model =
        DecoderModel::begin_load(device, checkpoint.in_bf16(), {}, {.rounds_to_fp8 = true, .shard = shard});
    model.wait();
    return model;
  };
  const auto bytes_of = [&](const WeightMatrix& matrix) {
    std::vector<uint8_t> bytes(static_cast<size_t>(matrix.layout.bytes(matrix.rows, matrix.stride)));
    read_device(device, std::as_writable_bytes(std::span(bytes)), matrix.data.address(), "matrix");
    return bytes;
  };
  const DecoderModel whole = loaded({});
  const int64_t inner = network.intermediate, own = inner / kRanks;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const DecoderModel part = loaded({rank, kRanks});
    const LayerWeights &all = whole.weights().layers()[1], &some = part.weights().layers()[1];
    ASSERT_TRUE(some.down.layout.is_fp8() && some.gate_up.layout.is_fp8() && some.qkv.layout.is_fp8());
    const std::vector<uint8_t> all_down = bytes_of(all.down), down = bytes_of(some.down);
    ASSERT_EQ(some.down.cols, own);
    for (int64_t n = 0; n < all.down.rows; ++n) {
      ASSERT_TRUE(
          std::equal(down.begin() + n * own, down.begin() + (n + 1) * own, all_down.begin() + n * inner + rank * own))
          << "rank " << rank << ", row " << n;
      ASSERT_TRUE(std::equal(down.begin() + some.down.rows * own + 4 * n,
                             down.begin() + some.down.rows * own + 4 * n + 4,
                             all_down.begin() + all.down.rows * inner + 4 * n))
          << "rank " << rank << ", scale of row " << n;
    }
    const std::vector<uint8_t> all_up = bytes_of(all.gate_up), up = bytes_of(some.gate_up);
    for (int64_t expert = 0; expert < network.experts; ++expert)
      for (int64_t i = 0; i < 2 * own; ++i) {
        const int64_t n = 2 * own * expert + i, of_all = 2 * (inner * expert + rank * own) + i;
        const int64_t cols = all.gate_up.cols;
        ASSERT_TRUE(std::equal(up.begin() + n * cols, up.begin() + (n + 1) * cols, all_up.begin() + of_all * cols));
        ASSERT_TRUE(std::equal(up.begin() + some.gate_up.rows * cols + 4 * n,
                               up.begin() + some.gate_up.rows * cols + 4 * n + 4,
                               all_up.begin() + all.gate_up.rows * cols + 4 * of_all));
      }
  }
}

}  // namespace
}  // namespace nodewright
