#include "engine/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "engine/option_range.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Nothing but memory speaks against more.
constexpr int64_t kMostStepsOfLaunch = 65536;

// In a launch's pinned tokens: the row had ended before.
constexpr int32_t kNothingChosen = -2;

const DecoderOptions& checked(const DecoderOptions& options, const ModelConfig& config) {
  check_option("bucket", options.bucket, 1, kMostRows);
  check_option("prefill rows", options.prefill_rows, 1, kMostRows);
  check_option("max context", options.max_context, 1, config.longest_context());
  check_option("sequences", options.sequences, 1, 65536);
  check_option("steps per launch", options.steps.most, 1, kMostStepsOfLaunch);
  if (options.adapters.any() && options.steps.several())
    throw Error({.doing = "use option",
                 .object = "steps per launch",
                 .detail = fmt::format("it is {}, and sequences with adapters take 1", options.steps.most),
                 .fault = Fault::usage});
  return options;
}

DecodeLimits limits_of(const DecoderOptions& options) {
  return {.rows = std::max(options.bucket, options.prefill_rows),
          .max_context = options.max_context,
          .sequences = options.sequences,
          .products_from = options.products_from,
          .numerics = options.numerics,
          .steps = options.steps,
          .tuning = options.tuning,
          .adapters = options.adapters};
}

}  // namespace

std::vector<KernelRequest> decoder_kernel_requests(const ModelConfig& config, const DecoderOptions& options,
                                                   const DeviceProperties& device) {
  const DecodeLimits limits = limits_of(checked(options, config));
  std::vector<KernelRequest> requests;
  const auto add = [&](const StepShape& shape) {
    for (KernelRequest& r : decoder_kernel_requests(config, shape, device)) requests.push_back(std::move(r));
  };
  for (int64_t rows : {options.bucket, options.prefill_rows}) {
    const StepShape shape = step_shape(config, limits, rows);
    add(shape);
    if (options.adapters.any()) add(with_adapters(shape, limits));
  }
  return requests;
}

Decoder::Decoder(Device& device, const Stream& stream, KernelCache& kernels, const DecoderModel& model,
                 const DecoderOptions& options)
    : device_(device),
      stream_(stream),
      config_(model.config()),
      options_(checked(options, config_)),
      cache_(device, config_, options.sequences * pages_for(options.max_context)),
      pages_(cache_.pages()),
      sequences_(static_cast<size_t>(options.sequences)),
      slot_(device, config_, limits_of(options)),
      step_state_(slot_.state(options.bucket)),
      prefill_state_(slot_.state(options.prefill_rows)),
      chosen_(static_cast<size_t>(options.bucket)),
      of_launch_(static_cast<size_t>(options.bucket)) {
  stats_.state_bytes = slot_.bytes();
  stats_.cache_bytes = cache_.bytes();

  auto start = Clock::now();
  kernels.prepare(decoder_kernel_requests(config_, options, device.properties()));
  const DecoderKernels step_kernels = decoder_kernels(kernels, config_, slot_.shape(options.bucket));
  const DecoderKernels prefill_kernels = decoder_kernels(kernels, config_, slot_.shape(options.prefill_rows));
  stats_.kernels_ms = ms_since(start);

  const uint64_t free_before = device.free_bytes();
  start = Clock::now();
  step_plan_ = decoder_plan(device, model, step_kernels, cache_, step_state_, DecodePurpose::step, options.policy);
  step_run_.emplace(step_plan_, options.mode, stream);
  last_step_run_ = &*step_run_;
  prefill_run_.emplace(
      decoder_plan(device, model, prefill_kernels, cache_, prefill_state_, DecodePurpose::prefill, options.policy),
      options.mode, stream);
  if (options.adapters.any()) {
    adapters_.emplace(device, config_, options.adapters);
    const auto build = [&](const DecodeState& state, int64_t rows, DecodePurpose purpose, auto& built) {
      const DecoderKernels bound = decoder_kernels(kernels, config_, slot_.adapted_shape(rows));
      built.emplace(decoder_plan(device, model, bound, cache_, state, purpose, options.policy, &*adapters_),
                    options.mode, stream);
    };
    build(step_state_, options.bucket, DecodePurpose::step, adapted_step_run_);
    build(prefill_state_, options.prefill_rows, DecodePurpose::prefill, adapted_prefill_run_);
  }
  stats_.build_ms = ms_since(start);
  const uint64_t free_after = device.free_bytes();
  stats_.graph_bytes = free_before > free_after ? free_before - free_after : 0;
  model.wait();
}

