// What the tests of random plans share: the memory that the plans are made over, and how many there are.
//
//   $NODEWRIGHT_FUZZ_SEED   the first plan's seed, 1 by default
//   $NODEWRIGHT_FUZZ_PLANS  how many plans, 1000 by default; `make fuzz` takes 10 000
//   $NODEWRIGHT_FUZZ_MIXED  0: without foreign kernels, library nodes, memory of the plan and values
#pragma once

#include <cstdlib>

#include "tests/graph/blend_fixture.h"
#include "tests/graph/random_plan.h"

namespace nodewright {

inline unsigned number_from(const char* variable, unsigned otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr || *text == '\0' ? otherwise : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

class PlanFuzzTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 96;

  static void SetUpTestSuite() {
    if (!test::test_device_is_cuda()) spec_ += (spec_ == "cpu" ? ":seed=" : ",seed=") + std::to_string(first_seed());
  }
  static void TearDownTestSuite() {
    BlendTest::TearDownTestSuite();
    spec_ = test::test_device();
  }
  static unsigned first_seed() { return number_from("NODEWRIGHT_FUZZ_SEED", 1); }
  static unsigned plans() { return number_from("NODEWRIGHT_FUZZ_PLANS", 1000); }

  static bool mixed() { return number_from("NODEWRIGHT_FUZZ_MIXED", 1) != 0; }
  RandomPlanMaker maker_of(unsigned seed) { return RandomPlanMaker(machine(), memory_, seed, mixed()); }

  PlanFuzzTest() {
    for (const char* name : {"a", "b", "c"}) memory_.device.push_back(words(name, n));
    memory_.pinned = pinned("p", n);
    memory_.key = words("key", 16);
    memory_.rounds = words("rounds", 4);
    memory_.recorded = &recorded_;
    memory_.noted = &noted_;
    memory_.declare = [this](GraphBuilder& g) { declare_all(g); };
    recorded_.record(stream_);
    stream_.synchronize();
  }

  // The words that a model or the device holds in all buffers, one after the other.
  std::vector<uint32_t> result_of(HostModel& reference) const {
    std::vector<uint32_t> all;
    for (const Initial& memory : initial_) {
      const auto words = reference.words(memory.address, memory.words.size());
      all.insert(all.end(), words.begin(), words.end());
    }
    return all;
  }

  // The first difference of a run from the model after `launches` launches; empty when there is none.
  std::string run_difference(const Plan& plan, RandomPlanMaker& maker, RunMode mode, int launches) {
    reset();
    HostModel reference = model();
    reference.host_functions = maker.host_functions;
    reference.poisons_sources = poisons(mode);
    PlanRun run(plan, mode, stream_);
    for (int launch = 0; launch < launches; ++launch) {
      reference.run(plan);
      run.launch();
      if (const std::string text = difference(reference); !text.empty())
        return std::string(to_string(mode)) + ", launch " + std::to_string(launch) + ": " + text;
    }
    if (run.explicit_graph() == nullptr) return "";
    const auto differences = read_back(*run.explicit_graph());
    return differences.empty() ? "" : "read back: " + differences[0];
  }

  std::string order_difference(const Plan& plan, const Plan& other, RandomPlanMaker& maker) {
    HostModel reference = model(), model_of_other = model();
    reference.host_functions = model_of_other.host_functions = maker.host_functions;
    reference.run(plan);
    try {
      model_of_other.run(other);
    } catch (const std::out_of_range&) {
      return "another order uses memory that is not there";
    }
    return result_of(reference) == result_of(model_of_other) ? "" : "another order gives another result";
  }

  RandomMemory memory_;
  Event recorded_{device(), "recorded"}, noted_{device(), "noted"};
};

}  // namespace nodewright
