// rope_append: rotations against double-precision sines, and the one place of the pool that each row writes.
#include "kernels_src/attention/rope_append.h"

#include <gtest/gtest.h>

#include <map>

#include "kernels_src/residual/norm.h"
#include "tests/kernels/attention/block_tables.h"
#include "tests/kernels/attention/cached_elements.h"
#include "tests/kernels/numbers.h"
#include "tests/kernels/one_node.h"

namespace nodewright::test::rope_append_test {
namespace {

constexpr int64_t kPageSize = 64;

struct Heads {
  int64_t heads, kv_heads, head_dim;
  bool rotate = true, biased = false;
  int64_t head_norm = 0;  // kHeadNorm
  Norm norm = Norm::rms;
  float amplitude = 1;
  CacheFormat cache = CacheFormat::bf16;
  int64_t piece() const { return cache == CacheFormat::fp8 ? 16 : 8; }  // elements of 16 bytes
  int64_t padded() const { return (head_dim + piece() - 1) / piece() * piece(); }
  int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }
  KernelRequest request() const {
    return {"rope_append",
            {{"kHeads", heads},
             {"kKvHeads", kv_heads},
             {"kHeadDim", head_dim},
             {"kPaddedHeadDim", padded()},
             {"kCacheFormat", static_cast<int64_t>(cache)},
             {"kPageSize", kPageSize},
             {"kRotate", rotate ? 1 : 0},
             {"kHeadNorm", head_norm},
             {"kAmplitude", amplitude == 1 ? 0 : 1},
             {"kNorm", static_cast<int64_t>(norm)},
             {"kBias", biased ? 1 : 0}}};
  }
};
constexpr Heads kHeads[] = {{5, 1, 20}, {8, 2, 64}, {9, 3, 96}, {8, 1, 128}, {4, 4, 256}};
// Qwen3, Gemma-3, a group larger than the block has warps, GPT-2, OLMo-2, Phi-3 with a long
// context; Qwen2 and GPT-2 after a library's product; FP8, of which some saturate.
constexpr Heads kHeadsOfFamilies[] = {
    {.heads = 4, .kv_heads = 2, .head_dim = 128, .head_norm = 1},
    {.heads = 4, .kv_heads = 1, .head_dim = 256, .head_norm = 1, .norm = Norm::rms_one_plus},
    {.heads = 9, .kv_heads = 1, .head_dim = 20, .head_norm = 1, .norm = Norm::rms_one_plus},
    {.heads = 3, .kv_heads = 3, .head_dim = 20, .rotate = false},
    {.heads = 6, .kv_heads = 2, .head_dim = 20, .head_norm = 2},
    {.heads = 8, .kv_heads = 8, .head_dim = 128, .head_norm = 2},
    {.heads = 6, .kv_heads = 2, .head_dim = 20, .amplitude = 1.19f},
    {.heads = 9, .kv_heads = 3, .head_dim = 36, .biased = true},
    {.heads = 3, .kv_heads = 3, .head_dim = 20, .rotate = false, .biased = true},
    {.heads = 8, .kv_heads = 2, .head_dim = 64, .cache = CacheFormat::fp8},
    {.heads = 5, .kv_heads = 1, .head_dim = 20, .head_norm = 1, .cache = CacheFormat::fp8},
    {.heads = 3, .kv_heads = 3, .head_dim = 18, .rotate = false, .biased = true, .cache = CacheFormat::fp8}};

size_t at(int64_t i) { return static_cast<size_t>(i); }

// A launch: every row has its own position, table and qkv, which depend on its number alone.
struct RopeCase {
  Heads h;
  std::vector<uint64_t> numbers;                     // [rows]
  std::vector<int32_t> positions, sequences, table;  // [rows], [rows], [rows, table_stride]
  int64_t table_stride, pages;
  int32_t n_live;
  std::vector<float> qkv, frequencies;