const Decoder::Sequence& Decoder::at(int32_t sequence) const {
  if (sequence < 0 || static_cast<size_t>(sequence) >= sequences_.size() ||
      !sequences_[static_cast<size_t>(sequence)].is_open)
    throw Error({.doing = "use sequence", .object = std::to_string(sequence), .detail = "it is not open"});
  return sequences_[static_cast<size_t>(sequence)];
}

int32_t Decoder::open(int32_t adapter) {
  check_option("adapter", adapter, -1, options_.adapters.slots - 1);
  const auto found = std::find_if(sequences_.begin(), sequences_.end(), [](const Sequence& s) { return !s.is_open; });
  if (found == sequences_.end())
    throw Error({.doing = "open a sequence", .detail = fmt::format("all {} are open", sequences_.size())});
  *found = {};
  found->is_open = true;
  found->adapter = adapter;
  return static_cast<int32_t>(found - sequences_.begin());
}

void Decoder::close(int32_t sequence) {
  at(sequence);
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  for (int32_t page : s.pages) pages_.give_back(page);
  s = {};
}

void Decoder::check_token(int32_t token) const {
  if (token >= 0 && token < config_.vocab) return;
  throw Error({.doing = "use token",
               .object = std::to_string(token),
               .detail = fmt::format("the vocabulary has {} tokens", config_.vocab),
               .fault = Fault::usage});
}

// Owns pages for `length` tokens, or throws and owns what it did before.
void Decoder::reserve(Sequence& sequence, int32_t id, int64_t length) {
  if (length > options_.max_context)
    throw Error({.doing = "extend sequence",
                 .object = std::to_string(id),
                 .detail = fmt::format("{} tokens do not fit in a context of {}", length, options_.max_context),
                 .advice = "a longer --max-context, a shorter prompt or fewer tokens",
                 .fault = Fault::usage});
  const size_t had = sequence.pages.size();
  while (static_cast<int64_t>(sequence.pages.size()) < pages_for(length)) {
    const std::optional<int32_t> page = pages_.take();
    if (!page) {
      for (; sequence.pages.size() > had; sequence.pages.pop_back()) pages_.give_back(sequence.pages.back());
      throw Error({.doing = "extend sequence",
                   .object = std::to_string(id),
                   .detail = fmt::format("all {} pages of the cache are taken", pages_.total())});
    }
    sequence.pages.push_back(*page);
  }
}

void Decoder::fill_row(const DecodeState& state, int64_t row, int32_t id, int64_t position, int32_t token,
                       const Sampling& sampling) {
  const Sequence& s = sequences_[static_cast<size_t>(id)];
  write_row(state.host_inputs, row,
            {.token = token,
             .position = position,
             .sequence = id,
             .output = s.outputs,
             .adapter = s.adapter,
             .sampling = sampling});
}

// Nothing is in flight.
void Decoder::write_table(Sequence& sequence, int32_t id) {
  const std::span<const int32_t> pages = std::span(sequence.pages).subspan(sequence.told);
  if (pages.empty()) return;
  slot_.write_table(id, static_cast<int64_t>(sequence.told), pages);
  sequence.told = sequence.pages.size();
}

// To be called before the input block is written: what a failed launch left behind may still be reading it.
void Decoder::settle() {
  if (!unfinished_) return;
  stream_.synchronize();
  unfinished_ = false;
}

void Decoder::run(PlanRun& launched) {
  unfinished_ = true;
  launched.launch();
  stream_.synchronize();  // the tokens have arrived, and the input block is free again
  unfinished_ = false;
}

void Decoder::append(int32_t sequence, std::span<const int32_t> tokens) {
  at(sequence);
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  for (int32_t token : tokens) check_token(token);
  reserve(s, sequence, s.length + static_cast<int64_t>(tokens.size()));
  settle();
  write_table(s, sequence);
  while (!tokens.empty()) {
    const auto chunk = tokens.first(std::min(tokens.size(), static_cast<size_t>(options_.prefill_rows)));
    prefill_state_.host_inputs.n_live.data[0] = static_cast<int32_t>(chunk.size());
    prefill_state_.host_inputs.n_sampled.data[0] = 0;
    for (size_t i = 0; i < chunk.size(); ++i)
      fill_row(prefill_state_, static_cast<int64_t>(i), sequence, s.length + static_cast<int64_t>(i), chunk[i], {});
    run(s.adapter >= 0 ? *adapted_prefill_run_ : *prefill_run_);
    s.length += static_cast<int64_t>(chunk.size());
    tokens = tokens.subspan(chunk.size());
  }
}

