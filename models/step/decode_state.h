// The device memory of one decode slot: inputs of a step, activations, outputs, and the tables of the sequences' pages,
// which stay from step to step. One slot serves every bucket up to its largest, since buckets never run at once; a
// bucket's views are its own layout of the same buffers.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels_src/experts/group_by_expert.h"
#include "kernels_src/sampling/scored_token.h"
#include "models/config/model_config.h"
#include "models/step/step_shape.h"
#include "runtime/memory/arena.h"
#include "runtime/memory/memory.h"

namespace nodewright {

// Workspace of the products of one plan, on a GPU: cuBLAS's documentation recommends 32 MiB on Hopper
// (cublasSetWorkspace). The reference product takes none.
inline constexpr uint64_t kProductWorkspaceBytes = uint64_t{32} << 20;

struct DecodeLimits {
  int64_t rows = 1;                      // of the largest bucket
  int64_t max_context = 0;               // tokens of the longest sequence
  int64_t sequences = 1;                 // that may be open at once
  std::optional<int64_t> products_from;  // rows from which on steps are products; 0: never; none: as suits the network
  Numerics numerics = Numerics::fast;
  int64_t most_sampled = 0;  // rows of a step that choose; 0: one for each sequence
  HiddenStates hidden = HiddenStates::none;
  LaunchSteps steps;
  std::shared_ptr<const Tuning> tuning;  // or none
  AdapterLimits adapters = {};           // that rows may have; not with launches of several steps
  bool collectives = false;              // StepShape::collectives
  int64_t lanes = 1;                     // 2: large steps are two halves (models/step/lanes.h)
  int64_t sampled() const { return most_sampled > 0 ? most_sampled : sequences; }
  bool operator==(const DecodeLimits&) const = default;
};

// How a step of `rows` rows within the limits is computed.
StepShape step_shape(const NetworkForm& network, const DecodeLimits& limits, int64_t rows);
// The same of a step in which rows have adapters.
inline StepShape with_adapters(StepShape shape, const DecodeLimits& limits) {
  shape.adapters = limits.adapters;
  return shape;
}
inline StepShape step_shape(const ModelConfig& config, const DecodeLimits& limits, int64_t rows) {
  return step_shape(network_form(network_of(config)), limits, rows);
}

// The host's inputs for one step; one node fetches the whole block. The same layout in pinned host memory (where
// `data` may be dereferenced) and on the device.
struct StepInputs {
  View<int32_t> n_live;        // [1] rows that count; the others store nothing
  View<int32_t> n_sampled;     // [1] of those, the first rows: their next token is chosen
  View<int32_t> keeps_logits;  // [1] 0: where the head can, it leaves no logits that no choice reads
  View<int32_t> tokens;        // [rows] token id, or -1: the sequence's last token, already on the device
  View<int32_t> positions;     // [rows] of that token; its keys are written there and it attends to 0 .. position
  View<int32_t> sequences;     // [rows] index into last_token and block_table
  View<float> temperature;     // [rows] below 1e-5: greedy
  View<float> min_p;           // [rows] 0: all
  View<int32_t> top_k;         // [rows] 0: all
  View<float> top_p;           // [rows] 1: all
  View<uint64_t> seed;         // [rows]
  View<int32_t> output_index;  // [rows] which output of its sequence the next token is

  // Where rows may have adapters; empty otherwise.
  View<int32_t> adapters;  // [rows] slot of the row's adapter, or -1: none

  // Where steps may be two lanes: n_live and n_sampled of the early and the late one. Empty otherwise.
  View<int32_t> lane_live;     // [2]
  View<int32_t> lane_sampled;  // [2]