  RopeCase(Heads heads, std::vector<uint64_t> row_numbers, std::vector<int32_t> at_positions,
           std::vector<int32_t> page_table, int64_t pool_pages)
      : h(heads),
        numbers(std::move(row_numbers)),
        positions(std::move(at_positions)),
        table(std::move(page_table)),
        table_stride(static_cast<int64_t>(table.size() / positions.size())),
        pages(pool_pages),
        n_live(static_cast<int32_t>(positions.size())),
        qkv(poisoned<float>(positions.size() * at(stride()))) {
    for (int64_t m = 0; m < rows(); ++m) sequences.push_back(static_cast<int32_t>(rows() - 1 - m));
    for (int64_t m = 0; m < rows(); ++m)
      for (int64_t i = 0; i < h.width(); ++i)
        qkv[at(m * stride() + i)] = static_cast<float>(4 * noise(numbers[at(m)], at(i)));
    for (int64_t i = 0; i < h.head_dim / 2; ++i)
      frequencies.push_back(std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(h.head_dim)));
    if (h.amplitude != 1) frequencies.resize(at(h.head_dim), h.amplitude);
  }

  int64_t rows() const { return static_cast<int64_t>(positions.size()); }
  int64_t stride() const { return h.width() + (h.head_dim % 8 == 0 ? 4 : 3); }  // with a gap between two rows
  int64_t page_elements() const { return 2 * h.kv_heads * kPageSize * h.padded(); }

  struct Result {
    std::vector<float> q;
    std::vector<bf16> pool;  // of FP8 the code of each element
  };
  // In FP8 keys reach 5.6 and more, values 4; the largest code times these is 4.5 and 3.5.
  static constexpr float kKeyScale = 0.01f, kValueScale = 0x1p-7f;
  std::vector<bf16> elements_of(const std::vector<bf16>& memory) const {
    if (h.cache == CacheFormat::bf16) return memory;
    std::vector<bf16> codes;
    for (const bf16 two : memory) {
      codes.push_back({static_cast<uint16_t>(two.bits & 0xff)});
      codes.push_back({static_cast<uint16_t>(two.bits >> 8)});
    }
    return codes;
  }
  bf16 element_of(float value, float scale) const {
    return h.cache == CacheFormat::bf16 ? to_bf16(value) : bf16{fp8_code(rounded_to_fp8(value / scale))};
  }
  double value_of_element(bf16 element, double scale) const {
    return h.cache == CacheFormat::bf16 ? value_of(element) : value_of_fp8(static_cast<uint8_t>(element.bits)) * scale;
  }
  size_t pool_count() const { return at(pages * page_elements() * element_bytes(h.cache) / 2); }
  Result run() const {
    const Guarded<float> packed("qkv", qkv), turns("frequencies", frequencies),
        q("q", at(rows() * h.heads * h.head_dim));
    const Guarded<int32_t> position_list("positions", positions), sequence_list("sequences", sequences),
        tables("block_table", tables_of_sequences(table, sequences, table_stride)), live("n_live", std::vector{n_live});
    const Guarded<bf16> kv("kv", pool_count()), q_gains("q_gain", gains(0)), k_gains("k_gain", gains(1));
    const auto kernel = machine().kernels.kernel<RopeAppend>(
        h.request(), rope_append_shape(static_cast<unsigned>(rows()), static_cast<unsigned>(h.heads),
                                       static_cast<unsigned>(h.kv_heads), h.head_dim, h.head_norm));
    RopeAppend args{.qkv = packed,
                    .frequencies = {},
                    .q_gain = {},
                    .k_gain = {},
                    .positions = position_list,
                    .sequences = sequence_list,
                    .block_table = tables,
                    .n_live = live,
                    .q = q,
                    .kv = kv,
                    .qkv_stride = stride(),
                    .table_stride = table_stride,
                    .eps = kEps,
                    .key_scale = kKeyScale,
                    .value_scale = kValueScale};
    if (h.rotate) args.frequencies = turns;
    if (h.head_norm != 0) args.q_gain = q_gains, args.k_gain = k_gains;
    const Guarded<bf16> biases("bias", bias());
    if (h.biased) args.bias = biases;
    run_node(kernel, args);
    return {q.read(), elements_of(kv.read())};
  }

  static constexpr float kEps = 0.5f;  // enough to show
  std::vector<bf16> gains(uint64_t which) const {
    std::vector<bf16> values;
    for (int64_t i = 0; i < strip(which); ++i) values.push_back(to_bf16(1 + 0.5 * noise(40 + which, at(i))));
    return values;
  }
  // Elements that are normed together, of queries (0) or keys.
  int64_t strip(uint64_t which) const {
    return h.head_norm == 2 ? (which == 0 ? h.heads : h.kv_heads) * h.head_dim : h.head_dim;
  }

