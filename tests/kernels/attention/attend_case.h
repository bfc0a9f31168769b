// Attention for tests: rows whose queries, keys and values depend on their number only, laid over a scattered pool that
// is NaN wherever no row has written, and softmax in double with a bound on what fp32 may differ by.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels_src/attention/attend.h"
#include "kernels_src/attention/flash_decode.h"
#include "kernels_src/attention/kv_pages.h"
#include "models/lowering/lowering.h"
#include "tests/kernels/attention/block_tables.h"
#include "tests/kernels/attention/cached_elements.h"
#include "tests/kernels/numbers.h"
#include "tests/kernels/one_node.h"

namespace nodewright::test {

struct AttendRow {
  uint64_t number;
  int64_t length;  // keys, the row's own included
};

struct AttendCase {
  static constexpr int64_t kPageSize = 64, kPadding = 8;  // kPadding: elements after a row of y

  AttendShape shape;             // rows are set by build
  bool on_tensor_cores = false;  // flash_decode instead of attend
  bool clusters = false;         // its splits, if they are several, meet in shared memory
  int64_t flash_warps = 4;
  bool ordered = false;  // FlashDecodeShape's
  int64_t ordered_ring = FlashDecodeShape::kMostRing;
  int64_t table_stride = 16;
  int64_t window = 0;
  CacheFormat cache = CacheFormat::bf16;
  float key_scale = 1, value_scale = 1;  // of FP8
  double query_size = 6.0;               // scores of standard deviation 2
  float cap = 0;                         // of scores; 0: none
  std::vector<AttendRow> rows;
  int32_t n_live = 0;

  std::vector<float> q;
  std::vector<bf16> pool;  // values of its elements, before their scale
  std::vector<int32_t> positions, table;

  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  int64_t y_stride() const { return shape.heads * shape.head_dim + kPadding; }
  float scale() const {
    return static_cast<float>(M_LOG2E / std::sqrt(static_cast<double>(shape.head_dim))) * key_scale;
  }
  int64_t padded() const { return padded_head_dim(shape.head_dim, cache); }

  FlashDecodeShape flash() const {
    return {.rows = shape.rows,
            .heads = shape.heads,
            .kv_heads = shape.kv_heads,
            .head_dim = shape.head_dim,
            .splits = shape.splits,
            .warps = flash_warps,
            .requested = ordered ? ordered_ring : 0,
            .cluster_blocks = clusters ? machine().device.properties().cluster_blocks() : 1,
            .ordered = ordered,
            .cache = cache};
  }

  // As the model specialises them (models/lowering/decoder_kernels.cpp).
  KernelRequest request() const {
    const std::vector<Constant> heads = {{"kHeads", shape.heads},
                                         {"kKvHeads", shape.kv_heads},
                                         {"kHeadDim", shape.head_dim},
                                         {"kPaddedHeadDim", padded()},
                                         {"kCacheFormat", static_cast<int64_t>(cache)},
                                         {"kPageSize", kPageSize},
                                         cap_constant("kScoreCap", static_cast<float>(M_LOG2E * cap))};
    if (on_tensor_cores) return {"flash_decode", constants_of(flash().constants(), heads)};
    return {"attend", constants_of(shape.constants(), heads)};
  }

  float query(const AttendRow& row, int64_t head, int64_t d) const {
    return static_cast<float>(query_size * noise(1000 + row.number, at(head * shape.head_dim + d)));
  }
  // `value`: 0 = key, 1 = value
  bf16 stored(const AttendRow& row, int value, int64_t kv_head, int64_t position, int64_t d) const {
    if (d >= shape.head_dim) return {0};
    const int64_t index = ((value * shape.kv_heads + kv_head) * 4096 + position) * shape.head_dim + d;
    return cached(noise(2000 + row.number, at(index)), cache);
  }

  // Deals pages to the rows in an order that `scatter` chooses, and writes what the rows own.
  void build(std::vector<AttendRow> with_rows, uint64_t scatter) {
    rows = std::move(with_rows);
    shape.rows = static_cast<int64_t>(rows.size());
    n_live = static_cast<int32_t>(rows.size());
    int64_t pages = 3;  // that nobody owns
    for (const AttendRow& row : rows) pages += (row.length + kPageSize - 1) / kPageSize;
    std::vector<int32_t> order(at(pages));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return random_bits(scatter, static_cast<uint64_t>(a)) < random_bits(scatter, static_cast<uint64_t>(b));
    });

