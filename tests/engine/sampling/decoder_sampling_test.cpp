// Tokens that steps choose: greedy, sampled from a seed, and fed to the next step without leaving the device.
#include <algorithm>

#include "tests/engine/parity/golden_model.h"

namespace nodewright {
namespace {

using namespace test;

class DecoderSampling : public testing::Test {
 protected:
  LoadedModel loaded{"llama/odd_sizes"};
  Decoder decoder = loaded.decoder(decoder_options(8));
  Tokens prompt = some_tokens(9, loaded.vocab(), 1);

  int32_t open_with_prompt() {
    const int32_t sequence = decoder.open();
    decoder.append(sequence, std::span(prompt).first(prompt.size() - 1));
    return sequence;
  }

  // `count` tokens after the prompt, in row `at` of `live`; the other rows hold sequences with other prompts.
  Tokens generate(const Sampling& sampling, size_t count, size_t live = 1, size_t at = 0) {
    std::vector<StepRow> rows;
    for (size_t i = 0; i < live; ++i) {
      if (i == at) {
        rows.push_back({.sequence = open_with_prompt(), .token = prompt.back(), .sampling = sampling});
        continue;
      }
      rows.push_back({.sequence = decoder.open(), .token = static_cast<int32_t>(20 + i)});
      if (i % 2 == 0) rows.back().sampling = {.temperature = 1.5f, .seed = sampling.seed};  // the same seed elsewhere
      decoder.append(rows.back().sequence, some_tokens(3 * i, loaded.vocab(), i));
    }
    Tokens chosen;
    for (size_t i = 0; i < count; ++i) {
      chosen.push_back(decoder.step(rows)[at]);
      for (StepRow& row : rows) row.token.reset();
    }
    for (const StepRow& row : rows) decoder.close(row.sequence);
    return chosen;
  }
};

TEST_F(DecoderSampling, OneSeedGivesTheSameTokensAloneInABatchAndInAnotherRow) {
  for (const Sampling& sampling : {Sampling{.temperature = 1.0f, .seed = 42},
                                   Sampling{.temperature = 1.3f, .top_k = 40, .top_p = 0.95f, .seed = 7}}) {
    const Tokens alone = generate(sampling, 12);
    EXPECT_EQ(generate(sampling, 12), alone) << "a second time";
    EXPECT_EQ(generate(sampling, 12, 7, 0), alone) << "row 0 of 7";
    EXPECT_EQ(generate(sampling, 12, 7, 5), alone) << "row 5 of 7";
    EXPECT_EQ(generate(sampling, 12, 8, 7), alone) << "row 7 of 8";
  }
}

TEST_F(DecoderSampling, OtherSeedsGiveOtherTokens) {
  std::vector<Tokens> all;
  for (uint64_t seed = 0; seed < 6; ++seed) all.push_back(generate({.temperature = 1.0f, .seed = seed}, 12));
  all.push_back(generate({}, 12));
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]) << i << " and " << j;
}

TEST_F(DecoderSampling, GreedyIsTheLargestLogit) {
  const int32_t greedy = open_with_prompt(), cold = open_with_prompt();
  std::vector<StepRow> rows{{.sequence = greedy, .token = prompt.back(), .sampling = {}},
                            {.sequence = cold, .token = prompt.back(), .sampling = {.temperature = 1e-6f, .seed = 3}}};
  for (int step = 0; step < 8; ++step) {
    const std::span<const int32_t> chosen = decoder.step(rows);
    const Logits logits = logits_of(decoder, loaded);
    EXPECT_EQ(chosen[0], std::max_element(logits.begin(), logits.end()) - logits.begin()) << "step " << step;
    EXPECT_EQ(chosen[1], chosen[0]) << "a temperature below 1e-5 is greedy";
    for (StepRow& row : rows) row.token.reset();
  }
}

TEST_F(DecoderSampling, TopOneIsTheLargestLogitAtAnyTemperature) {
  EXPECT_EQ(generate({.temperature = 2.0f, .top_k = 1, .seed = 9}, 8), generate({}, 8));
}

TEST_F(DecoderSampling, TheTokenFedOnTheDeviceIsTheOneTheHostWasTold) {
  const int32_t device = open_with_prompt(), host = open_with_prompt();
  const Sampling sampling{.temperature = 1.0f, .seed = 11};
  std::vector<StepRow> rows{{.sequence = device, .token = prompt.back(), .sampling = sampling},
                            {.sequence = host, .token = prompt.back(), .sampling = sampling}};
  for (int step = 0; step < 8; ++step) {
    const std::span<const int32_t> chosen = decoder.step(rows);
    EXPECT_EQ(chosen[0], chosen[1]) << "step " << step;
    EXPECT_TRUE(same_bits(logits_of(decoder, loaded, 0), logits_of(decoder, loaded, 1))) << "step " << step;
    rows[0].token.reset();
    rows[1].token = chosen[1];
  }
}

TEST_F(DecoderSampling, ASequenceOpenedInAUsedPlaceStartsItsRandomStreamAnew) {
  const Sampling sampling{.temperature = 1.0f, .seed = 5};
  const Tokens first = generate(sampling, 6);
  generate({.temperature = 1.0f, .seed = 6}, 3);
  EXPECT_EQ(generate(sampling, 6), first);
}

}  // namespace
}  // namespace nodewright
