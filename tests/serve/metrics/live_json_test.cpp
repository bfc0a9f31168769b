// What /live tells before there is an engine and after outputs have ended. With an engine: tests/serve/page.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "serve/metrics/serve_metrics.h"

namespace nodewright {
namespace {

using Json = nlohmann::json;

TEST(LiveJson, BeforeThereIsAModelItsStateIsTold) {
  const ServeMetrics metrics("demo");
  const Json live = Json::parse(metrics.live_json("loading"));
  EXPECT_EQ(live["state"], "loading");
  EXPECT_TRUE(live["model"].is_null());
  EXPECT_EQ(live["requests"]["running"], 0);
  EXPECT_EQ(live["graphs"]["buckets"], Json::array());
  EXPECT_TRUE(live["recent"]["between_tokens"]["median_ms"].is_null());
}

TEST(LiveJson, TheCardAndTimesAreThoseThatWereTold) {
  ServeMetrics metrics("demo");
  metrics.serves({.name = "dem\xff",
                  .device = "a card",
                  .context = 4096,
                  .rows = 64,
                  .buckets = {1, 2},
                  .chats = true,
                  .sampling = {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f}});
  metrics.first_token(0.5);
  metrics.more_tokens(0.004, 2);  // two tokens of one step
  metrics.more_tokens(0.008, 1);
  metrics.ended(EndReason::cancelled, {.tokens = 4});
  const Json live = Json::parse(metrics.live_json("ready"));
  EXPECT_EQ(live["model"]["name"], "dem\xEF\xBF\xBD");  // no bytes that are no text
  EXPECT_EQ(live["model"]["device"], "a card");
  EXPECT_EQ(live["model"]["context"], 4096);
  EXPECT_TRUE(live["model"]["chat"]);
  EXPECT_FALSE(live["model"]["tokenizer"]);
  EXPECT_EQ(live["model"]["defaults"],
            Json({{"temperature", 0.8}, {"top_p", 0.95}, {"top_k", 40}, {"min_p", 0.0}, {"seed", nullptr}}));
  EXPECT_EQ(live["graphs"]["buckets"], Json({1, 2}));
  EXPECT_EQ(live["requests"]["ended"]["abort"], 1);
  EXPECT_EQ(live["recent"]["first_token"], Json({{"count", 1}, {"median_ms", 500.0}, {"p99_ms", 500.0}}));
  EXPECT_EQ(live["recent"]["between_tokens"], Json({{"count", 3}, {"median_ms", 2.0}, {"p99_ms", 8.0}}));
}

TEST(LiveJson, OfSeveralEnginesAddsUpAndHasTheCardOfTheFirst) {
  ServeMetrics first("demo"), second("demo", 1);
  first.serves({.name = "demo", .device = "2 x a card"});
  first.queued(3);
  second.refused();
  second.ended(EndReason::length, {.tokens = 4});
  first.first_token(0.5);
  second.first_token(0.25);
  const std::vector<const ServeMetrics*> both{&first, &second};
  const Json live = Json::parse(ServeMetrics::live_json("ready", both, R"([{"engine": 0}, {"engine": 1}])"));
  EXPECT_EQ(live["model"]["device"], "2 x a card");
  EXPECT_EQ(live["requests"]["waiting"], 3);
  EXPECT_EQ(live["requests"]["refused"], 1);
  EXPECT_EQ(live["requests"]["ended"]["length"], 1);
  EXPECT_EQ(live["recent"]["first_token"], Json({{"count", 2}, {"median_ms", 250.0}, {"p99_ms", 500.0}}));
  EXPECT_EQ(live["replicas"].size(), 2u);
  EXPECT_FALSE(Json::parse(first.live_json("ready")).contains("replicas"));
}

}  // namespace
}  // namespace nodewright
