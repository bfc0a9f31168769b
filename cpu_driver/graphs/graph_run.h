// One launch of an executable graph: its nodes in an order that the edges allow and the schedule chooses, those of
// child graphs and of conditional bodies among them.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cpu_driver/graphs/graph_exec.h"

namespace nodewright::cpu {

// What each event record node of the outermost graph, or of a child in it, completes in this launch.
using EventRecords = std::vector<std::pair<const ExecNode*, CompletionRef>>;

class GraphRun {
 public:
  // `conditionals`, given to the outermost graph's run, begin with their defaults or undefined.
  GraphRun(State& state, std::shared_ptr<const GraphBody> body, std::shared_ptr<const EventRecords> records,
           std::vector<std::shared_ptr<Conditional>> conditionals = {});

  // Runs one ready node, chosen by the schedule, or the next one where that must wait. Finished: none is left.
  Progress step(std::unique_lock<std::mutex>& lock, WorkerPool& pool);
  // Its kernels that wait for packets of other devices, in words; empty if there are none.
  std::string describe_waiting() const;

 private:
  // A child or conditional node under way.
  struct Nested {
    std::unique_ptr<GraphRun> run;  // null: between the rounds of a loop
    uint64_t rounds = 0;
    double begun_ms = 0;
  };

  size_t choose();
  Progress step_node(uint32_t index, std::unique_lock<std::mutex>& lock, WorkerPool& pool);
  Progress step_inside(const ExecNode& node, Nested& nested, std::unique_lock<std::mutex>& lock, WorkerPool& pool);
  const std::shared_ptr<const GraphBody>* next_body(const ExecNode& node, Nested& nested);
  void begin();

  State& state_;
  std::shared_ptr<const GraphBody> body_;
  std::shared_ptr<const EventRecords> records_;
  std::vector<std::shared_ptr<Conditional>> conditionals_;  // not yet begun
  std::vector<uint32_t> missing_;                           // dependencies not yet run, by node
  std::vector<uint32_t> ready_;                             // sorted; a node with bodies stays until they have run
  std::unordered_map<uint32_t, Nested> nested_;
  std::unordered_map<uint32_t, WorkState> at_;  // of nodes that could not end at once
  size_t left_;
  uint64_t random_;
};

}  // namespace nodewright::cpu
