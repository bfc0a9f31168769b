#include "models/step/choice_state.h"

#include <algorithm>
#include <cstring>

#include "kernels_src/sampling/record_choice.h"
#include "kernels_src/sampling/shape_logits.h"
#include "models/weights/row_stride.h"

namespace nodewright {
namespace {

ChoiceInputs lay_out_choice_inputs(Arena& arena, int64_t rows, int64_t vocab) {
  const auto n = static_cast<uint64_t>(rows);
  ChoiceInputs in;
  in.mask_words = (vocab + 31) / 32;
  const auto take = [&]<class T>(View<T>& view, const char* name, uint64_t count) {
    view = arena.take<T>(name, count, "input", 16);
  };
  take(in.n_live, "choice.n_live", 1);
  take(in.rows, "choice.rows", n);
  take(in.sequences, "choice.sequences", n);
  take(in.forced, "choice.forced", n);
  take(in.temperature, "choice.temperature", n);
  take(in.min_p, "choice.min_p", n);
  take(in.top_k, "choice.top_k", n);
  take(in.top_p, "choice.top_p", n);
  take(in.seed, "choice.seed", n);
  take(in.output_index, "choice.output_index", n);
  take(in.repetition_penalty, "choice.repetition_penalty", n);
  take(in.presence_penalty, "choice.presence_penalty", n);
  take(in.frequency_penalty, "choice.frequency_penalty", n);
  take(in.counted, "choice.counted", n);
  take(in.logprobs, "choice.logprobs", n);
  take(in.biases, "choice.biases", n);
  take(in.constrained, "choice.constrained", n);
  return in;
}

void lay_out_asked(Arena& arena, ChoiceInputs& in, int64_t rows) {
  const auto n = static_cast<uint64_t>(rows);
  in.bias_tokens = arena.take<int32_t>("choice.bias_tokens", n * kMostBiases, "input", 16);
  in.bias_values = arena.take<float>("choice.bias_values", n * kMostBiases, "input", 16);
  in.masks = arena.take<uint32_t>("choice.masks", n * static_cast<uint64_t>(in.mask_words), "input", 16);
}

uint64_t asked_bytes(int64_t rows, int64_t vocab) {
  Arena arena = Arena::measuring();
  ChoiceInputs in;
  in.mask_words = (vocab + 31) / 32;
  lay_out_asked(arena, in, rows);
  return arena.used_bytes();
}

uint64_t logits_stride_of(int64_t vocab) { return static_cast<uint64_t>(row_stride(vocab)); }

void lay_out_shaped(Arena& arena, ChoiceState& s, int64_t vocab) {
  const auto n = static_cast<uint64_t>(s.rows);
  s.shaped = arena.take<float>("choice.shaped", n * logits_stride_of(vocab), "activation");
  s.best = arena.take<ScoredToken>("choice.best", n * static_cast<uint64_t>(s.parts), "activation");
  s.chosen = arena.take<int32_t>("choice.chosen", n, "activation");
}

// The parts of a row are most where the rows are few.
uint64_t shaped_bytes(int64_t rows, int64_t vocab) {
  Arena arena = Arena::measuring();
  ChoiceState s;
  s.rows = rows;
  s.parts = kMostBlocksOfRow;
  lay_out_shaped(arena, s, vocab);
  return arena.used_bytes();
}

uint64_t choice_inputs_bytes(int64_t rows, int64_t vocab) {
  Arena arena = Arena::measuring();
  lay_out_choice_inputs(arena, rows, vocab);
  return arena.used_bytes();
}

uint64_t choice_outputs_bytes(int64_t rows) {
  Arena arena = Arena::measuring();
  lay_out_choice_outputs(arena, rows);
  return arena.used_bytes();
}

Arena arena_over(const PinnedBuffer& buffer) {
  return {buffer.name(), reinterpret_cast<uint64_t>(buffer.data()), buffer.bytes()};
}

}  // namespace

ChoiceOutputs lay_out_choice_outputs(Arena& arena, int64_t rows) {
  const auto n = static_cast<uint64_t>(rows);
  ChoiceOutputs out;
  const auto take = [&]<class T>(View<T>& view, const char* name, uint64_t count) {
    view = arena.take<T>(name, count, "output", 16);
  };
  take(out.tokens, "choice.tokens", n);
  take(out.kept, "choice.kept", n);
  take(out.logprob, "choice.logprob", n);
  take(out.top_tokens, "choice.top_tokens", n * kMostLogprobs);
  take(out.top_logprobs, "choice.top_logprobs", n * kMostLogprobs);
  return out;
}

static std::shared_ptr<DeviceBuffer> new_counts(Device& device, const ModelConfig& config, const DecodeLimits& limits) {
  auto counts = std::make_shared<DeviceBuffer>(
      device, "choice.counts",
      static_cast<uint64_t>(limits.sequences) * logits_stride_of(config.vocab) * sizeof(int32_t));
  fill_device(device, counts->address(), std::byte{0}, counts->bytes(), counts->name());
  return counts;
}

static std::shared_ptr<PinnedBuffer> new_pinned(Device& device, const char* name, uint64_t bytes) {
  auto buffer = std::make_shared<PinnedBuffer>(device, name, bytes);
  std::memset(buffer->data(), 0, buffer->bytes());
  return buffer;
}

ChoiceSlot::ChoiceSlot(Device& device, const ModelConfig& config, const DecodeLimits& limits)
    : ChoiceSlot(device, config, limits, new_counts(device, config, limits), nullptr) {}

ChoiceSlot::ChoiceSlot(const ChoiceSlot& first)
    : ChoiceSlot(first.device_, ModelConfig{.vocab = first.vocab_}, first.limits_, first.counts_, nullptr) {}

std::unique_ptr<ChoiceSlot> ChoiceSlot::of_rank(Device& device, const ModelConfig& config, const DecodeLimits& limits,
                                                const ChoiceSlot& host) {
  return std::unique_ptr<ChoiceSlot>(new ChoiceSlot(device, config, limits, new_counts(device, config, limits), &host));
}

std::unique_ptr<ChoiceSlot> ChoiceSlot::another(const ChoiceSlot& host) const {
  return std::unique_ptr<ChoiceSlot>(new ChoiceSlot(device_, ModelConfig{.vocab = vocab_}, limits_, counts_, &host));
}

ChoiceSlot::ChoiceSlot(Device& device, const ModelConfig& config, const DecodeLimits& limits,
                       std::shared_ptr<DeviceBuffer> counts, const ChoiceSlot* host)
    : device_(device),
      vocab_(config.vocab),
      limits_(limits),
      rows_(std::min(limits.rows, limits.sampled())),
      inputs_(device, "choice.inputs", choice_inputs_bytes(rows_, config.vocab)),
      outputs_(device, "choice.outputs", choice_outputs_bytes(rows_)),
      shaped_(device, "choice.shaped", shaped_bytes(rows_, config.vocab)),
      counts_(std::move(counts)),
      host_outputs_(device, "host.choice.outputs", outputs_.bytes()),
      host_inputs_(host != nullptr ? host->host_inputs_ : new_pinned(device, "host.choice.inputs", inputs_.bytes())),
      asked_(host != nullptr ? host->asked_
                             : new_pinned(device, "host.choice.asked", asked_bytes(rows_, config.vocab))) {
  // No value of a row past n_live matters, but every byte that is loaded or copied has been written once.
  fill_device(device, shaped_.address(), std::byte{0}, shaped_.bytes(), shaped_.name());
  fill_device(device, outputs_.address(), std::byte{0}, outputs_.bytes(), outputs_.name());
}

ChoiceState ChoiceSlot::state(int64_t step_rows) const {
  ChoiceState s;
  s.rows = std::min(step_rows, rows_);
  s.parts = blocks_of_logit_row(static_cast<unsigned>(s.rows), static_cast<unsigned>(device_.properties().sm_count),
                                kMostBlocksOfRow);
  const int64_t rows = s.rows;
  Arena asked = arena_over(*asked_);
  Arena inputs(inputs_), outputs(outputs_), shaped(shaped_);
  Arena host_inputs = arena_over(*host_inputs_), host_outputs = arena_over(host_outputs_);
  s.inputs = lay_out_choice_inputs(inputs, rows, vocab_);
  s.host_inputs = lay_out_choice_inputs(host_inputs, rows, vocab_);
  lay_out_asked(asked, s.host_inputs, rows);
  s.outputs = lay_out_choice_outputs(outputs, rows);
  s.host_outputs = lay_out_choice_outputs(host_outputs, rows);
  const auto range = [](const auto& buffer, uint64_t address, uint64_t bytes, const char* kind) {
    return NamedRange{buffer.name(), address, bytes, kind};
  };
  s.inputs_range = range(inputs_, inputs_.address(), inputs.used_bytes(), "input");
  s.host_inputs_range =
      range(*host_inputs_, reinterpret_cast<uint64_t>(host_inputs_->data()), inputs.used_bytes(), "input");
  s.outputs_range = range(outputs_, outputs_.address(), outputs.used_bytes(), "output");
  s.host_outputs_range =
      range(host_outputs_, reinterpret_cast<uint64_t>(host_outputs_.data()), outputs.used_bytes(), "output");
  s.asked_range = range(*asked_, reinterpret_cast<uint64_t>(asked_->data()), asked.used_bytes(), "input");
  lay_out_shaped(shaped, s, vocab_);
  s.counts = view_of<int32_t>(*counts_);
  s.counts_stride = static_cast<int64_t>(logits_stride_of(vocab_));
  s.scratch = shaped.ranges();
  return s;
}

uint64_t ChoiceSlot::bytes() const { return inputs_.bytes() + outputs_.bytes() + shaped_.bytes() + counts_->bytes(); }

void ChoiceSlot::poison() {
  for (const DeviceBuffer* buffer : {&shaped_, &outputs_})
    fill_device(device_, buffer->address(), std::byte{0xff}, buffer->bytes(), buffer->name());
  std::memset(host_inputs_->data(), 0xff, host_inputs_->bytes());
  std::memset(asked_->data(), 0xff, asked_->bytes());
}

}  // namespace nodewright