  std::vector<bf16> bias() const {
    std::vector<bf16> values;
    for (int64_t i = 0; i < h.width(); ++i) values.push_back(to_bf16(noise(50, at(i))));
    return values;
  }

  // Element i of row m, in fp32 with its bias.
  float projected(int64_t m, int64_t i) const {
    const float element = qkv[at(m * stride() + i)];  // a zero keeps its sign
    return h.biased ? element + value_of(bias()[at(i)]) : element;
  }

  // Element `d` of the head that starts at `head` in row m, normed if the family does.
  double normed(int64_t m, int64_t head, int64_t d) const {
    const float* from = qkv.data() + m * stride() + head * h.head_dim;
    if (h.head_norm == 0) return projected(m, head * h.head_dim + d);
    const uint64_t which = head < h.heads ? 0 : 1;
    const int64_t in_kind = which == 0 ? head : head - h.heads, before = h.head_norm == 2 ? in_kind * h.head_dim : 0;
    double squares = 0;
    for (int64_t i = 0; i < strip(which); ++i) squares += std::pow(static_cast<double>(from[i - before]), 2);
    const double gain = value_of(gains(which)[at(before + d)]) + (h.norm == Norm::rms_one_plus ? 1 : 0);
    return from[d] * gain / std::sqrt(squares / static_cast<double>(strip(which)) + kEps);
  }

  // Element `d` of a rotated head that starts at `head` in row m. The angle is one fp32 product by contract; the sine
  // and cosine are good to 2 units of 2^-24 on a GPU (CUDA programming guide, mathematical functions), and two more
  // roundings follow: 2^-22 of |a| + |b| in all.
  struct Rotated {
    double value, bound;
  };
  Rotated rotated(int64_t m, int64_t head, int64_t d) const {
    const int64_t half = h.head_dim / 2, pair = d % half;
    if (!h.rotate) return {normed(m, head, d), 0.0};
    const double a = normed(m, head, pair), b = normed(m, head, pair + half);
    const double angle = static_cast<float>(positions[at(m)]) * frequencies[at(pair)];
    const double value = h.amplitude * (d < half ? a * std::cos(angle) - b * std::sin(angle)
                                                 : b * std::cos(angle) + a * std::sin(angle));
    // The norm's sum, root and products: at most 2^-19 of a head of 256 elements.
    return {value, (h.head_norm != 0 ? 0x1p-19 : 0x1p-21) * (std::abs(a) + std::abs(b))};
  }

  // The pool's layout once more, from the outside in: [pages][key, value][kv_heads][page_size][padded head_dim].
  int64_t slot(int64_t m, int value, int64_t kv_head) const {
    const int64_t page = table[at(m * table_stride + positions[at(m)] / kPageSize)];
    int64_t index = page;
    index = index * 2 + value;
    index = index * h.kv_heads + kv_head;
    index = index * kPageSize + positions[at(m)] % kPageSize;
    return index * h.padded();
  }
  // In its row: pieces of 16 bytes, as many as a power of two, at most 8, divides, change places by the slot's bits.
  int64_t in_row(int64_t m, int64_t d) const {
    const int64_t slot = positions[at(m)] % kPageSize, pieces = h.padded() / h.piece();
    int64_t piece = d / h.piece();
    if (pieces % 8 == 0)
      piece ^= slot % 8;
    else if (pieces % 4 == 0)
      piece ^= slot / 2 % 4;
    else if (pieces % 2 == 0)
      piece ^= slot / 4 % 2;
    return piece * h.piece() + d % h.piece();
  }