  // For launches of several steps (kernels_src/step/advance.h); empty otherwise.
  View<int32_t> steps_done;  // [1] 0
  View<int32_t> left;        // [rows] tokens that the row may still choose
  View<int32_t> caller_row;  // [rows] 0, 1, ...
  View<int32_t> stop_ids;    // [rows, kMostStopIds]
};

// Buffers of a mixture. The pair of a row and its j-th expert has number row * chosen + j.
struct ExpertState {
  View<float> logits;    // [rows, experts] of the router
  View<int32_t> chosen;  // [rows, chosen]
  View<float> weights;   // [rows, chosen]
  View<int32_t> pairs;   // [rows * chosen] grouped by expert, in tiles; otherwise the members from here on are empty
  View<ExpertJob> jobs;
  View<int32_t> n_jobs;  // [1]
  View<float> given;     // [rows * chosen, hidden rounded up to 8] by each expert of a row
};

// What a rank gives to a library's calls, where those exchange, and what they bring.
struct CollectiveState {
  View<float> given;       // [rows, hidden rounded up to 8] where that is more than a product
  View<float> gathered;    // [ranks, rows, hidden rounded up to 8], or [ranks, sampled_rows, logits_part_stride]
  View<ScoredToken> best;  // [ranks, sampled_rows, blocks of the head], at most; empty where the head has none
};

// Everything a decode plan of `rows` rows reads and writes besides weights and the cache.
struct DecodeState {
  int64_t rows = 0;
  StepInputs inputs;       // device
  StepInputs host_inputs;  // pinned
  NamedRange inputs_range, host_inputs_range;
  int64_t sampled_rows = 0;  // rows of logits
  View<float> residual;      // [rows, hidden rounded up to 8], padding zero
  View<float> mid_residual;  // the same between the two blocks of a layer, with post norms; or empty
  View<float> qkv;           // [rows, (heads + 2 kv_heads) * head_dim]
  View<float> q;             // [rows, heads, head_dim] rotated
  View<bf16> attended;       // [rows, heads * head_dim rounded up to 8]
  View<bf16> activated;      // [rows, intermediate rounded up to 8], or of a mixture for each expert of a row
  ExpertState experts;       // of a mixture
  View<float> projected;     // [rows, hidden rounded up to 8] what a block adds, before its post norm; or empty
  View<bf16> normed;         // [rows, hidden rounded up to 8], of products; or empty
  View<bf16> gained;         // [rows, hidden] residual times the next norm's gain; or empty
  View<float> squares;       // [parts, TileShape::padded_rows] beside it, at most (kernels_src/residual/residual.h)
  View<bf16> gate_up;        // [rows, gates and ups, rounded up to 8], of products; or empty
  View<bf16> dequantized;    // [elements of a matrix] FP8 or int4 weights of a product; or empty
  View<uint8_t> workspace;   // of products on a GPU
  std::array<View<float>, kAdaptedParts.size()> shrunk;  // [rows, parts, rank] of each matrix; empty without adapters
  View<float> logits;                                    // [sampled_rows, logits_stride]
  int64_t logits_stride = 0;                             // vocab rounded up to 8
  View<float> logits_part;         // [sampled_rows, logits_part_stride] of this rank's vocabulary; alone, the logits
  int64_t logits_part_stride = 0;  // the same, of its part
  View<ScoredToken> team_best;     // [sampled_rows, ranks, blocks of the head], at most; empty alone
  View<float> partial;             // [rows, hidden rounded up to 8] a rank's part of what a block adds; or empty
  CollectiveState collective;      // empty where ranks exchange by packets
  View<ScoredToken> best;          // [sampled_rows, blocks of the head], at most; empty where the head is a product
  View<float> partials;            // attention splits (kernels_src/attention/attend.h)
  View<int32_t> arrivals;          // zero between launches
  View<int32_t> tokens;            // [rows] chosen
  View<float> hidden;              // [hidden rows, hidden] after the final norm; empty: nobody may ask
  View<float> host_hidden;         // the same, pinned
  View<int32_t> last_token;        // [sequences] fed to the next step
  View<int32_t> block_table;       // [page groups, sequences, table_stride] pool pages of each sequence, in order
  int64_t table_stride = 0;        // pages of the longest sequence
  // [sequences, table_stride], of the layers of a group (ModelConfig::page_group)
  View<int32_t> table_of_group(int64_t group) const {
    const uint64_t count = last_token.count * static_cast<uint64_t>(table_stride);
    return block_table.subview(static_cast<uint64_t>(group) * count, count);
  }
  LaunchSteps steps;
  View<int32_t> host_tokens;  // [most steps, rows] pinned
  NamedRange host_tokens_range;
  std::vector<NamedRange> scratch;  // activations and workspaces: written before they are read
  std::vector<NamedRange> kept;     // live across launches: arrivals, last_token, block_table
  std::vector<DecodeState> lanes;   // the early one and the late one, parts of this; or none (models/step/lanes.h)
};

class DecodeSlot {
 public:
  DecodeSlot(Device& device, const ModelConfig& config, const DecodeLimits& limits);
  // Another slot for the same sequences, whose steps run on the same stream: inputs, activations and outputs of its
  // own.
  explicit DecodeSlot(const DecodeSlot& first);
  // Those of another rank of a team, whose config is its part: what the host says, `host` has for all ranks.
  static std::unique_ptr<DecodeSlot> of_rank(Device& device, const ModelConfig& config, const DecodeLimits& limits,
                                             const DecodeSlot& host);
  std::unique_ptr<DecodeSlot> another(const DecodeSlot& host) const;  // as DecodeSlot(*this), of such a rank

