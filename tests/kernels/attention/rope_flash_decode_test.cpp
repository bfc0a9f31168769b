// rope_flash_decode: the bits of rope_append and flash_decode one after the other, in y and in the pool, while the
// place of every row's own key is NaN before.
#include "kernels_src/attention/rope_flash_decode.h"

#include <gtest/gtest.h>

#include "kernels_src/attention/rope_append.h"
#include "kernels_src/residual/norm.h"
#include "tests/kernels/attention/attend_case.h"
#include "tests/kernels/attention/block_tables.h"

namespace nodewright::test::rope_flash_decode_test {
namespace {

struct Family {
  AttendShape shape;
  bool rotate = true;
  int64_t head_norm = 0;  // kHeadNorm
  float amplitude = 1, cap = 0;
  Norm norm = Norm::rms;
  int64_t window = 0;
  bool clusters = false;
  CacheFormat cache = CacheFormat::bf16;
};
// Odd sizes, two tiles that share a key/value head, Qwen3's norms, Gemma-3's with a window, GPT-2's learned positions,
// OLMo-2's norms over the width, Phi-3's amplitude, Gemma-2's capped scores;
// splits that meet in global memory and in a cluster's; FP8 of whole and of odd sizes. Heads that several families
// share need one flash_decode.
constexpr Family kFamilies[] = {
    {.shape = {.heads = 5, .kv_heads = 1, .head_dim = 20, .splits = 3}},
    {.shape = {.heads = 16, .kv_heads = 2, .head_dim = 64, .splits = 5}},
    {.shape = {.heads = 4, .kv_heads = 2, .head_dim = 128, .splits = 4}, .head_norm = 1},
    {.shape = {.heads = 4, .kv_heads = 1, .head_dim = 256, .splits = 2},
     .head_norm = 1,
     .norm = Norm::rms_one_plus,
     .window = 40},
    {.shape = {.heads = 6, .kv_heads = 2, .head_dim = 20, .splits = 3}, .rotate = false},
    {.shape = {.heads = 6, .kv_heads = 2, .head_dim = 20, .splits = 3}, .head_norm = 2},
    {.shape = {.heads = 4, .kv_heads = 2, .head_dim = 128, .splits = 4}, .amplitude = 1.19f},
    {.shape = {.heads = 8, .kv_heads = 4, .head_dim = 64, .splits = 4}, .cap = 2.0f},
    {.shape = {.heads = 5, .kv_heads = 1, .head_dim = 20, .splits = 3}, .clusters = true},
    {.shape = {.heads = 16, .kv_heads = 2, .head_dim = 64, .splits = 16}, .clusters = true},
    {.shape = {.heads = 8, .kv_heads = 2, .head_dim = 64, .splits = 4}, .clusters = true, .cache = CacheFormat::fp8},
    {.shape = {.heads = 5, .kv_heads = 1, .head_dim = 20, .splits = 3}, .cache = CacheFormat::fp8},
    {.shape = {.heads = 6, .kv_heads = 2, .head_dim = 80, .splits = 2}, .head_norm = 2, .cache = CacheFormat::fp8},
    {.shape = {.heads = 4, .kv_heads = 1, .head_dim = 256, .splits = 2},
     .head_norm = 1,
     .norm = Norm::rms_one_plus,
     .window = 40,
     .clusters = true,
     .cache = CacheFormat::fp8}};

size_t at(int64_t i) { return static_cast<size_t>(i); }

struct RopeFlashDecodeCase {
  Family family;
  AttendCase attention;
  std::vector<float> qkv, frequencies;
  std::vector<int32_t> sequences;
  std::vector<bf16> before;  // the pool, without the rows' own keys

