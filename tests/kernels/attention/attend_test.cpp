// attend and flash_decode against softmax in double; what it reads and writes; and that a row's bits depend on its own
// tokens only.
#include <gtest/gtest.h>

#include "tests/kernels/attention/attend_case.h"

namespace nodewright::test::attend_test {
namespace {

AttendCase attend_case(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t splits) {
  AttendCase c;
  c.shape = {.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim, .splits = splits};
  return c;
}

AttendCase on_tensor_cores(AttendCase c) {
  c.on_tensor_cores = true;
  return c;
}

AttendCase in_cluster(AttendCase c, int64_t warps = 4) {
  c = on_tensor_cores(c);
  c.clusters = true, c.flash_warps = warps;
  return c;
}

AttendCase in_fp8(AttendCase c) {
  c.cache = CacheFormat::fp8, c.key_scale = 0.37f, c.value_scale = 2.9f, c.query_size = 16;
  return c;
}

AttendCase capped(AttendCase c) {
  c.cap = 2;
  return c;
}

// Groups of 1, 2, 3, 4, 7, 8, 16 and 32 query heads, 1 to 4 key heads; some in both forms of the kernel.
std::vector<AttendCase> all_cases() {
  return {attend_case(4, 4, 32, 1),
          attend_case(3, 1, 20, 3),
          attend_case(8, 2, 64, 4),
          attend_case(6, 3, 128, 16),
          attend_case(14, 2, 96, 33),
          attend_case(16, 1, 256, 64),
          attend_case(8, 1, 64, 64),
          capped(attend_case(8, 2, 64, 4)),
          capped(in_cluster(attend_case(8, 2, 64, 4))),
          on_tensor_cores(attend_case(4, 4, 32, 1)),
          on_tensor_cores(attend_case(3, 1, 20, 3)),
          on_tensor_cores(attend_case(8, 2, 64, 4)),
          on_tensor_cores(attend_case(14, 2, 96, 33)),
          on_tensor_cores(attend_case(16, 1, 256, 64)),
          on_tensor_cores(attend_case(32, 1, 64, 2)),
          in_cluster(attend_case(3, 1, 20, 3)),
          in_cluster(attend_case(8, 2, 64, 4)),
          in_cluster(attend_case(14, 2, 96, 16)),
          in_cluster(attend_case(32, 1, 64, 2)),
          in_cluster(attend_case(32, 8, 64, 1), 16),  // the most warps that a tuning asks for
          in_cluster(attend_case(4, 1, 256, 3), 8),   // a ring of one chunk
          in_fp8(on_tensor_cores(attend_case(4, 4, 32, 1))),
          in_fp8(on_tensor_cores(attend_case(3, 1, 20, 3))),
          in_fp8(on_tensor_cores(attend_case(6, 3, 80, 5))),  // an odd number of pieces
          in_fp8(on_tensor_cores(attend_case(14, 2, 96, 33))),
          in_fp8(on_tensor_cores(attend_case(16, 1, 256, 64))),
          in_fp8(capped(in_cluster(attend_case(8, 2, 64, 4)))),
          in_fp8(in_cluster(attend_case(5, 1, 16, 3))),
          in_fp8(in_cluster(attend_case(8, 1, 128, 2), 8))};
}
AttendCase llama_case() { return attend_case(8, 2, 64, 4); }
std::vector<AttendCase> llama_cases() {
  return {llama_case(), on_tensor_cores(llama_case()), in_cluster(llama_case()), in_fp8(on_tensor_cores(llama_case()))};
}

std::string name_of(const AttendCase& c) {
  return std::to_string(c.shape.heads) + " heads of " + std::to_string(c.shape.head_dim) + " over " +
         std::to_string(c.shape.kv_heads) + ", " + std::to_string(c.shape.splits) + " splits" +
         (c.cap != 0 ? ", capped" : "") + (c.on_tensor_cores ? ", on tensor cores" : "") +
         (c.clusters ? ", in a cluster" : "") + (c.cache == CacheFormat::fp8 ? ", FP8" : "");
}

// Every second one of them, and of each form some.
std::vector<AttendCase> some_cases() {
  const std::vector<AttendCase> all = all_cases();
  std::vector<AttendCase> some;
  for (size_t i = 1; i < all.size(); i += 2) some.push_back(all[i]);
  return some;
}

// Around a split's granule of 16, a page of 64, and to the end of the table.
std::vector<AttendRow> all_lengths() {
  std::vector<AttendRow> rows;
  for (const int64_t length : {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 300, 1000, 1024})
    rows.push_back({rows.size(), length});
  return rows;
}

void prepare(const std::vector<AttendCase>& cases) {
  std::vector<KernelRequest> requests;
  for (const AttendCase& c : cases) requests.push_back(c.request());
  machine().kernels.prepare(requests);
}

TEST(AttendRowsSweep, AgreeWithTheReferenceAtEveryLengthAndShape) {
  prepare(all_cases());
  for (AttendCase& c : all_cases()) {
    SCOPED_TRACE(name_of(c));
    c.build(all_lengths(), 1);
    const std::vector<bf16> y = c.run();
    for (int64_t m = 0; m < c.shape.rows; ++m) c.expect_row(y, m);
    if (HasFatalFailure()) return;
  }
}

// A warp on tensor cores knows the pages of 32 chunks at a time: 2048 keys of four warps.
TEST(AttendRowsSweep, AgreeWithTheReferenceOverManyPages) {
  AttendCase c = on_tensor_cores(attend_case(2, 1, 16, 1));
  c.table_stride = 66;
  c.build({{1, 2048}, {2, 2049}, {3, 4200}}, 5);
  const std::vector<bf16> y = c.run();
  for (int64_t m = 0; m < c.shape.rows; ++m) c.expect_row(y, m);
}

TEST(AttendRows, HaveTheSameBitsWhateverTheirPlacePagesAndNeighbours) {
  prepare(some_cases());
  for (AttendCase& c : some_cases()) {
    SCOPED_TRACE(name_of(c));
    c.build(all_lengths(), 1);
    const AttendCase first = c;
    const std::vector<bf16> expected = first.run();
    // Odd rows stay, in reverse order and other pages; their neighbours become other rows.
    std::vector<AttendRow> rows = all_lengths();
    std::reverse(rows.begin(), rows.end());
    for (AttendRow& row : rows)
      if (row.number % 2 == 0) row = {row.number + 50, (row.length * 7) % 500 + 1};
    c.build(rows, 2);
    const std::vector<bf16> y = c.run();
    const int64_t last = c.shape.rows - 1;
    for (int64_t m = 1; m <= last; m += 2)
      EXPECT_TRUE(same_bits(c.result(y, last - m), first.result(expected, m))) << "row " << m;
  }
}

// Invariant numerics: whether a block has all sections of a row, one or more a warp, or the blocks of a cluster some or
// one each: in every way for the first heads, in three for others. Rings of heads of up to 64, of 128 and of more.
// Another order shows in a few of many elements, since they are rounded to bf16.
TEST(AttendRows, HaveTheSameBitsHoweverTheirSectionsAreDealt) {
  constexpr int64_t kSections = FlashDecodeShape::kSections;
  struct Heads {
    AttendShape shape;
    int64_t ring;
    CacheFormat cache = CacheFormat::bf16;
    bool every_way = false;
  };
  const AttendShape of_64{.heads = 64, .kv_heads = 8, .head_dim = 64}, of_20{.heads = 3, .kv_heads = 1, .head_dim = 20},
      of_128{.heads = 8, .kv_heads = 2, .head_dim = 128}, of_256{.heads = 4, .kv_heads = 1, .head_dim = 256};
  for (const auto& [shape, ring, cache, every_way] :
       {Heads{.shape = of_64, .ring = 4, .every_way = true}, Heads{.shape = of_20, .ring = 4},
        Heads{.shape = of_128, .ring = 3}, Heads{.shape = of_256, .ring = 2},
        Heads{.shape = of_64, .ring = 4, .cache = CacheFormat::fp8},
        Heads{.shape = of_256, .ring = 2, .cache = CacheFormat::fp8}})
    for (const int64_t window : {0, 700}) {
      AttendCase c = on_tensor_cores({});
      c.shape = shape, c.cache = cache;
      c.ordered = true, c.ordered_ring = ring;
      c.window = window;
      c.table_stride = 33;
      c.build({{1, 1}, {2, 17}, {3, 333}, {4, 512}, {5, 1000}, {6, 1025}, {7, 1600}, {8, 2111}}, 5);
      std::vector<bf16> first;
      const auto expect_same = [&](int64_t splits, int64_t warps, bool clusters) {
        c.shape.splits = splits, c.flash_warps = warps, c.clusters = clusters;
        if (c.flash().shared_bytes() > machine().device.properties().shared_optin_bytes) return;
        const std::vector<bf16> y = c.run();
        if (first.empty()) {
          first = y;
          for (int64_t m = 0; m < c.shape.rows; ++m) c.expect_row(y, m);
        }
        for (int64_t m = 0; m < c.shape.rows; ++m)
          EXPECT_TRUE(same_bits(c.result(y, m), c.result(first, m)))
              << "row " << m << ", " << splits << " splits of " << warps << " warps";
      };
      expect_same(1, 4, false);
      if (every_way) expect_same(1, kSections, false);
      if (machine().device.properties().cluster_blocks() < kSections) continue;
      expect_same(2, 4, true);
      if (every_way) expect_same(4, 2, true);
      expect_same(kSections, 4, true);
    }
}

TEST(AttendRows, BeyondTheLiveOnesStoreNothingAndFollowNoTable) {
  for (AttendCase c : llama_cases()) {
    SCOPED_TRACE(name_of(c));
    c.build({{1, 70}, {2, 300}, {3, 1}, {4, 64}, {5, 17}}, 3);
    const std::vector<bf16> full = c.run(), before = poisoned<bf16>(full.size());
    for (int32_t n_live = 1; n_live <= 5; ++n_live) {
      AttendCase partial = c;
      partial.n_live = n_live;
      for (int64_t m = n_live; m < 5; ++m) {
        partial.positions[c.at(m)] = m % 2 == 0 ? -1 : 1 << 30;
        std::fill_n(partial.q.begin() + m * 8 * 64, 8 * 64, kNaN);
      }
      const std::vector<bf16> y = partial.run();
      for (int64_t m = 0; m < 5; ++m) {
        EXPECT_TRUE(same_bits(c.result(y, m), c.result(m < n_live ? full : before, m))) << n_live << " live, row " << m;
        const int64_t padding = m * c.y_stride() + 8 * 64;
        EXPECT_TRUE(
            same_bits(row_of(y, padding, 1, AttendCase::kPadding), row_of(before, padding, 1, AttendCase::kPadding)));
      }
    }
  }
}

TEST(AttendRows, HaveTheSameBitsWhenRunAgainIntoTheSameBuffers) {
  for (AttendCase c : {llama_case(), attend_case(14, 2, 96, 33), on_tensor_cores(attend_case(14, 2, 96, 33)),
                       in_cluster(attend_case(14, 2, 96, 16))}) {
    c.build({{1, 1000}, {2, 129}, {3, 16}}, 4);
    EXPECT_TRUE(same_bits(c.run(1), c.run(3)));
  }
}

// Scores some hundreds apart: the largest takes all, and nothing overflows.
TEST(AttendRows, AgreeWithTheReferenceWhenScoresAreHuge) {
  for (AttendCase c : {llama_case(), attend_case(8, 1, 64, 64), on_tensor_cores(llama_case()), in_cluster(llama_case()),
                       in_fp8(in_cluster(llama_case()))}) {
    c.query_size = 600.0;
    c.build({{1, 1}, {2, 40}, {3, 300}, {4, 1000}}, 5);
    const std::vector<bf16> y = c.run();
    for (int64_t m = 0; m < c.shape.rows; ++m) c.expect_row(y, m);
  }
}

TEST(AttendRows, AreTheMeanOfTheValuesWhenScoresAreEqual) {
  for (AttendCase c : llama_cases()) {
    SCOPED_TRACE(name_of(c));
    c.query_size = 0.0;
    c.build({{1, 1}, {2, 17}, {3, 300}}, 6);
    const std::vector<bf16> y = c.run();
    for (int64_t m = 0; m < c.shape.rows; ++m) c.expect_row(y, m);
  }
}

// Windows and lengths around each other, a split's granule of 16, and a page of 64. What lies outside is NaN.
TEST(AttendRows, AttendToTheKeysOfTheirWindowAndNoOthers) {
  for (AttendCase c :
       {llama_case(), attend_case(16, 1, 256, 64), attend_case(3, 1, 20, 3), on_tensor_cores(llama_case()),
        on_tensor_cores(attend_case(3, 1, 20, 3)), in_cluster(llama_case()), in_fp8(in_cluster(llama_case())),
        in_fp8(on_tensor_cores(attend_case(3, 1, 20, 3)))})
    for (const int64_t window : {1, 2, 15, 16, 17, 63, 64, 65, 512}) {
      SCOPED_TRACE(name_of(c) + ", window " + std::to_string(window));
      std::vector<AttendRow> rows;
      for (const int64_t length : {1, 63, 64, 65, 130, 1024}) rows.push_back({rows.size(), length});
      for (const int64_t around : {-1, 0, 1}) rows.push_back({rows.size(), std::max<int64_t>(window + around, 1)});
      c.window = window;
      c.build(rows, 8);
      for (int64_t m = 0; m < c.shape.rows; ++m)
        for (int64_t key = 0; key < c.oldest(c.rows[c.at(m)]); ++key)
          for (const int value : {0, 1})
            for (int64_t head = 0; head < c.shape.kv_heads; ++head)
              std::fill_n(c.pool.begin() + c.row_index(m, value, head, key), c.padded(), to_bf16(kNaN));
      const std::vector<bf16> y = c.run();
      for (int64_t m = 0; m < c.shape.rows; ++m) c.expect_row(y, m);
      if (HasFatalFailure()) return;
    }
}

// The key at q - W changes nothing, not a bit; the one at q - W + 1 changes the row.
TEST(AttendRows, ChangeWithTheOldestKeyOfTheirWindowAndNotWithTheOneBefore) {
  for (const int64_t window : {1, 16, 63, 64, 65})
    for (const int64_t length : {window + 1, int64_t{128}, int64_t{129}, int64_t{300}})
      for (AttendCase c : llama_cases()) {
        c.window = window;
        c.build({{1, length}}, 9);
        const std::vector<bf16> expected = c.run();
        const auto with_changed = [&](int64_t key) {
          AttendCase changed = c;
          for (const int value : {0, 1})
            for (int64_t head = 0; head < c.shape.kv_heads; ++head)
              for (int64_t d = 0; d < c.shape.head_dim; ++d)
                changed.pool[c.at(c.pool_index(0, value, head, key, d))] = cached(3 * noise(77, c.at(d)), c.cache);
          return changed.run();
        };
        const int64_t q = length - 1;
        EXPECT_TRUE(same_bits(with_changed(q - window), expected)) << "window " << window << ", length " << length;
        EXPECT_FALSE(same_bits(with_changed(q - window + 1), expected)) << "window " << window << ", length " << length;
      }
}

TEST(AttendRows, KeepNaNAndInfinityToThemselves) {
  for (AttendCase c : llama_cases()) {
    SCOPED_TRACE(name_of(c));
    c.build({{1, 200}, {2, 200}, {3, 200}, {4, 200}}, 7);
    const std::vector<bf16> expected = c.run();
    c.pool[c.at(c.pool_index(1, 0, 0, 150, 0))] = to_bf16(kNaN);  // a key of row 1
    // One element of a value of row 3; FP8 has no infinity.
    c.pool[c.at(c.pool_index(3, 1, 1, 10, 5))] = to_bf16(c.cache == CacheFormat::fp8 ? kNaN : kInfinity);
    const std::vector<bf16> y = c.run();
    for (const int64_t m : {0, 2}) EXPECT_TRUE(same_bits(c.result(y, m), c.result(expected, m))) << m;
    for (int64_t i = 0; i < 8 * 64; ++i) {
      const bool first_kv_head = i < 4 * 64, infinite = i >= 4 * 64 && i % 64 == 5;
      EXPECT_EQ(std::isnan(value_of(c.result(y, 1)[c.at(i)])), first_kv_head) << i;
      EXPECT_EQ(std::isfinite(value_of(c.result(y, 3)[c.at(i)])), !infinite) << i;
    }
  }
}

}  // namespace
}  // namespace nodewright::test::attend_test