  // The views of a bucket of `rows` rows, at most limits().rows, and what its kernels are made for.
  DecodeState state(int64_t rows) const;
  StepShape shape(int64_t rows) const { return step_shape(network_, limits_, rows); }
  // The same views serve steps in which rows have adapters, where the limits have some.
  StepShape adapted_shape(int64_t rows) const { return with_adapters(shape(rows), limits_); }
  // The shape of each half of a step of `rows` rows that is two lanes.
  std::optional<StepShape> lane_shape(int64_t rows) const;
  const DecodeLimits& limits() const { return limits_; }
  uint64_t bytes() const;  // of device memory, with what slots share
  // Where every bucket's activations lie, each in its own layout.
  const DeviceBuffer& activations() const { return activations_; }

  // The pages of a sequence, in all groups alike, from its page `first` on: for the steps of this slot and of those
  // that share its memory.
  // Blocks; nothing that reads them may be in flight.
  void write_table(int32_t sequence, int64_t first, std::span<const int32_t> pages) const;

  // Fills every activation and the pinned input block with NaN bytes, for tests: nothing may depend on what a step
  // leaves behind.
  void poison();

 private:
  DecodeSlot(Device& device, const ModelConfig& config, const DecodeLimits& limits, std::shared_ptr<DeviceBuffer> kept,
             std::shared_ptr<PinnedBuffer> host_inputs);

  Device& device_;
  ModelConfig config_;
  NetworkForm network_;
  DecodeLimits limits_;
  DeviceBuffer inputs_, activations_;
  std::shared_ptr<DeviceBuffer> kept_;
  std::shared_ptr<PinnedBuffer> host_inputs_;
  PinnedBuffer host_tokens_;
  std::optional<PinnedBuffer> host_hidden_;
};

// Blocks that share a row's context: enough to give every SM two, at most 64; where they are a cluster, enough to give
// half the SMs one, at most 16. Or as tuned. Where numerics are invariant, one, or one a section (FlashDecodeShape),
// which add up alike; without tensor cores as many as one row has. Depends on these and the device only, so a row's
// bits do not depend on its neighbours' lengths or on max_context.
int64_t attention_splits(const ModelConfig& config, const StepShape& step, const DeviceProperties& device);

// Attention of the rows that choose, on tensor cores: as tuned, or the shape's default.
FlashDecodeShape flash_decode_shape(const ModelConfig& config, const StepShape& step, const DeviceProperties& device);

}  // namespace nodewright
