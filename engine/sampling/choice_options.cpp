#include "engine/sampling/choice_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "kernels_src/sampling/record_choice.h"
#include "kernels_src/sampling/shape_logits.h"

namespace nodewright {
namespace {

std::string why_not_biases(const ChoiceOptions& options, std::span<const int32_t> stop_ids, int64_t vocab) {
  std::set<int32_t> tokens;
  for (const TokenBias& bias : options.biases) {
    if (bias.token < 0 || bias.token >= vocab)
      return fmt::format("a bias of token {}: the vocabulary has {} tokens", bias.token, vocab);
    if (!tokens.insert(bias.token).second) return fmt::format("token {} has two biases", bias.token);
    if (!(bias.bias >= -100 && bias.bias <= 100) && bias.bias != -INFINITY)
      return fmt::format("a bias of {} for token {} is outside -100 to 100", bias.bias, bias.token);
  }
  for (const std::vector<int32_t>& sequence : options.bad_sequences) {
    if (sequence.empty()) return "a bad sequence of no tokens";
    for (const int32_t token : sequence)
      if (token < 0 || token >= vocab)
        return fmt::format("token {} of a bad sequence: the vocabulary has {} tokens", token, vocab);
  }
  const size_t entries =
      options.biases.size() + options.bad_sequences.size() + (options.min_tokens > 0 ? stop_ids.size() : 0);
  if (entries > static_cast<size_t>(kMostBiases))
    return fmt::format("{} biases, bad sequences and stop ids of min_tokens, and a row holds {}", entries, kMostBiases);
  return "";
}

// Whether one more token would complete the sequence.
bool ends_with_its_beginning(std::span<const int32_t> outputs, const std::vector<int32_t>& sequence) {
  const size_t before = sequence.size() - 1;
  return outputs.size() >= before && std::equal(sequence.begin(), sequence.end() - 1, outputs.end() - before);
}

}  // namespace

TokenLogprobs logprobs_of(const ChoiceOutputs& out, int32_t choice, RequestId request, int64_t output, int top) {
  TokenLogprobs told{request, output, out.tokens.data[choice], out.logprob.data[choice], {}};
  for (int64_t k = choice * kMostLogprobs, end = k + top; k < end; ++k)
    if (const int32_t token = out.top_tokens.data[k]; token >= 0)
      told.top.emplace_back(token, out.top_logprobs.data[k]);
  return told;
}

std::string why_not(const ChoiceOptions& options, std::span<const int32_t> stop_ids, int64_t vocab) {
  if (options.min_tokens < 0) return fmt::format("a min_tokens of {} is negative", options.min_tokens);
  if (!(options.repetition_penalty > 0 && options.repetition_penalty <= 100))
    return fmt::format("a repetition_penalty of {} is outside 0 to 100, 0 excluded", options.repetition_penalty);
  if (!(std::abs(options.presence_penalty) <= 100))
    return fmt::format("a presence_penalty of {} is outside -100 to 100", options.presence_penalty);
  if (!(std::abs(options.frequency_penalty) <= 100))
    return fmt::format("a frequency_penalty of {} is outside -100 to 100", options.frequency_penalty);
  if (options.logprobs < -1 || options.logprobs > kMostLogprobs)
    return fmt::format("logprobs of {} tokens is outside 0 to {}", options.logprobs, kMostLogprobs);
  if (options.prompt_logprobs < -1 || options.prompt_logprobs > kMostLogprobs)
    return fmt::format("prompt_logprobs of {} tokens is outside 0 to {}", options.prompt_logprobs, kMostLogprobs);
  return why_not_biases(options, stop_ids, vocab);
}

void write_choice(const ChoiceInputs& in, int64_t row, const RowChoice& choice) {
  const ChoiceOptions& options = choice.options;
  in.rows.data[row] = choice.step_row;
  in.sequences.data[row] = choice.sequence;
  in.forced.data[row] = choice.forced;
  in.temperature.data[row] = choice.sampling.temperature;
  in.top_k.data[row] = choice.sampling.top_k;
  in.top_p.data[row] = choice.sampling.top_p;
  in.seed.data[row] = choice.sampling.seed.value_or(0);
  in.output_index.data[row] = static_cast<int32_t>(choice.output);
  in.min_p.data[row] = choice.sampling.min_p;
  in.repetition_penalty.data[row] = options.repetition_penalty;
  in.presence_penalty.data[row] = options.presence_penalty;
  in.frequency_penalty.data[row] = options.frequency_penalty;
  in.counted.data[row] = options.penalises();
  in.logprobs.data[row] = options.logprobs;
  in.constrained.data[row] = options.allow != nullptr;

  int32_t* tokens = in.bias_tokens.data + row * kMostBiases;
  float* values = in.bias_values.data + row * kMostBiases;
  int32_t count = 0;
  const auto add = [&](int32_t token, float bias) {
    const auto had = std::find(tokens, tokens + count, token) - tokens;  // each token once: the kernel adds at once
    tokens[had] = token;
    values[had] = had < count ? values[had] + bias : bias;
    count = std::max(count, static_cast<int32_t>(had) + 1);
  };
  for (const TokenBias& bias : options.biases) add(bias.token, bias.bias);
  for (const std::vector<int32_t>& sequence : options.bad_sequences)
    if (ends_with_its_beginning(choice.outputs, sequence)) add(sequence.back(), -INFINITY);
  if (choice.output < options.min_tokens)
    for (const int32_t id : choice.stop_ids)
      if (id >= 0) add(id, -INFINITY);
  in.biases.data[row] = count;
}

std::span<uint32_t> cleared_mask(const ChoiceInputs& in, int64_t row) {
  const std::span mask(in.masks.data + row * in.mask_words, static_cast<size_t>(in.mask_words));
  std::ranges::fill(mask, 0u);
  return mask;
}

std::vector<int32_t> token_counts(std::span<const int32_t> prompt, std::span<const int32_t> outputs, int64_t vocab) {
  std::vector<int32_t> counts(static_cast<size_t>(vocab), 0);
  for (const int32_t token : prompt) counts[static_cast<size_t>(token)] = kInPrompt;
  for (const int32_t token : outputs) ++counts[static_cast<size_t>(token)];
  return counts;
}

}  // namespace nodewright
