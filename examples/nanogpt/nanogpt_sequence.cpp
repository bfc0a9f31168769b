#include "examples/nanogpt/nanogpt_sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "graph/run/eager_run.h"
#include "runtime/error.h"

namespace nodewright {

NanogptSequence::NanogptSequence(Device& device, const Stream& stream, KernelCache& kernels,
                                 const NanogptWeights& weights, const NanogptOptions& options)
    : device_(device),
      stream_(stream),
      kernels_(kernels),
      weights_(weights),
      options_(options),
      state_(device, weights.config()),
      step_plan_(
          nanogpt_step_plan(device, weights, nanogpt_kernels(kernels, weights.config(), 1), state_, options.policy)),
      step_(step_plan_, options.mode, stream) {}

void NanogptSequence::prepare(int64_t prompt_length) {
  if (prompt_length < 1 || prompt_length > weights_.config().context)
    throw Error({.doing = "use a nanoGPT prompt of length",
                 .object = std::to_string(prompt_length),
                 .detail = fmt::format("the context has 1 to {} positions", weights_.config().context),
                 .fault = Fault::usage});
  if (prompts_.contains(prompt_length)) return;
  prompts_.emplace(prompt_length,
                   nanogpt_prompt_plan(device_, weights_, nanogpt_kernels(kernels_, weights_.config(), prompt_length),
                                       state_, options_.policy));
}

void NanogptSequence::check_token(int32_t token) const {
  if (token >= 0 && token < weights_.config().vocab) return;
  throw Error({.doing = "use token",
               .object = std::to_string(token),
               .detail = fmt::format("the vocabulary has {} tokens", weights_.config().vocab),
               .fault = Fault::usage});
}

int32_t NanogptSequence::start(std::span<const int32_t> prompt, const NanogptSampling& sampling) {
  prepare(static_cast<int64_t>(prompt.size()));
  for (const int32_t token : prompt) check_token(token);
  NanogptInputs& in = state_.host_inputs;
  std::copy(prompt.begin(), prompt.end(), in.prompt.data);
  std::iota(in.prompt_positions.data, in.prompt_positions.data + in.prompt_positions.count, 0);
  in.prompt_length.data[0] = static_cast<int32_t>(prompt.size());
  in.one.data[0] = 1;
  in.position.data[0] = static_cast<int32_t>(prompt.size()) - 1;
  in.token.data[0] = -1;
  std::fill_n(in.sequence.data, in.sequence.count, 0);
  in.temperature.data[0] = sampling.temperature;
  in.top_k.data[0] = 0;
  in.top_p.data[0] = 1.0f;
  in.seed.data[0] = sampling.seed;
  length_ = static_cast<int64_t>(prompt.size());
  is_forced_ = false;
  run_eager(prompts_.at(length_), stream_);
  return finish();
}

std::optional<int32_t> NanogptSequence::step(std::optional<int32_t> forced) {
  if (room() == 0) return std::nullopt;
  if (forced) check_token(*forced);
  if (forced || is_forced_) {
    const View<int32_t> from = state_.host_inputs.token, to = state_.inputs.token;
    from.data[0] = forced.value_or(-1);
    write_device_async(stream_, to.address(), from.data, to.bytes(), "token");
    is_forced_ = forced.has_value();
  }
  submit(1);
  return finish();
}

void NanogptSequence::submit(int64_t count) {
  if (count > room())
    throw Error({.doing = "submit nanoGPT steps",
                 .object = std::to_string(count),
                 .detail = fmt::format("{} of {} positions are left", room(), weights_.config().context)});
  for (int64_t i = 0; i < count; ++i, ++length_) step_.launch();
}

int32_t NanogptSequence::finish() {
  stream_.synchronize();
  const int32_t token = state_.host_chosen.data[0];
  if (token < 0)
    throw Error({.doing = "choose the token after position",
                 .object = std::to_string(length_ - 1),
                 .detail = "a logit is NaN",
                 .advice = "check the weights"});
  return token;
}

void NanogptSequence::read_logits(std::span<float> logits) const {
  read_view(device_, logits, state_.logits, "logits");
}

}  // namespace nodewright