    q.clear();
    positions.clear();
    table.assign(at(shape.rows * table_stride), -1);  // not to be followed beyond the length
    pool = poisoned<bf16>(at(pages * page_elements()));
    size_t next = 0;
    for (int64_t m = 0; m < shape.rows; ++m) {
      const AttendRow& row = rows[at(m)];
      positions.push_back(static_cast<int32_t>(row.length - 1));
      for (int64_t i = 0; i < shape.heads * shape.head_dim; ++i)
        q.push_back(query(row, i / shape.head_dim, i % shape.head_dim));
      for (int64_t page = 0; page * kPageSize < row.length; ++page) table[at(m * table_stride + page)] = order[next++];
      for (int64_t position = 0; position < row.length; ++position)
        for (int64_t head = 0; head < shape.kv_heads; ++head)
          for (const int value : {0, 1})
            for (int64_t d = 0; d < padded(); ++d)
              pool[at(pool_index(m, value, head, position, d))] = stored(row, value, head, position, d);
    }
  }

  // The rows' sequences, the live ones in another order.
  std::vector<int32_t> sequences() const {
    std::vector<int32_t> numbers;
    for (int32_t m = 0; m < static_cast<int32_t>(rows.size()); ++m)
      numbers.push_back(m < n_live ? n_live - 1 - m : 1 << 30);
    return numbers;
  }
  int64_t page_elements() const { return 2 * shape.kv_heads * kPageSize * padded(); }
  int64_t row_index(int64_t m, int value, int64_t kv_head, int64_t position) const {
    const int64_t page = table[at(m * table_stride + position / kPageSize)];
    return page * page_elements() + ((value * shape.kv_heads + kv_head) * kPageSize + position % kPageSize) * padded();
  }
  int64_t pool_index(int64_t m, int value, int64_t kv_head, int64_t position, int64_t d) const {
    return row_index(m, value, kv_head, position) +
           kv_in_row(static_cast<int>(position % kPageSize), static_cast<int>(d), padded(), cache_piece(cache));
  }

  // [rows, y_stride] after one launch, or after `launches` into the same buffers.
  std::vector<bf16> run(int launches = 1) const {
    const Guarded<float> queries("q", q),
        partials("partials", at(shape.rows * shape.head_tiles() * shape.splits * shape.partial_floats()));
    const Guarded<bf16> kv("kv", pool_in_memory(pool, cache)), y("y", at(shape.rows * y_stride()));
    const Guarded<int32_t> position_list("positions", positions),
        tables("block_table", tables_of_sequences(table, sequences(), table_stride)),
        live("n_live", std::vector{n_live}), sequence_list("sequences", sequences()),
        arrivals("arrivals", std::vector<int32_t>(at(shape.rows * shape.head_tiles()), 0));
    const auto kernel =
        machine().kernels.kernel<Attend>(request(), on_tensor_cores ? flash().launch_shape() : shape.launch_shape());
    for (int i = 0; i < launches; ++i)
      run_node(kernel, {.q = queries,
                        .kv = kv,
                        .positions = position_list,
                        .sequences = sequence_list,
                        .block_table = tables,
                        .n_live = live,
                        .y = y,
                        .partials = partials,
                        .arrivals = arrivals,
                        .table_stride = table_stride,
                        .y_stride = y_stride(),
                        .window = window,
                        .scale = scale(),
                        .value_scale = value_scale});
    for (const int32_t count : arrivals.read()) EXPECT_EQ(count, 0);
    partials.read();
    return y.read();
  }

  std::span<const bf16> result(const std::vector<bf16>& y, int64_t m) const {
    return row_of(y, m, y_stride(), shape.heads * shape.head_dim);
  }

  int64_t oldest(const AttendRow& row) const { return window > 0 ? std::max<int64_t>(row.length - window, 0) : 0; }

  // Compares a live row with softmax(q k^T scale) v over the keys in its window. What may differ, of a weight: its
  // exponent by the fp32 sums of q k (a product, a chain of 8, the lanes' tree), its power by 2 units, and every later
  // addition by 2^-24. On tensor cores q * scale and a weight are two bf16 each, and differ by 2^-17 of themselves,
  // or two fp16, which differ by less.
  void expect_row(const std::vector<bf16>& y, int64_t m) const {
    const AttendRow& row = rows[at(m)];
    const double slots = static_cast<double>(shape.slots() + shape.splits);
    const double chain = 2.0 * static_cast<double>(row.length) / static_cast<double>(shape.slots()) + 3 * slots + 8;
    for (int64_t head = 0; head < shape.heads; ++head) {
      const int64_t kv_head = head / shape.group();
      std::vector<double> scores(at(row.length)), value(at(shape.head_dim), 0.0), absolute(at(shape.head_dim), 0.0);
      double top = -INFINITY, largest = 0.0, sum = 0.0;
      for (int64_t key = oldest(row); key < row.length; ++key) {
        double score = 0.0, size = 0.0;
        for (int64_t d = 0; d < shape.head_dim; ++d) {
          const float scaled = q[at((m * shape.heads + head) * shape.head_dim + d)] * scale();
          const double product = static_cast<double>(scaled) * value_of(pool[at(pool_index(m, 0, kv_head, key, d))]);
          score += product;
          size += std::abs(product);
        }
        if (cap != 0) score = M_LOG2E * cap * std::tanh(score / (M_LOG2E * cap));
        scores[at(key)] = score;
        top = std::max(top, score);
        largest = std::max(largest, size);
      }
      for (int64_t key = oldest(row); key < row.length; ++key) {
        const double weight = std::exp2(scores[at(key)] - top);
        sum += weight;
        for (int64_t d = 0; d < shape.head_dim; ++d) {
          const double v = value_of(pool[at(pool_index(m, 1, kv_head, key, d))]);
          value[at(d)] += weight * v;
          absolute[at(d)] += weight * std::abs(v);
        }
      }
      const double halves = on_tensor_cores ? 0x1p7 : 0;  // 2^-17, in units of 2^-24
      const double exponent_error = 2 * M_LN2 * (halves + 1 + 8 + std::log2(shape.lanes())) * largest;
      for (int64_t d = 0; d < shape.head_dim; ++d) {
        const double expected = value_scale * value[at(d)] / sum;
        const double arithmetic = 2 * (exponent_error + halves + chain) * 0x1p-24 * value_scale * absolute[at(d)] / sum;
        const double bound = arithmetic + 0x1p-8 * (std::abs(expected) + arithmetic);
        ASSERT_NEAR(value_of(y[at(m * y_stride() + head * shape.head_dim + d)]), expected, bound)
            << "length " << row.length << ", head " << head << ", element " << d << " of " << shape.head_dim;
      }
    }
  }
};

}  // namespace nodewright::test