  // Compares q and the whole pool.
  void expect(const Result& result) const {
    const std::vector<float> untouched = poisoned<float>(result.q.size());
    for (int64_t m = 0; m < rows(); ++m)
      for (int64_t head = 0; head < h.heads; ++head)
        for (int64_t d = 0; d < h.head_dim; ++d) {
          const int64_t i = (m * h.heads + head) * h.head_dim + d;
          if (m >= n_live) {
            ASSERT_TRUE(same_bits(row_of(result.q, i, 1, 1), row_of(untouched, i, 1, 1))) << "row " << m;
            continue;
          }
          const Rotated expected = rotated(m, head, d);
          ASSERT_NEAR(result.q[at(i)], expected.value, expected.bound)
              << "position " << positions[at(m)] << ", head " << head << ", element " << d;
        }
    std::vector<bf16> pool = elements_of(poisoned<bf16>(pool_count()));
    for (int64_t m = 0; m < n_live; ++m)
      for (int64_t head = 0; head < h.kv_heads; ++head) {
        const int64_t key = slot(m, 0, head), value = slot(m, 1, head);
        for (int64_t d = 0; d < h.padded(); ++d) {
          // Values are rounded once; keys are compared here and then taken over, so that the rest must equal.
          const int64_t source = (h.heads + h.kv_heads + head) * h.head_dim + d;
          const int64_t e = in_row(m, d);
          pool[at(value + e)] = d < h.head_dim ? element_of(projected(m, source), kValueScale) : bf16{0};
          if (d >= h.head_dim) {
            pool[at(key + e)] = bf16{0};
            continue;
          }
          Rotated expected = rotated(m, h.heads + head, d);
          double rounding = 0x1p-8 * (std::abs(expected.value) + expected.bound);
          if (h.cache == CacheFormat::fp8) {
            rounding = std::max(rounding * 0x1p4, 0x1p-10 * kKeyScale);
            expected.value = std::clamp<double>(expected.value, -448 * kKeyScale, 448 * kKeyScale);
          }
          ASSERT_NEAR(value_of_element(result.pool[at(key + e)], kKeyScale), expected.value, expected.bound + rounding)
              << "position " << positions[at(m)] << ", kv head " << head << ", element " << d;
          pool[at(key + e)] = result.pool[at(key + e)];
        }
      }
    for (size_t i = 0; i < pool.size(); ++i)
      ASSERT_EQ(result.pool[i].bits, pool[i].bits) << "pool element " << i << " of " << pool.size();
  }
};

class RopeAppendRows : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::vector<KernelRequest> requests;
    for (const Heads& h : kHeads) requests.push_back(h.request());
    for (const Heads& h : kHeadsOfFamilies) requests.push_back(h.request());
    machine().kernels.prepare(requests);
  }
};

TEST_F(RopeAppendRows, AreRotatedAndStoredAtEveryPositionOfALongContext) {
  std::vector<uint64_t> numbers;
  std::vector<int32_t> positions, table;
  for (int32_t position = 0; position <= 1100; ++position) {
    numbers.push_back(static_cast<uint64_t>(position));
    positions.push_back(position);
    for (int32_t page = 0; page < 18; ++page) table.push_back((page * 7 + 3) % 18);  // scattered over the pool
  }
  const RopeCase c(kHeads[0], numbers, positions, table, 18);
  c.expect(c.run());
}

TEST_F(RopeAppendRows, AreRotatedAndStoredForEveryShapeOfHeads) {
  for (const Heads& h : kHeads) {
    SCOPED_TRACE("head_dim " + std::to_string(h.head_dim));
    const RopeCase c(h, {1, 2, 3, 4, 5}, {0, 63, 64, 100, 127}, {9, -1, 2, -1, 7, 4, 3, 0, 5, 6}, 10);
    c.expect(c.run());
  }
}

TEST_F(RopeAppendRows, AreNormedOrLeftUnrotatedAsTheFamilyDoes) {
  for (const Heads& h : kHeadsOfFamilies) {
    SCOPED_TRACE("head_dim " + std::to_string(h.head_dim) + ", group of " + std::to_string(h.heads / h.kv_heads));
    RopeCase c(h, {1, 2, 3, 4, 5}, {0, 63, 64, 100, 127}, {9, -1, 2, -1, 7, 4, 3, 0, 5, 6}, 10);
    c.n_live = 4;
    c.expect(c.run());
  }
}

// The values of all codes, the middles between them and what is just off those; more than the largest code, and NaN.
TEST_F(RopeAppendRows, BecomeTheNearestCodesOfFp8) {
  const Heads h{.heads = 8, .kv_heads = 8, .head_dim = 128, .rotate = false, .cache = CacheFormat::fp8};
  RopeCase c(h, {1}, {5}, {0}, 1);
  std::vector<float> values = {kNaN, kInfinity, -kInfinity, 1000.0f, -464.0f, 463.0f, 0.0f, 0x1p-10f, 0x1p-30f};
  for (int code = 0; code < 0x7e; ++code) {
    const auto low = static_cast<float>(value_of_fp8(static_cast<uint8_t>(code))),
               high = static_cast<float>(value_of_fp8(static_cast<uint8_t>(code + 1))), middle = (low + high) / 2;
    for (const float v : {low, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 500.0f)}) {
      values.push_back(v);
      values.push_back(-v);
    }
  }
  ASSERT_LE(values.size(), at(h.kv_heads * h.head_dim));
  const int64_t first = (h.heads + h.kv_heads) * h.head_dim;  // of the value heads
  for (size_t i = 0; i < values.size(); ++i) c.qkv[at(first) + i] = values[i] * RopeCase::kValueScale;
  c.expect(c.run());
}

