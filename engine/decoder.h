// Sequences on one decode slot: opens them, feeds them prompts, and runs steps through the bucket's graph. Synchronous
// and single-threaded; scheduling many requests is not its business.
//
//   Decoder decoder(device, stream, kernels, model, {.bucket = 4, .max_context = 2048, .sequences = 4});
//   const int32_t sequence = decoder.open();
//   decoder.append(sequence, prompt_without_its_last_token);
//   int32_t next = decoder.step({{{.sequence = sequence, .token = prompt.back()}}})[0];
//   next = decoder.step({{{.sequence = sequence}}})[0];   // the token of the step before, which never left the device
//
// With `steps` a launch holds several steps: decoder.launch() returns after the last of them, with what they chose.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/cache/page_pool.h"
#include "engine/device/step_inputs.h"
#include "graph/plan_run.h"
#include "models/plan/decoder_graph.h"

namespace nodewright {

// One row of a step.
struct StepRow {
  int32_t sequence = 0;          // from open()
  std::optional<int32_t> token;  // nothing: what the last step chose for this sequence
  Sampling sampling;
};

// A row of a launch of several steps. It ends with a token of `stop_ids`, or with the last of `most`; nothing of it is
// stored after that.
struct LaunchRow {
  StepRow first;
  int64_t most = 1;                        // tokens; at most the steps of a launch
  std::span<const int32_t> stop_ids = {};  // at most kMostStopIds
};

struct DecoderOptions {
  int64_t bucket = 1;        // rows of the decode graph
  int64_t prefill_rows = 8;  // prompt tokens that go through the layers at once
  int64_t max_context = 0;   // tokens of the longest sequence
  int64_t sequences = 1;     // open at once
  Numerics numerics = Numerics::fast;
  RunMode mode = RunMode::explicit_;
  EdgePolicy policy = EdgePolicy::programmatic;

  // Rows from which on steps are library products (models/step/step_shape.h); 0: never.
  int64_t products_from = kProductsFromRows;

  bool keep_logits = false;  // read_logits() may be called; else steps leave those that no choice reads

  LaunchSteps steps;  // of a launch of the decode graph

  std::shared_ptr<const Tuning> tuning;  // of this device and model (models/tuning/step_tuning.h), or none

  AdapterLimits adapters = {};  // that sequences may have; not with several steps a launch
};

// What a Decoder will ask the cache for: to be prepared for several of them in parallel first. Throws Error when
// options are out of range.
std::vector<KernelRequest> decoder_kernel_requests(const ModelConfig& config, const DecoderOptions& options,
                                                   const DeviceProperties& device);

class Decoder {
 public:
  // Compiles or loads the kernels, takes the memory, builds both plans. Throws Error when options are out of range
  // (with the option's name), when memory is short, or when a kernel does not compile.
  Decoder(Device& device, const Stream& stream, KernelCache& kernels, const DecoderModel& model,
          const DecoderOptions& options);

  // A new, empty sequence, with the adapter in that slot or none. Throws Error when `sequences` are open, and where
  // there is no such slot.
  int32_t open(int32_t adapter = -1);
  // The slots of options().adapters, to be filled over the decoder's stream while no sequence of theirs is open.
  AdapterSlots& adapters() { return *adapters_; }
  // Closes the sequence: its pages are free again. Throws Error when it is not open.
  void close(int32_t sequence);
  int64_t length(int32_t sequence) const { return at(sequence).length; }

  // Puts tokens into the cache without choosing a next one. Throws Error for a token outside the vocabulary, a full
  // context or a full cache; then nothing was appended. When the driver fails, length() says what was.
  void append(int32_t sequence, std::span<const int32_t> tokens);

  // One token for each row, at most `bucket` rows, each of another sequence. Returns the chosen tokens, valid until the
  // next step. Throws Error as append does; a NaN among a row's logits is an error that names the sequence. When the
  // driver fails, no sequence has grown, and the rows of this step can go on only with a token: nobody knows whether
  // the device has already put the next one in the place of the last.
  std::span<const int32_t> step(std::span<const StepRow> rows);
  std::span<const int32_t> step(std::initializer_list<StepRow> rows) {
    return step(std::span(rows.begin(), rows.size()));
  }

  // Up to options().steps.most tokens for each row, in the order in which they were chosen, the one that ended the row
  // included: the tokens, bit for bit, that as many steps choose. Cache pages for all of them are taken before. Valid
  // until the next launch. Throws Error as step does, and for more tokens or stop ids than there is room for.
  std::span<const std::vector<int32_t>> launch(std::span<const LaunchRow> rows);

  // The last step's logits of a row, vocab floats. Throws Error unless options().keep_logits.
  void read_logits(int64_t row, std::span<float> logits) const;

  // Submits the last step's launch again, as it was, without waiting: for measuring. Rewrites the same positions.
  void relaunch() { last_step_run_->launch(); }

  // Fills with NaN bytes everything that no live row may look at: activations, the input block, pages nobody owns.
  void poison();

  const Plan& step_plan() const { return step_plan_; }
  StepShape step_shape() const { return slot_.shape(options_.bucket); }  // how that step is computed
  // Null unless the mode is explicit.
  const ExplicitGraph* step_graph() { return step_run_->explicit_graph(); }
  const DecoderOptions& options() const { return options_; }
  const PagePool& pages() const { return pages_; }

  struct Stats {
    double kernels_ms = 0;     // compiling or loading kernels
    double build_ms = 0;       // both plans, their graphs and uploads
    uint64_t graph_bytes = 0;  // of device memory that the graphs took, as the driver's free memory tells
    uint64_t state_bytes = 0;  // inputs, activations, outputs
    uint64_t cache_bytes = 0;  // key/value pages
  };
  const Stats& stats() const { return stats_; }

 private:
  struct Sequence {
    bool is_open = false;
    int64_t length = 0;     // tokens in the cache
    int32_t outputs = 0;    // tokens chosen
    bool has_next = false;  // the device holds the token that its last step chose
    std::vector<int32_t> pages;
    size_t told = 0;  // of those, the first, that the device knows
    int32_t adapter = -1;
  };

  const Sequence& at(int32_t sequence) const;
  void reserve(Sequence& sequence, int32_t id, int64_t length);
  void check_token(int32_t token) const;
  void write_table(Sequence& sequence, int32_t id);
  void fill_row(const DecodeState& state, int64_t row, int32_t id, int64_t position, int32_t token,
                const Sampling& sampling);
  void check_rows(std::span<const LaunchRow> rows) const;
  void settle();
  void run(PlanRun& launched);

  Device& device_;
  const Stream& stream_;
  const ModelConfig& config_;
  DecoderOptions options_;
  KvCache cache_;
  PagePool pages_;
  std::vector<Sequence> sequences_;
  DecodeSlot slot_;
  DecodeState step_state_, prefill_state_;
  Plan step_plan_;
  std::optional<PlanRun> step_run_, prefill_run_;
  std::optional<AdapterSlots> adapters_;                           // with options_.adapters, and
  PlanRun* last_step_run_ = nullptr;                               // that was launched
  std::optional<PlanRun> adapted_step_run_, adapted_prefill_run_;  // of rows that have some
  bool unfinished_ = false;  // a launch failed, and some of it may still be to run
  Stats stats_;
  std::vector<int32_t> chosen_;
  std::vector<LaunchRow> launch_rows_;           // scratch of step()
  std::vector<std::vector<int32_t>> of_launch_;  // what launch() returns
};

}  // namespace nodewright
