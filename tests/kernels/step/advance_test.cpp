// advance: what every row chose is delivered, and what the step after finds is the live rows that have not ended, each
// with all that was said about it, at the front and in any order.
#include "kernels_src/step/advance.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/kernels/numbers.h"
#include "tests/kernels/one_node.h"

namespace nodewright::test::advance_test {
namespace {

constexpr int32_t kMostSteps = 4;

// One row, as the host speaks of it.
struct Row {
  int32_t position, sequence, top_k, output_index, left;
  float temperature, min_p, top_p;
  uint64_t seed;
  std::vector<int32_t> stop_ids;
  bool operator==(const Row&) const = default;
};

Row some_row(int64_t i) {
  const auto n = static_cast<int32_t>(i);
  return {.position = 10 * n + 1,
          .sequence = 1000 - n,
          .top_k = n % 7,
          .output_index = 3 * n,
          .left = 2 + n % 3,
          .temperature = 0.5f + static_cast<float>(n),
          .min_p = 0.01f * static_cast<float>(n),
          .top_p = 1.0f / static_cast<float>(n + 1),
          .seed = 0x123456789abcdefull * static_cast<uint64_t>(n + 1),
          .stop_ids = std::vector<int32_t>(kMostStopIds, -1)};
}

// Every field of `rows`, one after the other.
template <class T, class Field>
std::vector<T> column(const std::vector<Row>& rows, Field Row::*field) {
  std::vector<T> values;
  for (const Row& row : rows) {
    if constexpr (std::is_same_v<Field, std::vector<int32_t>>)
      values.insert(values.end(), (row.*field).begin(), (row.*field).end());
    else
      values.push_back(row.*field);
  }
  return values;
}

struct Result {
  std::map<int32_t, Row> live;  // by the caller's row
  std::vector<int32_t> delivered, tokens;
  int32_t n_live = 0, n_sampled = 0, steps_done = 0;
  uint32_t again = 0;
};

// `chosen`: of the live rows; after them lie others, which may not be touched.
Result run(const std::vector<Row>& rows, const std::vector<int32_t>& chosen, int32_t step) {
  const size_t count = rows.size();
  std::vector<int32_t> all_chosen = chosen, caller_rows;
  all_chosen.resize(count, -1);
  for (size_t i = 0; i < count; ++i) caller_rows.push_back(static_cast<int32_t>(count - 1 - i));
  const auto live = static_cast<int32_t>(chosen.size());
  const Guarded<int32_t> choices("chosen", all_chosen), n_live("n_live", std::vector{live}),
      n_sampled("n_sampled", std::vector{live}), steps_done("steps_done", std::vector{step}),
      tokens("tokens", std::vector<int32_t>(count, 5)), positions("positions", column<int32_t>(rows, &Row::position)),
      sequences("sequences", column<int32_t>(rows, &Row::sequence)), top_k("top_k", column<int32_t>(rows, &Row::top_k)),
      output_index("output_index", column<int32_t>(rows, &Row::output_index)),
      left("left", column<int32_t>(rows, &Row::left)), caller_row("caller_row", caller_rows),
      stop_ids("stop_ids", column<int32_t>(rows, &Row::stop_ids)),
      delivered("delivered", std::vector<int32_t>(kMostSteps * count, -2));
  const Guarded<float> temperature("temperature", column<float>(rows, &Row::temperature)),
      min_p("min_p", column<float>(rows, &Row::min_p)), top_p("top_p", column<float>(rows, &Row::top_p));
  const Guarded<uint64_t> seed("seed", column<uint64_t>(rows, &Row::seed));
  const auto kernel = machine().kernels.kernel<Advance>("advance", advance_shape(static_cast<unsigned>(count)));
  GraphBuilder g(machine().device, "advance");
  const ConditionHandle condition = g.condition("again", 7);
  const Advance args{.chosen = choices,
                     .n_live = n_live,
                     .n_sampled = n_sampled,
                     .steps_done = steps_done,
                     .tokens = tokens,
                     .positions = positions,
                     .sequences = sequences,
                     .temperature = temperature,
                     .min_p = min_p,
                     .top_k = top_k,
                     .top_p = top_p,
                     .seed = seed,
                     .output_index = output_index,
                     .left = left,
                     .caller_row = caller_row,
                     .stop_ids = stop_ids,
                     .delivered = delivered,
                     .again = condition,
                     .rows = static_cast<int32_t>(count),
                     .most_steps = kMostSteps};
  for_each_field(args, [&]<class F>(const FieldInfo& info, const F& field) {
    if constexpr (requires { field.count; })
      g.declare({std::string(info.name), reinterpret_cast<uint64_t>(field.data),
                 field.count * sizeof(typename F::element), "activation"},
                {.live_in = true, .live_out = true});
  });
  // What obeys the condition tells the host what it was.
  Result result;
  g.launch("advance", kernel, args);
  const DeviceBuffer told(machine().device, "told", sizeof(uint32_t));
  g.declare(told, {.live_in = true, .live_out = true});
  g.if_else(
      "told", condition, [&](GraphBuilder& body) { body.fill("yes", view_of<uint32_t>(told), 1u); },
      [&](GraphBuilder& body) { body.fill("no", view_of<uint32_t>(told), 0u); });
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  run_eager(plan, machine().stream);
  machine().stream.synchronize();

  read_view<uint32_t>(machine().device, {&result.again, 1}, view_of<uint32_t>(told), "told");
  result.delivered = delivered.read(), result.tokens = tokens.read();
  result.n_live = n_live.read()[0], result.n_sampled = n_sampled.read()[0], result.steps_done = steps_done.read()[0];
  const auto at = [](const auto& values, size_t i, size_t width) {
    return std::vector<int32_t>(values.begin() + static_cast<long>(i * width),
                                values.begin() + static_cast<long>((i + 1) * width));
  };
  const auto stop = stop_ids.read(), callers = caller_row.read();
  const auto position = positions.read(), sequence = sequences.read(), k = top_k.read(), index = output_index.read(),
             lefts = left.read();
  const auto t = temperature.read(), m = min_p.read(), p = top_p.read();
  const auto seeds = seed.read();
  for (size_t i = 0; i < count; ++i) {
    if (i >= chosen.size()) {
      EXPECT_EQ(position[i], rows[i].position) << "padding";
    }
    if (static_cast<int32_t>(i) >= result.n_live) continue;
    result.live[callers[i]] = {position[i], sequence[i], k[i], index[i], lefts[i],
                               t[i],        m[i],        p[i], seeds[i], at(stop, i, kMostStopIds)};
  }
  return result;
}

// The caller's rows, in the order in which the rows lie.
int32_t caller_of(size_t i, size_t count) { return static_cast<int32_t>(count - 1 - i); }

// Ends the rows that `ends` names and looks at everything.
template <class Ends>
void check(size_t count, size_t live, Ends&& ends) {
  SCOPED_TRACE(std::to_string(live) + " live rows of " + std::to_string(count));
  std::vector<Row> rows;
  std::vector<int32_t> chosen;
  for (size_t i = 0; i < count; ++i) {
    rows.push_back(some_row(static_cast<int64_t>(i)));
    if (i < live) chosen.push_back(static_cast<int32_t>(40 + i));
    if (i >= live || !ends(i)) {
      rows[i].stop_ids[i % kMostStopIds] = 39;  // of no row
      continue;
    }
    if (i % 3 == 0) rows[i].left = 1;
    if (i % 3 == 1) rows[i].stop_ids[i % kMostStopIds] = chosen[i];
    if (i % 3 == 2) chosen[i] = -1;
  }
  const Result result = run(rows, chosen, 2);

  std::vector<int32_t> delivered(kMostSteps * count, -2);
  std::map<int32_t, Row> expected;
  for (size_t i = 0; i < live; ++i) {
    delivered[2 * count + static_cast<size_t>(caller_of(i, count))] = chosen[i];
    if (ends(i)) continue;
    Row row = rows[i];
    ++row.position, ++row.output_index, --row.left;
    expected[caller_of(i, count)] = row;
  }
  EXPECT_EQ(result.delivered, delivered);
  EXPECT_EQ(result.n_live, static_cast<int32_t>(expected.size()));
  EXPECT_EQ(result.n_sampled, result.n_live);
  EXPECT_EQ(result.steps_done, 3);
  EXPECT_EQ(result.again, expected.empty() ? 0u : 1u);
  EXPECT_TRUE(result.live == expected);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(result.tokens[i], -1);
}

TEST(Advance, MovesLiveRowsIntoThePlacesOfThoseThatEnd) {
  for (const auto& [count, live] : {std::pair<size_t, size_t>{1, 1}, {5, 5}, {8, 6}, {300, 299}}) {
    check(count, live, [](size_t) { return false; });
    check(count, live, [](size_t) { return true; });
    check(count, live, [](size_t i) { return i == 0; });
    check(count, live, [last = live - 1](size_t i) { return i == last; });
    check(count, live, [](size_t i) { return i % 2 == 1; });
    check(count, live, [half = live / 2](size_t i) { return i < half; });
    check(count, live, [](size_t i) { return i * 2654435761u % 11 < 4; });
  }
}

TEST(Advance, DoesNothingWithoutALiveRow) {
  const Result result = run({some_row(0), some_row(1)}, {}, 0);
  EXPECT_EQ(result.n_live, 0);
  EXPECT_EQ(result.steps_done, 1);
  EXPECT_EQ(result.again, 0u);
  EXPECT_EQ(result.delivered, std::vector<int32_t>(kMostSteps * 2, -2));
}

TEST(Advance, EndsALoopWithItsLastStep) {
  EXPECT_EQ(run({some_row(0)}, {40}, kMostSteps - 2).again, 1u);
  EXPECT_EQ(run({some_row(0)}, {40}, kMostSteps - 1).again, 0u);
}

}  // namespace
}  // namespace nodewright::test::advance_test