// One fp32 product is off by up to 0.004 radians here; its sine must still be right.
TEST_F(RopeAppendRows, AreRotatedAtLargePositions) {
  std::vector<int32_t> table(2 * 2000, -1);
  table[100000 / kPageSize] = 1;
  table[2000 + 127999 / kPageSize] = 0;
  const RopeCase c(kHeads[1], {1, 2}, {100000, 127999}, table, 2);
  c.expect(c.run());
}

TEST_F(RopeAppendRows, BeyondTheLiveOnesStoreNothingAndFollowNoTable) {
  for (int32_t n_live = 1; n_live <= 3; ++n_live) {
    RopeCase c(kHeads[1], {1, 2, 3}, {5, 70, 1}, {0, -1, 3, 1, 2, -1}, 4);
    c.n_live = n_live;
    for (int32_t m = n_live; m < 3; ++m) {
      c.positions[at(m)] = c.sequences[at(m)] = 1 << 30;
    }
    c.expect(c.run());
  }
}

TEST_F(RopeAppendRows, HaveTheSameBitsInEveryPlace) {
  const Heads h = kHeads[1];
  const RopeCase alone(h, {42}, {77}, {0, 1}, 2);
  const RopeCase::Result expected = alone.run();
  const int64_t width = h.heads * h.head_dim;
  for (int32_t place = 0; place < 4; ++place) {
    std::vector<uint64_t> numbers = {6, 7, 8, 9};
    std::vector<int32_t> positions = {3, 90, 127, 64}, table = {0, 1, 2, 3, 4, 5, 6, 7};
    numbers[at(place)] = 42;
    positions[at(place)] = 77;
    const RopeCase c(h, numbers, positions, table, 8);
    const RopeCase::Result result = c.run();
    EXPECT_TRUE(same_bits(row_of(result.q, place, width, width), row_of(expected.q, 0, width, width)));
    for (const int value : {0, 1})
      for (int64_t head = 0; head < h.kv_heads; ++head)
        EXPECT_TRUE(same_bits(row_of(result.pool, c.slot(place, value, head), 1, h.padded()),
                              row_of(expected.pool, alone.slot(0, value, head), 1, h.padded())));
  }
}

// Values pass through one rounding only: ties, overflow to infinity, subnormals, infinities and NaN.
TEST_F(RopeAppendRows, RoundValuesToTheNearestEvenBf16) {
  const Heads h = kHeads[1];
  RopeCase c(h, {1}, {0}, {0}, 1);
  const float cases[] = {1.0f + 0x1p-8f, 1.0f + 0x1.8p-7f, 1.0f + 0x1.8p-8f, -1.0f - 0x1p-8f, 0x1.fep127f,  0x1.ffp127f,
                         3e38f,          0x1p-133f,        0x1p-134f,        0x1.8p-134f,     0x1.8p-133f,  -0.0f,
                         kInfinity,      -kInfinity,       0x1.fffffep-127f, 0x1.00fffep0f,   0x1.010002p0f};
  const int64_t first = (h.heads + h.kv_heads) * h.head_dim;
  for (size_t i = 0; i < std::size(cases); ++i) c.qkv[at(first) + i] = cases[i];
  c.qkv[at(first) + std::size(cases)] = kNaN;
  const RopeCase::Result result = c.run();
  const int64_t slot = c.slot(0, 1, 0);
  for (size_t i = 0; i < std::size(cases); ++i)
    EXPECT_EQ(result.pool[at(slot) + i].bits, to_bf16(cases[i]).bits) << cases[i];
  EXPECT_TRUE(std::isnan(value_of(result.pool[at(slot) + std::size(cases)])));
}

}  // namespace
}  // namespace nodewright::test::rope_append_test
