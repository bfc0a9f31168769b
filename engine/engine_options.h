// What an engine is made with, and what a rebuild of it may change.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/schedule/pipeline.h"
#include "engine/step_record.h"
#include "engine/topology/step_slots.h"

namespace nodewright {

// Default tokens of a step that has tokens of a prompt: enough for a GPU to be bound by compute, and on the CPU driver
// about a second of work.
inline constexpr int kStepTokens = 512, kStepTokensOnCpu = 64;
// Tokens of a step of one sequence alone in a pipeline: a stage begins a chunk while the next stage has the one before.
inline constexpr int kStepTokensOfStages = 1024;

struct EngineOptions {
  int max_batch = 8;  // requests served at once, and rows of the largest decode step
  // Tokens of a step that has tokens of a prompt: first the rows that decode, then chunks of prompts, at least one
  // token. So no row waits longer for its next token than such a step takes. 0: 512, on the CPU driver 64; no more than
  // the largest bucket where buckets are given.
  int step_tokens = 0;
  // drained: prompts have steps of their own, each launched as soon as nothing is in flight, and alone in flight.
  Schedule schedule = Schedule::mixed;
  // Rows of the graphs; empty: BucketSet::up_to(max_batch), and for prompts and drafts some up to the most they need.
  std::vector<int> buckets;
  bool exact_buckets = false;  // without such a list, every size up to max_batch: no step of decoding rows is padded
  int64_t max_context = 0;     // tokens of prompt and outputs
  // Pages of the cache; 0: enough for max_batch requests of max_context tokens or, with a memory limit, what it leaves.
  int64_t pages = 0;
  uint64_t memory_limit = 0;       // bytes of weights, state, graphs and pages; 0: none
  bool prefix_cache = true;        // prompts that begin alike share pages
  Reserve reserve = Reserve::all;  // pages of a request when it is admitted
  bool choices = false;            // requests may ask for ChoiceOptions: memory and a small graph a bucket more
  HiddenStates hidden = HiddenStates::none;  // the most that requests may ask for: a buffer and a node a graph more
  int depth = kSlots;                        // steps in flight; 1: no pipelining
  int64_t step_timeout_ms = 0;               // a step that takes longer fails the engine; 0: it is waited for
  Numerics numerics = Numerics::fast;  // invariant: a request's tokens do not depend on the buckets it passes through
  RunMode mode = RunMode::explicit_;
  EdgePolicy policy = EdgePolicy::programmatic;
  bool allow_eager = false;  // more rows than the largest bucket are launched node by node, not refused
  std::function<void(const BuiltBucket&)> built;             // progress of the start; may be empty
  std::function<void(const std::string& reason)> fell_back;  // once for each reason; may be empty
  std::function<void(const StepRecord&)> stepped;            // each committed step, in order; may be empty
  // Takes the changes of what prompts may find in the cache, in order, from Engine::advance(); may be empty.
  std::function<void(std::vector<PageEvent>)> pages_changed;
  // Rows from which on steps are library products (models/step/step_shape.h); 0: never; none: as suits the network.
  std::optional<int64_t> products_from;
  std::shared_ptr<const Tuning> tuning;  // of this device and model (models/tuning/step_tuning.h), or none
  PrefillForm prefill = PrefillForm::graph;
  // LoRA adapters that the device holds at once, each with a slot of its own for ranks up to max_adapter_rank: costs
  // memory, and a second graph for each bucket, for steps in which a request has an adapter. More may be loaded; the
  // one that was used least recently makes room.
  int max_adapters = 0;  // 0: requests have none
  int max_adapter_rank = 16;
  // Drafts that a decode step checks for a request beyond the token that it chooses, guessed from repetitions in its
  // own tokens (engine/schedule/drafts.h); 0: none. Not for requests whose ChoiceOptions shape their choice.
  int speculate = 0;
  // Seeds the draws of requests without a seed, each its own numbers. None: a random one for every engine.
  std::optional<uint64_t> seed;
  // 2: of a team, large steps of prompts are two halves in lanes of their own (docs/scale.md): one half's sums are
  // exchanged while the other half computes.
  int overlap = 1;
  // Gives other drafts, of which `speculate` are used; its result depends on the request alone. Empty: drafts come from
  // n-grams.
  std::function<std::vector<int32_t>(const Request&)> drafts = {};
  // For a rank whose peers are in other processes: as in StepSlotsOptions. Such an engine gives no log probabilities of
  // prompts, has no adapters, and neither sleeps nor changes its graphs or weights.
  StepFollowers* followers = nullptr;
  std::function<int64_t(int64_t own)> least_pages = {};
};

// What a rebuild may change.
struct GraphOptions {
  std::vector<int> buckets;  // as in EngineOptions
  bool exact_buckets = false;
  RunMode mode = RunMode::explicit_;
  EdgePolicy policy = EdgePolicy::programmatic;
  HiddenStates hidden = HiddenStates::none;  // no less than open requests ask for
};

}  // namespace nodewright