  // `shared`: the first rows that belong to the sequence of the longest of them.
  RopeFlashDecodeCase(const Family& of, std::vector<AttendRow> rows, int64_t shared = 1) : family(of) {
    attention.shape = of.shape;
    attention.on_tensor_cores = true;
    attention.window = of.window;
    attention.cap = of.cap;
    attention.clusters = of.clusters;
    attention.cache = of.cache;
    if (of.cache == CacheFormat::fp8) attention.key_scale = 0.013f, attention.value_scale = 0.02f;
    attention.build(std::move(rows), 7);
    const auto longest = std::max_element(attention.positions.begin(), attention.positions.begin() + shared);
    const auto pages = attention.table.begin() + (longest - attention.positions.begin()) * attention.table_stride;
    const std::vector<int32_t> table(pages, pages + attention.table_stride);
    for (int64_t m = 0; m < attention.shape.rows; ++m) {
      sequences.push_back(m < shared ? 7 : static_cast<int32_t>(10 + m));
      if (m < shared) std::copy(table.begin(), table.end(), attention.table.begin() + m * attention.table_stride);
    }
    const AttendShape& s = attention.shape;
    for (int64_t m = 0; m < s.rows; ++m)
      for (int64_t i = 0; i < width(); ++i)
        qkv.push_back(static_cast<float>(3 * noise(50 + attention.rows[at(m)].number, at(i))));
    if (of.rotate)
      for (int64_t i = 0; i < s.head_dim / 2; ++i)
        frequencies.push_back(std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(s.head_dim)));
    if (of.amplitude != 1) frequencies.resize(at(s.head_dim), of.amplitude);
    before = attention.pool;
    for (int64_t m = 0; m < s.rows; ++m)
      for (const int value : {0, 1})
        for (int64_t head = 0; head < s.kv_heads; ++head)
          for (int64_t d = 0; d < attention.padded(); ++d)
            before[at(attention.pool_index(m, value, head, attention.rows[at(m)].length - 1, d))] = {0xffff};
  }

  int64_t width() const { return (attention.shape.heads + 2 * attention.shape.kv_heads) * attention.shape.head_dim; }
  std::vector<Constant> rotation() const {
    return {{"kRotate", family.rotate ? 1 : 0},
            {"kHeadNorm", family.head_norm},
            {"kAmplitude", family.amplitude == 1 ? 0 : 1},
            {"kNorm", static_cast<int64_t>(family.norm)}};
  }
  std::vector<bf16> gains(uint64_t number, int64_t heads) const {
    std::vector<bf16> values;
    for (int64_t d = 0; d < gained(heads); ++d) values.push_back(to_bf16(1 + noise(number, at(d))));
    return values;
  }
  int64_t gained(int64_t heads) const {
    return attention.shape.head_dim * (family.head_norm == 0 ? 0 : family.head_norm == 2 ? heads : 1);
  }

