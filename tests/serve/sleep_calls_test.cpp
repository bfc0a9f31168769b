// What /sleep and /wake_up ask for, as vLLM's clients write it, and their answers.
#include "serve/sleep_calls.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

namespace nodewright {
namespace {

// The parameter that the query is refused for.
std::string refused(const std::function<void()>& ask) {
  try {
    ask();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400);
    EXPECT_NE(error.message().find(error.param() + " is "), std::string::npos) << error.message();
    return error.param();
  }
  return "";
}

TEST(SleepCalls, AskForALevelAndForWhatBecomesOfOpenRequests) {
  EXPECT_EQ(asked_sleep("").level, SleepLevel::weights_on_host);
  EXPECT_FALSE(asked_sleep("").aborts);
  EXPECT_EQ(asked_sleep("level=1").level, SleepLevel::weights_on_host);
  EXPECT_EQ(asked_sleep("id=7&level=2&mode=wait").level, SleepLevel::weights_dropped);
  EXPECT_FALSE(asked_sleep("level=2&mode=wait").aborts);
  EXPECT_TRUE(asked_sleep("mode=abort&level=1").aborts);
  EXPECT_EQ(asked_sleep("levels=2").level, SleepLevel::weights_on_host);
  for (const char* query : {"level=0", "level=3", "level=", "level", "level=1&level=01", "level=two"})
    EXPECT_EQ(refused([&] { asked_sleep(query); }), "level") << query;
  for (const char* query : {"mode=keep", "mode=", "level=1&mode=Abort"})
    EXPECT_EQ(refused([&] { asked_sleep(query); }), "mode") << query;
}

TEST(SleepCalls, WakeAllOrTheWeightsAlone) {
  using Kind = SleepOrder::Kind;
  EXPECT_EQ(asked_wake("").kind, Kind::wake);
  EXPECT_EQ(asked_wake("tags=weights").kind, Kind::wake_weights);
  EXPECT_EQ(asked_wake("tags=kv_cache").kind, Kind::wake);
  EXPECT_EQ(asked_wake("tags=weights&tags=kv_cache").kind, Kind::wake);
  for (const char* query : {"tags=", "tags=weights,kv_cache", "tags=weights&tags=graphs"})
    EXPECT_EQ(refused([&] { asked_wake(query); }), "tags") << query;
}

TEST(SleepCalls, AreToldTheMemoryThatChangedHands) {
  const auto body = nlohmann::json::parse(sleep_body(
      {.level = SleepLevel::weights_dropped,
       .change = {.free_before = 100, .free_after = 900, .seconds = 0.25, .parts = {{"free_engine", 0.125}}}}));
  EXPECT_EQ(body, nlohmann::json::parse(R"({"is_sleeping": true, "level": 2, "free_bytes": {"before": 100,
                                            "after": 900}, "freed_bytes": 800, "seconds": 0.25,
                                            "seconds_of": {"free_engine": 0.125}})"));
  EXPECT_EQ(nlohmann::json::parse(sleep_body({.change = {.free_before = 900, .free_after = 100}}))["freed_bytes"],
            -800);
  EXPECT_EQ(nlohmann::json::parse(sleep_body({}))["seconds_of"], nlohmann::json::object());
  EXPECT_EQ(is_sleeping_body(SleepLevel::awake), R"({"is_sleeping":false})");
  EXPECT_EQ(is_sleeping_body(SleepLevel::weights_on_host), R"({"is_sleeping":true})");
}

TEST(SleepCalls, HaveAStatusForWhateverElseBecameOfThem) {
  const ApiError now(503, "the server is shutting down");
  EXPECT_EQ(sleep_error({.end = SleepEnd::not_now}, now).status(), 503);
  const ApiError called_off = sleep_error({.end = SleepEnd::called_off}, now);
  EXPECT_EQ(called_off.status(), 409);
  EXPECT_EQ(called_off.type(), "ConflictError");
  const ApiError failed = sleep_error({.end = SleepEnd::failed, .problem = "cannot wake the engine"}, now);
  EXPECT_EQ(failed.status(), 500);
  EXPECT_EQ(failed.message(), "cannot wake the engine");
}

}  // namespace
}  // namespace nodewright