void Decoder::check_rows(std::span<const LaunchRow> rows) const {
  if (rows.empty() || static_cast<int64_t>(rows.size()) > options_.bucket)
    throw Error({.doing = "run a step",
                 .detail = fmt::format("{} rows for a bucket of {}", rows.size(), options_.bucket),
                 .fault = Fault::usage});
  for (size_t i = 0; i < rows.size(); ++i) {
    const int32_t id = rows[i].first.sequence;
    const Sequence& s = at(id);
    if (rows[i].first.token) check_token(*rows[i].first.token);
    if (!rows[i].first.token && !s.has_next)
      throw Error({.doing = "continue sequence",
                   .object = std::to_string(id),
                   .detail = s.outputs == 0 ? "no step has chosen a token for it yet" : "its last step failed",
                   .advice = "name its next token"});
    for (size_t j = 0; j < i; ++j)
      if (rows[j].first.sequence == id)
        throw Error({.doing = "run a step", .detail = fmt::format("sequence {} has two rows", id)});
    check_option("tokens of a launch", rows[i].most, 1, options_.steps.most);
    check_option("stop ids of a row", static_cast<int64_t>(rows[i].stop_ids.size()), 0, kMostStopIds);
  }
}

std::span<const std::vector<int32_t>> Decoder::launch(std::span<const LaunchRow> rows) {
  check_rows(rows);
  settle();
  const StepInputs& in = step_state_.host_inputs;
  in.n_live.data[0] = in.n_sampled.data[0] = static_cast<int32_t>(rows.size());
  in.keeps_logits.data[0] = options_.keep_logits ? 1 : 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const StepRow& row = rows[i].first;
    Sequence& s = sequences_[static_cast<size_t>(row.sequence)];
    reserve(s, row.sequence, s.length + rows[i].most);
    write_table(s, row.sequence);
    fill_row(step_state_, static_cast<int64_t>(i), row.sequence, s.length, row.token.value_or(-1), row.sampling);
    if (options_.steps.several()) write_end(in, static_cast<int64_t>(i), rows[i].most, rows[i].stop_ids);
  }
  if (options_.steps.several()) in.steps_done.data[0] = 0;
  std::ranges::fill(std::span(step_state_.host_tokens.data, step_state_.host_tokens.count), kNothingChosen);
  for (const LaunchRow& row : rows) sequences_[static_cast<size_t>(row.first.sequence)].has_next = false;
  const bool adapted =
      std::ranges::any_of(rows, [this](const LaunchRow& row) { return at(row.first.sequence).adapter >= 0; });
  last_step_run_ = adapted ? &*adapted_step_run_ : &*step_run_;
  run(*last_step_run_);

  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<int32_t>& chosen = of_launch_[i];
    chosen.clear();
    for (int64_t step = 0; step < options_.steps.most; ++step) {
      const int32_t token = step_state_.host_tokens.data[step * options_.bucket + static_cast<int64_t>(i)];
      if (token == kNothingChosen) break;
      chosen.push_back(token);
    }
    Sequence& s = sequences_[static_cast<size_t>(rows[i].first.sequence)];
    s.has_next = !chosen.empty() && chosen.back() >= 0;
    s.length += static_cast<int64_t>(chosen.size());
    s.outputs += static_cast<int32_t>(chosen.size());
  }
  for (const LaunchRow& row : rows)
    if (!at(row.first.sequence).has_next)
      throw Error({.doing = "choose a token for sequence",
                   .object = std::to_string(row.first.sequence),
                   .detail = "its logits hold a NaN",
                   .advice = "look for NaN or infinite values in the checkpoint"});
  return std::span(of_launch_).first(rows.size());
}

std::span<const int32_t> Decoder::step(std::span<const StepRow> rows) {
  launch_rows_.clear();
  for (const StepRow& row : rows) launch_rows_.push_back({.first = row});
  const auto chosen = launch(launch_rows_);
  for (size_t i = 0; i < chosen.size(); ++i) chosen_[i] = chosen[i][0];
  return std::span(chosen_).first(chosen.size());
}

void Decoder::read_logits(int64_t row, std::span<float> logits) const {
  if (!options_.keep_logits)
    throw Error({.doing = "read the logits of a step",
                 .detail = "its decoder does not keep them",
                 .advice = "make the decoder with keep_logits",
                 .fault = Fault::usage});
  const auto first = static_cast<uint64_t>(row * step_state_.logits_stride);
  read_view(device_, logits, step_state_.logits.subview(first, static_cast<uint64_t>(config_.vocab)), "logits");
}

void Decoder::poison() {
  slot_.poison();
  const uint64_t page_bytes = KvCache::page_bytes(config_);
  for (int64_t layer = 0; layer < config_.layers; ++layer)
    for (int32_t page = 0; page < pages_.total(); ++page)
      if (!pages_.is_taken(page))
        fill_device(device_, cache_.layer(layer).address() + static_cast<uint64_t>(page) * page_bytes, std::byte{0xff},
                    page_bytes, "kv");
}

}  // namespace nodewright
