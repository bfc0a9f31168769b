// budgets.json beside this file: what every kernel that ships takes of an SM, and what a layer's machine code amounts
// to. A line a kernel, so that a change shows in the diff.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace nodewright::test {

struct KernelBudget {
  uint64_t registers = 0;     // of a thread
  uint64_t spill_bytes = 0;   // that a thread stores, all in all
  uint64_t stack_bytes = 0;   // of a thread, spilled registers included
  uint64_t threads = 0;       // of a block
  uint64_t shared_bytes = 0;  // of a block, static and dynamic; of several launches the most
  uint64_t blocks_of_sm = 0;  // that run on an SM at once, at least
  uint64_t code_bytes = 0;
  bool operator==(const KernelBudget&) const = default;
};

// A model's middle layer on a card: each distinct kernel once, without library products.
struct LayerBudget {
  uint64_t kernels = 0;
  uint64_t code_bytes = 0;
  bool operator==(const LayerBudget&) const = default;
};

struct Budgets {
  std::string nvrtc;                            // version: "13.0"
  std::string inputs;                           // digest of the sources, requests and launches for Hopper
  std::map<std::string, LayerBudget> layers;    // "H100 Llama-3.2-1B, 8 rows"
  std::map<std::string, KernelBudget> kernels;  // "sm_90 embed[kScaled=0, ...]"
};

std::filesystem::path budgets_file();
Budgets read_budgets();
void write_budgets(const Budgets& budgets);

// Machine code may grow by so much before the file has to be written anew; nothing else may.
inline constexpr double kCodeSlack = 0.02;

// One sentence for each number that is worse than the recorded one, for what has no line and for lines of kernels that
// no longer ship. Empty: all is well.
std::vector<std::string> complaints(const Budgets& recorded, const Budgets& measured);

}  // namespace nodewright::test
