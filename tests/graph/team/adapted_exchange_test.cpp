// Products whose sums cross the devices with what each row's adapter adds, against the shards on one device, to whose
// parts the host adds it: the same bits, row by row, in tiles, and in a node after the product.
#include "kernels_src/adapters/adapted_exchange.h"

#include <bit>
#include <cmath>

#include "kernels_src/exchange/exchange_add.h"
#include "kernels_src/product/tiles/tile_shape.h"
#include "kernels_src/projection/project_exchange_shape.h"
#include "tests/graph/team/product_shards.h"
#include "tests/kernels/numbers.h"

namespace nodewright {
namespace {

constexpr int64_t kInner = 256, kWidth = 131, kRankOfAdapters = 16;
constexpr float kFactor = 0.22f;
constexpr int32_t kAdapterSlots = 3;

// Which kernel adds: the product's own, in rows or tiles, or exchange_add after it, of packets or in bulk.
enum class Form : uint8_t { rows, tiles, values, bulk };

struct AdaptedCase {
  Form form = Form::rows;
  int64_t rows = 1;
  bool adds = true;

  bool in_product() const { return form == Form::rows || form == Form::tiles; }
  int64_t width() const { return form == Form::bulk ? (kWidth + 7) / 8 * 8 : kWidth; }
  int64_t stride() const { return (width() + 7) / 8 * 8; }  // of the residual, and of what is sent after a product
  std::vector<float> initial() const {
    std::vector<float> values;
    for (int64_t i = 0; i < rows * stride(); ++i) values.push_back(random_value(40, static_cast<uint64_t>(i)));
    return values;
  }
  int64_t live_rows() const { return rows == 1 ? 1 : rows - 1; }  // as of Shards
  // Every fourth row has none.
  int32_t slot(int64_t row) const {
    const int32_t of_row[] = {2, -1, 0, 1};
    return of_row[row % 4];
  }
};

// What the ranks have of adapters: B is the same on all, h is each one's own.
struct AdapterShards {
  AdapterShards(OpenedTeam& opened, const AdaptedCase& of)
      : c(of), all_b(random_bf16(70, kAdapterSlots * slot_elements())) {
    for (size_t rank = 0; rank < opened.devices.size(); ++rank) {
      Device& device = *opened.devices[rank];
      const std::string at = std::to_string(rank);
      h.emplace_back(device, "h" + at, c.rows * kRankOfAdapters);
      b.emplace_back(device, "b" + at, kAdapterSlots * slot_elements());
      ids.emplace_back(device, "ids" + at, c.rows);
      all_h.emplace_back();
      for (int64_t i = 0; i < c.rows * kRankOfAdapters; ++i)
        all_h.back().push_back(random_value(60 + rank, static_cast<uint64_t>(i)));
      h.back().write(all_h.back());
      b.back().write(all_b);
      std::vector<int32_t> slots;
      for (int64_t row = 0; row < c.rows; ++row) slots.push_back(c.slot(row));
      ids.back().write(slots);
    }
  }
  int64_t slot_elements() const { return c.width() * kRankOfAdapters + 8; }
  void declare(GraphBuilder& g, size_t rank) const {
    g.declare(h[rank], {.live_in = true});
    g.declare(ids[rank], {.live_in = true});
    g.declare(b[rank], {.live_in = true}, "weight");
  }
  AdapterIn in(size_t rank) const {
    return {.h = h[rank], .b = b[rank].weight(), .ids = ids[rank], .slot_elements = slot_elements()};
  }
  // `part` of a rank's output n of a row, and what its adapter adds: from the first dimension to the last.
  float added(size_t rank, int64_t row, int64_t n, float part) const {
    if (c.slot(row) < 0) return part;
    float sum = 0;
    for (int64_t j = 0; j < kRankOfAdapters; ++j)
      sum =
          std::fmaf(test::value_of(all_b[static_cast<size_t>(c.slot(row) * slot_elements() + n * kRankOfAdapters + j)]),
                    all_h[rank][static_cast<size_t>(row * kRankOfAdapters + j)], sum);
    return part + sum;
  }

