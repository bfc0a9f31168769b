// Start reading here: one decode step of a network as a plan. What it computes is in
// models/network/decoder_network.cpp, which kernels compute it in models/lowering/lowering.cpp.
//
// Each row is one new token of one sequence. Rows of the same sequence at successive positions are allowed: every row's
// key and value are in the cache before any row attends, so a chunk of a prompt is the same plan without the head. With
// products (models/step/step_shape.h) such rows lie together, after the n_sampled rows that choose a token.
#pragma once

#include <span>
#include <string>

#include "graph/graph_builder.h"
#include "graph/team/team_plan.h"
#include "models/adapters/adapter_slots.h"
#include "models/decoder_model.h"
#include "models/kv_cache.h"
#include "models/lowering/decoder_kernels.h"
#include "models/step/decode_state.h"

namespace nodewright {

class Collectives;

// step: ends in logits and the next token, which it delivers to the host; as many steps as the state's LaunchSteps say.
// serve: one step; the caller copies the token, on another stream. prefill: fills the cache, ends with the
// last layer.
enum class DecodePurpose : uint8_t { step, serve, prefill };

// A plan named "decode.b<rows>" or "prefill.b<rows>", and where rows may have adapters "decode.b<rows>.adapters".
// Everything is borrowed and must outlive its runs. `adapters`: given with kernels that were chosen for adapters, else
// null. `collectives`: the rank's, given with a model that is a part and kernels that were chosen for a library's calls
// (StepShape::collectives), else null. Throws Error naming the node that cannot be added.
Plan decoder_plan(Device& device, const DecoderModel& model, const DecoderKernels& kernels, const KvCache& cache,
                  const DecodeState& state, DecodePurpose purpose, EdgePolicy policy,
                  const AdapterSlots* adapters = nullptr, Collectives* collectives = nullptr);

// The same for one rank of a team, whose model is its part: adds the nodes of a plan of purpose serve to the plan that
// plan_team() makes. The calls for all ranks describe the same exchanges.
// `adapters`: the rank's, as of decoder_plan(). `lane`: of a state of two lanes the kernels of each; the layers' and
// the head's nodes are called "l0.early.norm", "late.logits".
void describe_decoder(GraphBuilder& g, TeamRank& rank, const DecoderModel& model, const DecoderKernels& kernels,
                      const KvCache& cache, const DecodeState& state, const AdapterSlots* adapters = nullptr,
                      const DecoderKernels* lane = nullptr);
// Steps side by side in one plan of a rank, all of the kernels' size: a chain of nodes each, from its inputs to its
// tokens, which take turns at exchanging. They share the weights alone, and node names begin with "c0", "c1". For
// measuring what steps of few rows gain by that. `caches`: one for each state.
void describe_chains(GraphBuilder& g, TeamRank& rank, const DecoderModel& model, const DecoderKernels& kernels,
                     std::span<const KvCache* const> caches, std::span<const DecodeState> states);
// The size of the ranks' exchange in `chains` chains of `rows` rows each, all of them sampled.
ExchangeSize exchange_size_of_chains(const ModelConfig& config, int64_t rows, int64_t sm_count, int64_t chains);
// The same for one stage of a pipeline, whose model is its layers. `received`: the form in which the residual has come
// from the stage before, as views of `state`, with the inputs of the step; null for the first stage, which takes these
// from the host. Returns the form in which the last layer leaves it.
Residual describe_stage(GraphBuilder& g, const DecoderModel& model, const DecoderKernels& kernels, const KvCache& cache,
                        const DecodeState& state, const Residual* received);
std::string decoder_plan_name(const DecodeState& state, DecodePurpose purpose, bool adapted);  // "decode.b8"

// The size of a team's exchange in plans of at most `rows` rows, `sampled` of them sampled, and `lanes` lanes.
ExchangeSize exchange_size(const ModelConfig& config, int64_t rows, int64_t sampled, int64_t sm_count,
                           int64_t lanes = 1);

// Whether the node attends: a piecewise run is cut there.
bool is_attention(const PlanNode& node);

}  // namespace nodewright
