#include "models/choice_state.h"

#include <cstring>

#include "kernels_src/record_choice.h"
#include "kernels_src/shape_logits.h"

namespace nodewright {
namespace {

// A layout measured without memory: any aligned address will do.
constexpr uint64_t kNoChoiceAddress = kArenaAlignBytes;
constexpr uint64_t kNoChoiceBound = uint64_t{1} << 62;

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
  take(in.temperature, "choice.temperature", n);
  take(in.top_k, "choice.top_k", n);
  take(in.top_p, "choice.top_p", n);
  take(in.seed, "choice.seed", n);
  take(in.output_index, "choice.output_index", n);
  take(in.min_p, "choice.min_p", n);
  take(in.repetition_penalty, "choice.repetition_penalty", n);
  take(in.presence_penalty, "choice.presence_penalty", n);
  take(in.frequency_penalty, "choice.frequency_penalty", n);
  take(in.counted, "choice.counted", n);
  take(in.logprobs, "choice.logprobs", n);
  take(in.biases, "choice.biases", n);
  take(in.bias_tokens, "choice.bias_tokens", n * kMostBiases);
  take(in.bias_values, "choice.bias_values", n * kMostBiases);
  take(in.constrained, "choice.constrained", n);
  take(in.masks, "choice.masks", n * static_cast<uint64_t>(in.mask_words));
  return in;
}

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

uint64_t choice_inputs_bytes(int64_t rows, int64_t vocab) {
  Arena arena("inputs", kNoChoiceAddress, kNoChoiceBound);
  lay_out_choice_inputs(arena, rows, vocab);
  return arena.used_bytes();
}

uint64_t choice_outputs_bytes(int64_t rows) {
  Arena arena("outputs", kNoChoiceAddress, kNoChoiceBound);
  lay_out_choice_outputs(arena, rows);
  return arena.used_bytes();
}

uint64_t logits_stride_of(int64_t vocab) { return static_cast<uint64_t>((vocab + 7) / 8 * 8); }

Arena arena_over(const PinnedBuffer& buffer) {
  return {buffer.name(), reinterpret_cast<uint64_t>(buffer.data()), buffer.bytes()};
}

}  // namespace

ChoiceSlot::ChoiceSlot(Device& device, const ModelConfig& config, const DecodeLimits& limits)
    : ChoiceSlot(device, config, limits,
                 std::make_shared<DeviceBuffer>(
                     device, "choice.counts",
                     static_cast<uint64_t>(limits.sequences) * static_cast<uint64_t>(config.vocab) * sizeof(int32_t))) {
  fill_device(device, counts_->address(), std::byte{0}, counts_->bytes(), counts_->name());
}

ChoiceSlot::ChoiceSlot(const ChoiceSlot& first)
    : ChoiceSlot(first.device_, ModelConfig{.vocab = first.vocab_}, first.limits_, first.counts_) {}

ChoiceSlot::ChoiceSlot(Device& device, const ModelConfig& config, const DecodeLimits& limits,
                       std::shared_ptr<DeviceBuffer> counts)
    : device_(device),
      vocab_(config.vocab),
      limits_(limits),
      inputs_(device, "choice.inputs", choice_inputs_bytes(limits.rows, config.vocab)),
      outputs_(device, "choice.outputs", choice_outputs_bytes(limits.rows)),
      shaped_(device, "choice.shaped",
              static_cast<uint64_t>(limits.rows) * logits_stride_of(config.vocab) * sizeof(float)),
      counts_(std::move(counts)),
      host_inputs_(device, "host.choice.inputs", inputs_.bytes()),
      host_outputs_(device, "host.choice.outputs", outputs_.bytes()) {
  // No value of a row past n_live matters, but every byte that is loaded or copied has been written once.
  fill_device(device, shaped_.address(), std::byte{0}, shaped_.bytes(), shaped_.name());
  fill_device(device, outputs_.address(), std::byte{0}, outputs_.bytes(), outputs_.name());
  std::memset(host_inputs_.data(), 0, host_inputs_.bytes());
}

ChoiceState ChoiceSlot::state(int64_t rows) const {
  ChoiceState s;
  s.rows = rows;
  Arena inputs(inputs_), outputs(outputs_), shaped(shaped_);
  Arena host_inputs = arena_over(host_inputs_), host_outputs = arena_over(host_outputs_);
  s.inputs = lay_out_choice_inputs(inputs, rows, vocab_);
  s.host_inputs = lay_out_choice_inputs(host_inputs, rows, vocab_);
  s.outputs = lay_out_choice_outputs(outputs, rows);
  s.host_outputs = lay_out_choice_outputs(host_outputs, rows);
  const auto range = [](const auto& buffer, uint64_t address, uint64_t bytes, const char* kind) {
    return NamedRange{buffer.name(), address, bytes, kind};
  };
  s.inputs_range = range(inputs_, inputs_.address(), inputs.used_bytes(), "input");
  s.host_inputs_range =
      range(host_inputs_, reinterpret_cast<uint64_t>(host_inputs_.data()), inputs.used_bytes(), "input");
  s.outputs_range = range(outputs_, outputs_.address(), outputs.used_bytes(), "output");
  s.host_outputs_range =
      range(host_outputs_, reinterpret_cast<uint64_t>(host_outputs_.data()), outputs.used_bytes(), "output");
  s.shaped = shaped.take<float>("choice.shaped", static_cast<uint64_t>(rows) * logits_stride_of(vocab_), "activation");
  s.counts = view_of<int32_t>(*counts_);
  s.scratch = shaped.ranges();
  return s;
}

uint64_t ChoiceSlot::bytes() const { return inputs_.bytes() + outputs_.bytes() + shaped_.bytes() + counts_->bytes(); }

void ChoiceSlot::poison() {
  for (const DeviceBuffer* buffer : {&shaped_, &outputs_})
    fill_device(device_, buffer->address(), std::byte{0xff}, buffer->bytes(), buffer->name());
  std::memset(host_inputs_.data(), 0xff, host_inputs_.bytes());
}

}  // namespace nodewright
