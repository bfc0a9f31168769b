// An engine on several devices of which one of the driver's calls fails: how its requests end, and that one which is
// made after it serves.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "runtime/calls/interposer.h"
#include "tests/engine/parity/golden_model.h"

namespace nodewright::test {

struct EndedRequests {
  std::map<RequestId, int> times;  // how often each ended
  std::string message;             // of one that failed
};

// Six requests on an engine that then is gone; `fault` is called once it serves. `scores`: two whose prompts are
// scored.
inline EndedRequests ended_requests(const std::vector<ModelPlace>& places, const std::function<void()>& fault,
                                    bool scores = false) {
  Engine engine(places, {.max_batch = 4, .step_tokens = 4, .buckets = {4}, .max_context = 64, .choices = scores});
  EndedRequests ends;
  for (int i = 0; i < (scores ? 2 : 6); ++i) {
    RequestSpec spec{.prompt = {1, 2, 3 + i}, .max_tokens = 20};
    if (scores) spec.prompt.resize(24, 7);
    ends.times[*engine.submit(std::move(spec), {}, {.prompt_logprobs = scores ? 2 : -1}).id] = 0;
  }
  for (int i = 0; i < 9; ++i) engine.advance();
  fault();
  while (engine.advance()) continue;
  for (const Resolution& resolution : engine.take_resolutions()) {
    ++ends.times[resolution.request];
    if (!resolution.message.empty()) ends.message = resolution.message;
  }
  return ends;
}

inline void expect_served(const std::vector<ModelPlace>& places) {
  Engine engine(places, {.max_batch = 1, .step_tokens = 4, .buckets = {4}, .max_context = 64});
  const RequestId id = *engine.submit({.prompt = {1, 2, 3}, .max_tokens = 5}).id;
  while (engine.advance()) continue;
  const std::vector<Resolution> ends = engine.take_resolutions();
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].request, id);
  EXPECT_EQ(ends[0].outputs.size(), 5u);
}

// The next `calls` calls of engines that serve fail in their turn: each request ends once, with the driver's words, and
// another engine serves as if nothing had been. Returns how many calls of each name failed.
inline std::map<std::string, int> expect_ends_once(const std::vector<ModelPlace>& places, Interposer& interposer,
                                                   size_t calls, bool scores = false) {
  std::map<std::string, int> failed;
  for (size_t call = 0; call < calls; ++call) {
    std::vector<std::string> names;  // from the fault on
    const uint64_t before = interposer.failures_injected();
    const EndedRequests ends = ended_requests(
        places,
        [&] {
          interposer.trace_to([&](std::string_view line) {
            const size_t begin = line.find(' ') + 1;
            names.emplace_back(line.substr(begin, line.find('(') - begin));
          });
          interposer.fail_call(call, CUDA_ERROR_LAUNCH_FAILED);
        },
        scores);
    interposer.trace_to({});
    interposer.fail_none();
    EXPECT_EQ(interposer.failures_injected(), before + 1);
    const std::string& name = names.at(call);
    ++failed[name];
    for (const auto& [request, times] : ends.times) EXPECT_EQ(times, 1) << request << ", " << name;
    // Who goes back to the context of before does not ask whether it could.
    if (name != "cuCtxSetCurrent") {
      EXPECT_NE(ends.message.find("CUDA_ERROR_LAUNCH_FAILED"), std::string::npos) << name << ": " << ends.message;
    }
    expect_served(places);
  }
  return failed;
}

}  // namespace nodewright::test