  const AdaptedCase& c;
  std::vector<bf16> all_b;
  std::vector<std::vector<float>> all_h;  // by rank
  std::vector<DeviceArray<float>> h;
  std::vector<DeviceArray<bf16>> b;
  std::vector<DeviceArray<int32_t>> ids;
};

std::vector<Constant> more_constants(const AdaptedCase& c, size_t ranks) {
  return {{"kBias", 1},
          {"kScale", int64_t{std::bit_cast<uint32_t>(kFactor)}},
          {"kRanks", static_cast<int64_t>(ranks)},
          {"kAdds", c.adds ? 1 : 0},
          {"kLeavesGained", 0},
          {"kAdapterRank", kRankOfAdapters}};
}

// As many blocks as the CPU driver has SMs, in one wave.
std::pair<KernelRequest, LaunchShape> product_of(const AdaptedCase& c, const std::string& name, size_t ranks) {
  if (c.form == Form::tiles) {
    TileShape shape{c.rows, kInner, kInner, c.width()};
    shape.keeps_sums = true;
    const int64_t ring = shape.ring(4, 64 << 10);
    return {{"tile_" + name, constants_of(shape.constants(ring), more_constants(c, ranks))},
            shape.launch_shape(4, ring)};
  }
  const MatvecShape shape = project_exchange_shape({c.rows, kInner, kInner, c.width(), 1});
  LaunchShape launch = shape.launch_shape(2);
  launch.grid[0] = 4 / launch.grid[1];
  return {{name, constants_of(shape.constants(), more_constants(c, ranks))}, launch};
}

// The parts of all ranks, rounded to bf16 where they travel in bulk.
std::vector<std::vector<float>> parts_of(OpenedTeam& opened, const AdaptedCase& c) {
  Shards shards(opened, {c.rows, kInner, c.width()}, true);
  auto [request, launch] = product_of(c, "project", 1);
  for (Constant& constant : request.constants)
    if (std::string_view(constant.name) == "kScale") constant.value = 0;
  std::vector<std::vector<float>> parts =
      parts_on_one_device(opened, shards, opened.kernels[0]->kernel<Project>(request, launch));
  if (c.form == Form::bulk)
    for (std::vector<float>& part : parts)
      for (float& value : part) value = static_cast<float>(test::value_of(test::to_bf16(value)));
  return parts;
}

std::vector<float> expected_of(OpenedTeam& opened, const AdaptedCase& c) {
  const std::vector<std::vector<float>> parts = parts_of(opened, c);
  const AdapterShards adapters(opened, c);
  std::vector<float> result = c.initial();
  for (int64_t m = 0; m < c.live_rows(); ++m)
    for (int64_t n = 0; n < c.width(); ++n) {
      volatile float sum = 0;
      for (size_t rank = 0; rank < parts.size(); ++rank) {
        volatile float part = adapters.added(rank, m, n, parts[rank][static_cast<size_t>(m * c.width() + n)]) * kFactor;
        if (c.form == Form::bulk) part = test::value_of(test::to_bf16(part));
        sum = rank == 0 ? part : sum + part;
      }
      float& to = result[static_cast<size_t>(m * c.stride() + n)];
      to = c.adds ? to + sum + sum : sum;
    }
  return result;
}

// What a rank holds of the case, and its two nodes.
class AdaptedRanks {
 public:
  AdaptedRanks(OpenedTeam& opened, const AdaptedCase& c)
      : opened_(opened), c_(c), shards_(opened, {c.rows, kInner, c.width()}, false), adapters_(opened, c) {
    const std::vector<std::vector<float>> parts = parts_of(opened, c);
    for (size_t rank = 0; rank < opened.devices.size(); ++rank) {
      std::vector<float> sent(static_cast<size_t>(c.rows * c.stride()));
      std::vector<bf16> rounded(sent.size());
      for (int64_t m = 0; m < c.live_rows(); ++m)
        for (int64_t n = 0; n < c.width(); ++n) {
          const auto at = static_cast<size_t>(m * c.stride() + n);
          sent[at] = parts[rank][static_cast<size_t>(m * c.width() + n)], rounded[at] = test::to_bf16(sent[at]);
        }
      Device& device = *opened.devices[rank];
      const std::string at = std::to_string(rank);
      residual_.emplace_back(device, "sums" + at, c.rows * c.stride()).write(c.initial());
      sent_.emplace_back(device, "sent" + at, c.rows * c.stride()).write(sent);
      rounded_.emplace_back(device, "rounded" + at, c.rows * c.stride()).write(rounded);
    }
  }

  // Two exchanges, each of which adds the same sums, or leaves them.
  std::vector<std::vector<float>> exchanged() {
    ExchangeMemory memory(*opened_.team, "sums", {.packets = values(), .most = 2, .bulk = values()});
    TeamGraph graph(memory, plan_team(memory, "products", [&](GraphBuilder& g, TeamRank& rank) {
                      const size_t r = rank.index();
                      shards_.declare(g, r);
                      adapters_.declare(g, r);
                      g.declare(residual_[r], {.live_in = true, .live_out = true});
                      g.declare(sent_[r], {.live_in = true});
                      g.declare(rounded_[r], {.live_in = true});
                      for (const char* name : {"out", "down"})
                        c_.in_product() ? launch_product(g, rank, name) : launch_sum(g, rank, name);
                    }));
    graph.launch(*opened_.streams);
    opened_.streams->synchronize();
    std::vector<std::vector<float>> results;
    for (size_t rank = 0; rank < residual_.size(); ++rank)
      results.push_back(residual_[rank].read(opened_.streams->rank(rank)));
    return results;
  }

