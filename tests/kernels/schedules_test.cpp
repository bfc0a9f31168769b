// The kernels give the same bits in whatever order the CPU driver takes blocks, warps and lanes, and however many
// workers it has: a result that depends on the order is a race.
#include <gtest/gtest.h>

#include "tests/kernels/attention/attend_case.h"
#include "tests/kernels/projection/matvec.h"
#include "tests/kernels/sampling/sample_case.h"

namespace nodewright::test::schedules_test {
namespace {

class SchedulesOnCpuDriver : public ::testing::Test {
 protected:
  void TearDown() override { reopen_machine(""); }

  // `work` returns something to compare, made on the machine that is open.
  template <class Work>
  static void expect_same_on_every_schedule(Work work) {
    reopen_machine("cpu:checked,forward,workers=1");
    const auto expected = work();
    for (const char* spec : {"cpu:checked,reverse,workers=1", "cpu:checked,seed=1,workers=1", "cpu:checked,seed=2",
                             "cpu:checked,seed=3,sms=7", "cpu:checked,sm80,workers=3"}) {
      reopen_machine(spec);
      EXPECT_TRUE(work() == expected) << spec;
    }
  }
};

std::vector<uint16_t> bits_of(const std::vector<bf16>& values) {
  std::vector<uint16_t> bits;
  for (const bf16 v : values) bits.push_back(v.bits);
  return bits;
}
std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

TEST_F(SchedulesOnCpuDriver, GiveTheSameProjections) {
  const auto compare = [&]<class Run>(Run) {
    const MatvecShape shape = matvec_shape(4, 192, 300, Run::kUnit);
    const MatvecData data(shape);
    expect_same_on_every_schedule([&] { return bits_of(Run::run(shape, data, 3)); });
  };
  compare(RunNormProject());
  compare(RunNormGateUp());
  compare(RunProjectAdd());
  compare(RunProject());
  const MatvecShape shape = matvec_shape(4, 192, 300, 2);
  MatvecData data(shape);
  data.family = {.norm = Norm::rms_one_plus, .post_norm = true};
  expect_same_on_every_schedule([&] {
    std::vector<float> x_next;
    const std::vector<bf16> y = RunNormGateUp::run(shape, data, 3, 0, &x_next);
    return std::pair(bits_of(y), bits_of(x_next));
  });
}

TEST_F(SchedulesOnCpuDriver, GiveTheSameProjectionsOnTensorCores) {
  const auto compare = [&]<class Run>(Run, bool normed) {
    const TileShape shape{5, 200, 200, 150, Run::kUnit, normed};  // three tiles a block, of four warps
    const MatvecData data(shape);
    expect_same_on_every_schedule([&] { return bits_of(Run::run(shape, data, 3)); });
  };
  compare(RunNormGateUp(), true);
  const TileShape shape{5, 200, 200, 150, 1, true, true};
  MatvecData data(shape);
  data.family = {.norm = Norm::rms_one_plus, .post_norm = true};
  expect_same_on_every_schedule([&] {
    std::vector<float> x_next;
    const std::vector<float> y = RunNormProject::run(shape, data, 3, 0, &x_next);
    return std::pair(bits_of(y), bits_of(x_next));
  });
  compare(RunProjectAdd(), false);
  const TileShape centred{5, 200, 200, 150, 1, true, false, false, false, true};
  data = MatvecData(centred);
  data.family = {.norm = Norm::layer, .biases = true};
  expect_same_on_every_schedule([&] { return bits_of(RunNormProject::run(centred, data, 3)); });
}

// Splits meet in the block that arrives last, which the schedule decides.
TEST_F(SchedulesOnCpuDriver, GiveTheSameAttention) {
  AttendCase c;
  c.shape = {.heads = 8, .kv_heads = 2, .head_dim = 64, .splits = 4};
  c.build({{1, 70}, {2, 500}, {3, 1}}, 1);
  expect_same_on_every_schedule([&] { return bits_of(c.run(2)); });
}

TEST_F(SchedulesOnCpuDriver, GiveTheSameTokens) {
  SampleLaunch launch;
  for (uint64_t m = 0; m < 6; ++m) {
    SampleRow row{.logits = {}, .temperature = m == 0 ? 0.0f : 1.0f, .seed = m};
    for (uint64_t i = 0; i < 1003; ++i) row.logits.push_back(static_cast<float>(std::floor(8 * noise(m, i))));  // ties
    if (m % 2 == 1) row.top_k = 50;
    if (m >= 3) row.top_p = 0.8f;
    launch.rows.push_back(row);
  }
  expect_same_on_every_schedule([&] {
    const SampleLaunch::Result result = launch.run();
    return std::pair(result.tokens, result.last_token);
  });
}

}  // namespace
}  // namespace nodewright::test::schedules_test
