// attend_tiles, each test with rows multiplied by warps and by warpgroups: against softmax in double; that it stores
// its own rows only; and that a row's bits depend on its own tokens only, wherever chunks begin.
#include "kernels_src/attention/attend_tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels_src/attention/kv_pages.h"
#include "models/lowering/lowering.h"
#include "tests/kernels/attention/block_tables.h"
#include "tests/kernels/attention/cached_elements.h"
#include "tests/kernels/numbers.h"
#include "tests/kernels/one_node.h"

namespace nodewright::test::attend_tiles_test {
namespace {

// `rows` successive rows of a sequence, the first at `position`.
struct Run {
  int32_t sequence;
  int64_t position, rows;
};

size_t at(int64_t i) { return static_cast<size_t>(i); }

// The parameters: AttendTilesShape::by_warpgroups, and its cache. Without wgmma, warps multiply tiles of as many rows.
class AttendTilesTest : public testing::TestWithParam<std::tuple<bool, CacheFormat>> {
 public:
  static bool by_warpgroups() { return std::get<0>(GetParam()); }
  static CacheFormat cache() { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(AttendTiles, AttendTilesTest,
                         testing::Combine(testing::Bool(), testing::Values(CacheFormat::bf16, CacheFormat::fp8)),
                         [](const auto& suite) {
                           return std::string(std::get<0>(suite.param) ? "by_warpgroups" : "by_warps") +
                                  (std::get<1>(suite.param) == CacheFormat::fp8 ? "_in_fp8" : "");
                         });

// Sequences over a scattered pool that is NaN wherever none has a token, and a step that is made of runs.
struct TilesCase {
  static constexpr int64_t kPageSize = 64, kTableStride = 20, kPadding = 8;

  AttendTilesShape shape;
  int64_t window = 0;
  float cap = 0;
  int32_t n_first = 0, n_live = 0;
  std::vector<Run> runs;
  std::vector<float> q;
  std::vector<bf16> pool;
  std::vector<int32_t> positions, sequences, table;

  TilesCase(int64_t heads, int64_t kv_heads, int64_t head_dim, std::vector<Run> of, int64_t keys_back = 0)
      : shape{0,
              heads,
              kv_heads,
              head_dim,
              machine().device.properties().shared_optin_bytes,
              AttendTilesTest::by_warpgroups(),
              AttendTilesTest::cache()},
        window(keys_back),
        runs(std::move(of)) {
    int64_t pages = 0, row = 0;
    for (const Run& run : runs) pages += kTableStride, shape.rows += run.rows;
    n_live = static_cast<int32_t>(shape.rows);
    pool = poisoned<bf16>(at(pages * page_elements()));
    table.assign(at(shape.rows * kTableStride), -1);
    for (size_t r = 0; r < runs.size(); ++r)
      for (int64_t i = 0; i < runs[r].rows; ++i, ++row) {
        const int64_t position = runs[r].position + i;
        positions.push_back(static_cast<int32_t>(position));
        sequences.push_back(runs[r].sequence);
        for (int64_t d = 0; d < shape.heads * shape.head_dim; ++d)
          q.push_back(value_of(to_bf16(6 * noise(key_of(runs[r].sequence, position), at(d)))) / scale());
        for (int64_t page = 0; page * kPageSize < runs[r].position + runs[r].rows; ++page)
          table[at(row * kTableStride + page)] =
              static_cast<int32_t>((static_cast<int64_t>(r) * kTableStride + page) * 7 % pages);
        // The keys before the run, once, and its own.
        for (int64_t key = i == 0 ? 0 : position; key <= position; ++key)
          for (int64_t head = 0; head < shape.kv_heads; ++head)
            for (const int value : {0, 1})
              for (int64_t d = 0; d < padded(); ++d)
                pool[at(pool_index(row, value, head, key, d))] =
                    d < shape.head_dim ? stored(runs[r].sequence, value, head, key, d) : bf16{0};
      }
  }

  static uint64_t key_of(int32_t sequence, int64_t position) {
    return 1000 + static_cast<uint64_t>(sequence) * 4096 + static_cast<uint64_t>(position);
  }
  // A power of two, so that q * scale is exact.
  static float scale() { return 0.125f; }
  float value_scale() const { return shape.cache == CacheFormat::fp8 ? 0.25f : 1.0f; }
  int64_t padded() const { return padded_head_dim(shape.head_dim, shape.cache); }
  bf16 stored(int32_t sequence, int value, int64_t head, int64_t position, int64_t d) const {
    return cached(noise(key_of(sequence, position) + 1000000 + static_cast<uint64_t>(value) * 500000,
                        at(head * shape.head_dim + d)),
                  shape.cache);
  }
  int64_t y_stride() const { return shape.heads * shape.head_dim + kPadding; }
  int64_t page_elements() const { return 2 * shape.kv_heads * kPageSize * padded(); }
  int64_t row_index(int64_t row, int value, int64_t head, int64_t position) const {
    return table[at(row * kTableStride + position / kPageSize)] * page_elements() +
           ((value * shape.kv_heads + head) * kPageSize + position % kPageSize) * padded();
  }
  int64_t pool_index(int64_t row, int value, int64_t head, int64_t position, int64_t d) const {
    return row_index(row, value, head, position) +
           kv_in_row(static_cast<int>(position % kPageSize), static_cast<int>(d), padded(), cache_piece(shape.cache));
  }

  std::vector<bf16> run() const {
    const Guarded<float> queries("q", q);
    const Guarded<bf16> kv("kv", pool_in_memory(pool, shape.cache)), y("y", at(shape.rows * y_stride()));
    const Guarded<int32_t> position_list("positions", positions), sequence_list("sequences", sequences),
        tables("block_table", tables_of_sequences(table, sequences, kTableStride)),
        first("n_first", std::vector{n_first}), live("n_live", std::vector{n_live});
    const auto kernel = machine().kernels.kernel<AttendTiles>(
        {"attend_tiles",
         constants_of(shape.constants(), {{"kHeads", shape.heads},
                                          {"kKvHeads", shape.kv_heads},
                                          {"kHeadDim", shape.head_dim},
                                          {"kPaddedHeadDim", padded()},
                                          {"kCacheFormat", static_cast<int64_t>(shape.cache)},
                                          {"kPageSize", kPageSize},
                                          cap_constant("kScoreCap", static_cast<float>(M_LOG2E * cap))})},
        shape.launch_shape());
    run_node(kernel, {.q = queries,
                      .kv = kv,
                      .positions = position_list,
                      .sequences = sequence_list,
                      .block_table = tables,
                      .n_first = first,
                      .n_live = live,
                      .y = y,
                      .table_stride = kTableStride,
                      .y_stride = y_stride(),
                      .window = window,
                      .scale = scale(),
                      .value_scale = value_scale()});
    return y.read();
  }

  std::span<const bf16> result(const std::vector<bf16>& y, int64_t row) const {
    return row_of(y, row, y_stride(), shape.heads * shape.head_dim);
  }

  // Probabilities are rounded to bf16, by 2^-8 of themselves at most, and so is the result; fp32 errors are far below.
  // Beside FP8 they may be fp16 times 2^14: half a unit of its subnormals is 2^-39.
  void expect_row(const std::vector<bf16>& y, int64_t row) const {
    const int64_t length = positions[at(row)] + 1, oldest = window > 0 ? std::max<int64_t>(length - window, 0) : 0;
    for (int64_t head = 0; head < shape.heads; ++head) {
      const int64_t kv_head = head / (shape.heads / shape.kv_heads);
      std::vector<double> scores, value(at(shape.head_dim), 0.0), absolute(value), unweighed(value);
      for (int64_t key = oldest; key < length; ++key) {
        double score = 0;
        for (int64_t d = 0; d < shape.head_dim; ++d)
          score += static_cast<double>(q[at((row * shape.heads + head) * shape.head_dim + d)]) * scale() *
                   value_of(pool[at(pool_index(row, 0, kv_head, key, d))]);
        if (cap != 0) score = M_LOG2E * cap * std::tanh(score / (M_LOG2E * cap));
        scores.push_back(score);
      }
      const double top = *std::max_element(scores.begin(), scores.end());
      double sum = 0;
      for (int64_t key = oldest; key < length; ++key) {
        const double weight = std::exp2(scores[at(key - oldest)] - top);
        sum += weight;
        for (int64_t d = 0; d < shape.head_dim; ++d) {
          const double v = value_of(pool[at(pool_index(row, 1, kv_head, key, d))]);
          value[at(d)] += weight * v;
          absolute[at(d)] += weight * std::abs(v);
          unweighed[at(d)] += shape.cache == CacheFormat::fp8 ? std::abs(v) : 0.0;
        }
      }
      for (int64_t d = 0; d < shape.head_dim; ++d) {
        const double bound = 0x1p-8 * value_scale() *
                             (std::abs(value[at(d)]) + 1.01 * absolute[at(d)] + 0x1p-31 * unweighed[at(d)]) / sum;
        ASSERT_NEAR(value_of(y[at(row * y_stride() + head * shape.head_dim + d)]), value_scale() * value[at(d)] / sum,
                    bound)
            << "row " << row << ", length " << length << ", head " << head << ", element " << d;
      }
    }
  }
  void expect_rows(const std::vector<bf16>& y) const {
    for (int64_t row = 0; row < shape.rows && !testing::Test::HasFatalFailure(); ++row) expect_row(y, row);
  }
};

// Runs that begin and end inside a tile, a warp's rows and a page.
const std::vector<Run> kRuns = {{0, 0, 70}, {1, 60, 9}, {2, 0, 1}, {3, 130, 20}};

TEST_P(AttendTilesTest, AgreeWithTheReferenceAtOddSizes) {
  for (const auto& [heads, kv_heads, head_dim] :
       {std::tuple<int64_t, int64_t, int64_t>{2, 1, 64}, {3, 3, 20}, {2, 1, 128}, {2, 1, 256}}) {
    SCOPED_TRACE(head_dim);
    TilesCase c(heads, kv_heads, head_dim, kRuns);
    c.expect_rows(c.run());
    if (head_dim < 64) continue;
    c.cap = 2;  // Gemma-2's scores
    c.expect_rows(c.run());
  }
}

// More keys than stages hold, and a last row that is alone in its tile. Pages end inside runs, and runs inside the rows
// of a warp, of a warpgroup and of a tile.
const std::vector<Run> kLongRuns = {{0, 1020, 230}, {1, 0, 130}, {2, 570, 7}, {3, 447, 17}, {4, 63, 1}};

TEST_P(AttendTilesTest, AgreeWithTheReferenceOverManyPages) {
  for (const int64_t head_dim : {64, 128})
    for (const int64_t window : {0, 200}) {
      SCOPED_TRACE(testing::Message() << head_dim << ", window " << window);
      TilesCase c(2, 1, head_dim, kLongRuns, window);
      c.cap = window > 0 ? 2.0f : 0.0f;
      c.expect_rows(c.run());
    }
}

std::vector<Run> short_runs() {
  std::vector<Run> runs;
  for (int32_t i = 0; i < 75; ++i) runs.push_back({i, i * 13, 1 + i % 3});
  return runs;
}

TEST_P(AttendTilesTest, AgreeWithTheReferenceForManySequencesOfFewRows) {
  for (const int64_t head_dim : {64, 128}) {
    SCOPED_TRACE(head_dim);
    TilesCase c(2, 1, head_dim, short_runs());
    c.expect_rows(c.run());
  }
}

// Where shared memory holds one page: as on a device of compute capability 8.0, with heads of 256. Warpgroups have two.
TEST_P(AttendTilesTest, GiveTheSameBitsWithAsFewPagesAtATimeAsThereCanBe) {
  for (const int64_t head_dim : {64, 256}) {
    SCOPED_TRACE(head_dim);
    TilesCase c(2, 1, head_dim, kRuns);
    const std::vector<bf16> expected = c.run();
    const int64_t groups = c.shape.warpgroups(), fewest = groups > 0 ? 2 : 1;
    c.shape.most_shared_bytes = c.shape.shared_bytes(fewest + 1) - 1;
    ASSERT_EQ(c.shape.stages(), fewest);
    ASSERT_EQ(c.shape.warpgroups(), groups);
    EXPECT_TRUE(same_bits(c.run(), expected));
  }
  const AttendTilesShape gemma{64, 4, 1, 256, 163 << 10, by_warpgroups(), cache()};
  EXPECT_EQ(gemma.stages(), cache() == CacheFormat::fp8 ? 2 : 1);
  EXPECT_LE(gemma.shared_bytes(), 163u << 10);
}

// 0 times NaN is NaN: rows of other sequences in the same tile are stored, or begin, without it.
TEST_P(AttendTilesTest, KeepAValueThatIsNoNumberInItsSequence) {
  for (const int64_t head_dim : {64, 128, 256})
    for (const size_t run : {0u, 1u}) {
      SCOPED_TRACE(testing::Message() << head_dim << ", run " << run);
      TilesCase c(2, 1, head_dim, kRuns);
      const std::vector<bf16> clean = c.run();
      int64_t first = 0;
      for (size_t r = 0; r < run; ++r) first += c.runs[r].rows;
      std::fill_n(c.pool.begin() + c.row_index(first, 1, 0, 0), head_dim, to_bf16(kNaN));
      const std::vector<bf16> y = c.run();
      const auto of_row = static_cast<int64_t>(y.size()) / c.shape.rows;
      for (int64_t row = 0; row < c.shape.rows; ++row) {
        const bool own = row >= first && row < first + c.runs[run].rows;
        const auto elements = [&](const std::vector<bf16>& v) {
          return std::span(v).subspan(at(row * of_row), at(of_row));
        };
        EXPECT_EQ(same_bits(elements(y), elements(clean)), !own) << "row " << row;
      }
    }
}

TEST_P(AttendTilesTest, AttendToTheKeysOfTheirWindowAndNoOthers) {
  for (const int64_t head_dim : {64, 128})
    for (const int64_t window : {1, 16, 64, 100}) {
      SCOPED_TRACE(testing::Message() << head_dim << ", window " << window);
      TilesCase c(2, 1, head_dim, kRuns, window);
      for (int64_t row = 0; row < c.shape.rows; row += c.runs[0].rows)  // keys that no row of a run attends to
        for (int64_t key = 0; key < c.positions[at(row)] - window + 1; ++key)
          for (const int value : {0, 1})
            std::fill_n(c.pool.begin() + c.row_index(row, value, 0, key), head_dim, to_bf16(kNaN));
      c.expect_rows(c.run());
    }
}

TEST_P(AttendTilesTest, StoreTheLiveRowsFromTheFirstOnAndNoOthers) {
  for (const int64_t head_dim : {64, 128}) {
    TilesCase c(2, 1, head_dim, kLongRuns);
    const std::vector<bf16> full = c.run(), before = poisoned<bf16>(full.size());
    for (const auto& [first, live] : {std::pair<int32_t, int32_t>{3, 80}, {65, 100}, {190, 385}, {0, 17}, {5, 5}}) {
      TilesCase part = c;
      part.n_first = first, part.n_live = live;
      for (int64_t row = 0; row < c.shape.rows; ++row) {
        if (row >= first && row < live) continue;
        part.positions[at(row)] = 1 << 30;
        part.sequences[at(row)] = 1 << 30;
      }
      const std::vector<bf16> y = part.run();
      for (int64_t row = 0; row < c.shape.rows; ++row)
        EXPECT_TRUE(same_bits(c.result(y, row), c.result(row >= first && row < live ? full : before, row)))
            << "row " << row << " of " << first << " to " << live << ", heads of " << head_dim;
    }
  }
}

TEST_P(AttendTilesTest, HaveTheSameBitsHoweverAPromptIsCut) {
  constexpr int64_t kTokens = 420;
  for (const auto& [head_dim, window] : {std::pair<int64_t, int64_t>{64, 0}, {64, 40}, {128, 0}, {128, 130}}) {
    const TilesCase whole(2, 1, head_dim, {{1, 0, kTokens}}, window);
    const std::vector<bf16> expected = whole.run();
    for (const int64_t cut : {1, 15, 64, 100, 300}) {
      const TilesCase part(2, 1, head_dim, {{7, 3, 5}, {1, cut, kTokens - cut}}, window);
      const std::vector<bf16> y = part.run();
      for (int64_t row = cut; row < kTokens; ++row)
        EXPECT_TRUE(same_bits(part.result(y, 5 + row - cut), whole.result(expected, row)))
            << "row " << row << ", cut at " << cut << ", heads of " << head_dim << ", window " << window;
    }
  }
}

}  // namespace
}  // namespace nodewright::test::attend_tiles_test