 private:
  uint64_t values() const { return static_cast<uint64_t>(c_.rows * c_.width()); }

  void launch_product(GraphBuilder& g, TeamRank& rank, const char* name) {
    const size_t r = rank.index();
    const auto [request, launch] = product_of(c_, "adapted_project_exchange", rank.size());
    AdaptedProjectExchange args{.of = {.from = {shards_.x[r], kInner},
                                       .w = {shards_.weight[r].weight(), shards_.bias[r].weight(), c_.width()},
                                       .to = {.stride = c_.stride()},
                                       .n_live = shards_.live[r],
                                       .exchange = rank.exchange(values())},
                                .adapter = adapters_.in(r)};
    if (c_.adds)
      args.of.to.residual = residual_[r];
    else
      args.of.to.sum = residual_[r];
    g.launch(name, opened_.kernels[r]->kernel<AdaptedProjectExchange>(request, launch), args);
  }

  void launch_sum(GraphBuilder& g, TeamRank& rank, const char* name) {
    const size_t r = rank.index();
    std::vector<Constant> constants = more_constants(c_, rank.size());
    for (Constant& constant : constants)
      if (std::string_view(constant.name) == "kBias") constant.value = 0;  // it is in what is sent
    const bool bulk = c_.form == Form::bulk;
    constants.push_back({"kBulk", bulk ? 1 : 0});
    constants.push_back({"kChosen", 0});
    AdaptedExchangeAdd args{.of = {.own = {.n_live = shards_.live[r], .cols = c_.width()},
                                   .to = {.stride = c_.stride()},
                                   .exchange = bulk ? rank.bulk_exchange(values()) : rank.exchange(values())},
                            .adapter = adapters_.in(r)};
    if (bulk)
      args.of.own.y_bf16 = rounded_[r];
    else
      args.of.own.y = sent_[r];
    if (c_.adds)
      args.of.to.residual = residual_[r];
    else
      args.of.to.sum = residual_[r];
    const auto ranks = static_cast<unsigned>(rank.size());
    const LaunchShape launch = bulk ? exchange_bulk_shape(values(), ranks, 4, true)
                                    : exchange_add_shape(static_cast<unsigned>(c_.rows),
                                                         static_cast<unsigned>(c_.width()), ranks, 4, false, true);
    g.launch(name, opened_.kernels[r]->kernel<AdaptedExchangeAdd>({"adapted_exchange_add", constants}, launch), args);
  }

  OpenedTeam& opened_;
  const AdaptedCase& c_;
  Shards shards_;
  AdapterShards adapters_;
  std::vector<DeviceArray<float>> residual_, sent_;
  std::vector<DeviceArray<bf16>> rounded_;
};

const AdaptedCase kAdaptedCases[] = {
    {.form = Form::rows, .rows = 1},
    {.form = Form::rows, .rows = 16},
    {.form = Form::tiles, .rows = 8},
    {.form = Form::tiles, .rows = 16, .adds = false},
    {.form = Form::values, .rows = 4},
    {.form = Form::bulk, .rows = 16},
    {.form = Form::bulk, .rows = 8, .adds = false},
};

void compare_adapted(OpenedTeam& opened, const AdaptedCase& c) {
  SCOPED_TRACE("form " + std::to_string(static_cast<int>(c.form)) + ", " + std::to_string(c.rows) + " rows");
  const std::vector<float> expected = expected_of(opened, c);
  ASSERT_NE(expected, c.initial());
  const std::vector<std::vector<float>> results = AdaptedRanks(opened, c).exchanged();
  for (size_t rank = 0; rank < results.size(); ++rank)
    ASSERT_EQ(expected, results[rank]) << "rank " << rank << " of " << results.size();
}

TEST(AdaptedExchangeSweepOnCpuDriver, HasTheBitsOfItsShardsAndWhatTheAdaptersAdd) {
  for (const int ranks : {2, 4})
    for (const CpuSchedule schedule : {CpuSchedule::forward, CpuSchedule::seeded}) {
      CpuDriverOptions options;
      options.schedule = schedule;
      options.check_accesses = ranks == 2 && schedule == CpuSchedule::seeded;
      OpenedTeam opened(ranks, options);
      for (const AdaptedCase& each : kAdaptedCases) compare_adapted(opened, each);
    }
}

TEST(TwoDevicesAdaptedExchange, HasTheBitsOfItsShardsAndWhatTheAdaptersAdd) {
  OpenedTeam opened;
  for (const AdaptedCase& each : kAdaptedCases) compare_adapted(opened, each);
}

}  // namespace
}  // namespace nodewright