  struct Result {
    std::vector<bf16> first_y, y, pool;
  };
  // Twice in a row, as two steps would: the second finds the first's counters, and its key in place.
  Result run(bool in_one_kernel) const {
    const AttendShape& s = attention.shape;
    const Guarded<float> packed("qkv", qkv), turns("frequencies", frequencies),
        q("q", at(s.rows * s.heads * s.head_dim)),
        partials("partials", at(s.rows * s.head_tiles() * s.splits * s.partial_floats()));
    const Guarded<bf16> kv("kv", pool_in_memory(before, family.cache)), y("y", at(s.rows * attention.y_stride())),
        q_gain("q_gain", gains(1, s.heads)), k_gain("k_gain", gains(2, s.kv_heads));
    const Guarded<int32_t> positions("positions", attention.positions),
        table("block_table", tables_of_sequences(attention.table, sequences, attention.table_stride)),
        live("n_live", std::vector{attention.n_live}), sequence_list("sequences", sequences),
        arrivals("arrivals", std::vector<int32_t>(at(s.rows * s.head_tiles()), 0));
    KernelRequest attend = attention.request(), rope{"rope_append", rotation()},
                  both{"rope_" + attend.name, rotation()};
    rope.constants.push_back({"kBias", 0});
    for (const Constant& constant : attend.constants) {
      both.constants.push_back(constant);
      if (constant.name == "kHeads" || constant.name == "kKvHeads" || constant.name == "kHeadDim" ||
          constant.name == "kPaddedHeadDim" || constant.name == "kPageSize" || constant.name == "kCacheFormat")
        rope.constants.push_back(constant);
    }
    std::vector<bf16> first_y;
    for (int step = 0; step < 2; ++step) {
      if (in_one_kernel) {
        run_node<RopeFlashDecode>(
            machine().kernels.kernel<RopeFlashDecode>(both, attention.flash().rope_launch_shape()),
            {.qkv = packed,
             .frequencies = turns,
             .q_gain = q_gain,
             .k_gain = k_gain,
             .positions = positions,
             .sequences = sequence_list,
             .block_table = table,
             .n_live = live,
             .kv = kv,
             .y = y,
             .partials = partials,
             .arrivals = arrivals,
             .qkv_stride = width(),
             .table_stride = attention.table_stride,
             .y_stride = attention.y_stride(),
             .window = family.window,
             .eps = 1e-6f,
             .scale = attention.scale(),
             .key_scale = attention.key_scale,
             .value_scale = attention.value_scale});
      } else {
        run_node<RopeAppend>(
            machine().kernels.kernel<RopeAppend>(
                rope, rope_append_shape(static_cast<unsigned>(s.rows), static_cast<unsigned>(s.heads),
                                        static_cast<unsigned>(s.kv_heads), s.head_dim, family.head_norm)),
            {.qkv = packed,
             .frequencies = turns,
             .q_gain = q_gain,
             .k_gain = k_gain,
             .positions = positions,
             .sequences = sequence_list,
             .block_table = table,
             .n_live = live,
             .q = q,
             .kv = kv,
             .qkv_stride = width(),
             .table_stride = attention.table_stride,
             .eps = 1e-6f,
             .key_scale = attention.key_scale,
             .value_scale = attention.value_scale});
        run_node<Attend>(machine().kernels.kernel<Attend>(attend, attention.flash().launch_shape()),
                         {.q = q,
                          .kv = kv,
                          .positions = positions,
                          .sequences = sequence_list,
                          .block_table = table,
                          .n_live = live,
                          .y = y,
                          .partials = partials,
                          .arrivals = arrivals,
                          .table_stride = attention.table_stride,
                          .y_stride = attention.y_stride(),
                          .window = family.window,
                          .scale = attention.scale(),
                          .value_scale = attention.value_scale});
      }
      if (step == 0) first_y = y.read();
    }
    for (const int32_t count : arrivals.read()) EXPECT_EQ(count, 0);
    partials.read();
    return {first_y, y.read(), kv.read()};
  }
};

class RopeFlashDecodeTest : public ::testing::TestWithParam<Family> {
 protected:
  static std::vector<AttendRow> rows_of(const std::vector<int64_t>& lengths) {
    std::vector<AttendRow> rows;
    for (const int64_t length : lengths) rows.push_back({rows.size(), length});
    return rows;
  }
  static void expect_the_same(RopeFlashDecodeCase both) {
    const RopeFlashDecodeCase::Result one = both.run(true), two = both.run(false);
    EXPECT_TRUE(same_bits(one.first_y, two.first_y));
    EXPECT_TRUE(same_bits(one.y, two.y));
    EXPECT_TRUE(same_bits(one.pool, two.pool));
    --both.attention.n_live;  // and where the last row does not count
    EXPECT_TRUE(same_bits(both.run(true).pool, both.run(false).pool));
  }
};

TEST_P(RopeFlashDecodeTest, GivesTheBitsOfTheTwoKernelsThatItStandsFor) {
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{1}, {2, 63}, {64, 65, 66}, {200, 1, 129, 513}, {128, 256}}) {
    SCOPED_TRACE(lengths.size());
    expect_the_same({GetParam(), rows_of(lengths)});
  }
}

// Each row attends to the keys of those before it; in whatever order they stand, within a chunk of keys and over
// the end of a page.
TEST_P(RopeFlashDecodeTest, TakesRowsOfOneSequence) {
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{66, 62, 63, 64, 65, 100}, {1, 2, 3, 2}, {9, 8, 10, 70}, {127, 125, 128, 126, 300}}) {
    SCOPED_TRACE(lengths[0]);
    expect_the_same({GetParam(), rows_of(lengths), static_cast<int64_t>(lengths.size()) - 1});
  }
}

INSTANTIATE_TEST_SUITE_P(Families, RopeFlashDecodeTest, ::testing::ValuesIn(kFamilies));

}  // namespace
}  // namespace nodewright::test::rope_flash_decode_test
