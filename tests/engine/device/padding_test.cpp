// What a row's logits do not depend on: how many rows are live, which of them it is, who its neighbours are, what lies
// in padded rows and in pages that are not its own. And what a step does not touch.
#include <algorithm>

#include "models/kv_cache.h"
#include "tests/engine/parity/golden_model.h"

namespace nodewright {
namespace {

using namespace test;

constexpr int kPaddedSteps = 3;

// Sequences of other lengths that step along in other rows, some greedy and some sampled.
class Neighbours {
 public:
  Neighbours(Decoder& decoder, size_t vocab, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const Tokens prompt = some_tokens(1 + 11 * i, vocab, 100 + i);
      rows_.push_back({.sequence = decoder.open(), .token = prompt.back()});
      decoder.append(rows_.back().sequence, std::span(prompt).first(prompt.size() - 1));
      if (i % 2 == 1) rows_.back().sampling = {.temperature = 0.9f, .top_k = 50, .top_p = 0.9f, .seed = i};
    }
  }

  // A step of `row` at place `at` among `live` rows; the neighbours of one step are not those of the next.
  void step(Decoder& decoder, StepRow row, size_t live, size_t at) {
    std::rotate(rows_.begin(), rows_.begin() + (rows_.empty() ? 0 : 1), rows_.end());
    std::vector<StepRow> rows(rows_.begin(), rows_.begin() + static_cast<long>(live) - 1);
    rows.insert(rows.begin() + static_cast<long>(at), row);
    decoder.step(rows);
    for (size_t i = 0; i + 1 < live; ++i) rows_[i].token.reset();  // from now on what the device chose
  }

 private:
  std::vector<StepRow> rows_;
};

class Padding : public testing::TestWithParam<std::pair<std::string, int64_t>> {
 protected:
  LoadedModel loaded{GetParam().first};
  size_t bucket = static_cast<size_t>(GetParam().second);
  Decoder decoder = loaded.decoder(decoder_options(GetParam().second));
  // Its second step is the first on its second page.
  Tokens prompt = some_tokens(63, loaded.vocab(), 7), forced = some_tokens(kPaddedSteps, loaded.vocab(), 8);

  // The logits of the sequence under test as row `at` of `live`.
  std::vector<Logits> logits_at(Neighbours& neighbours, size_t live, size_t at, bool poisoned) {
    if (poisoned) decoder.poison();
    const int32_t sequence = decoder.open();
    decoder.append(sequence, prompt);
    std::vector<Logits> rows;
    for (int32_t token : forced) {
      if (poisoned) decoder.poison();
      neighbours.step(decoder, {.sequence = sequence, .token = token}, live, at);
      rows.push_back(logits_of(decoder, loaded, static_cast<int64_t>(at)));
    }
    decoder.close(sequence);
    return rows;
  }
};

TEST_P(Padding, ARowHasTheSameBitsForEveryLiveCountEveryPlaceAndEveryNeighbour) {
  Neighbours neighbours(decoder, loaded.vocab(), bucket - 1);
  const std::vector<Logits> alone = logits_at(neighbours, 1, 0, false);
  for (const Logits& row : alone) ASSERT_TRUE(std::all_of(row.begin(), row.end(), [](float x) { return x == x; }));
  for (size_t live = 1; live <= bucket; ++live)
    for (size_t at = 0; at < live; ++at)
      EXPECT_TRUE(same_bits(logits_at(neighbours, live, at, false), alone)) << "row " << at << " of " << live;
}

TEST_P(Padding, NaNInPaddedRowsAndUnownedPagesChangesNothing) {
  Neighbours neighbours(decoder, loaded.vocab(), bucket - 1);
  const std::vector<Logits> alone = logits_at(neighbours, 1, 0, false);
  for (size_t live = 1; live <= bucket; ++live)
    EXPECT_TRUE(same_bits(logits_at(neighbours, live, live / 2, true), alone)) << live << " live";
}

std::vector<std::pair<std::string, int64_t>> golden_models_of(std::initializer_list<int64_t> buckets) {
  std::vector<std::pair<std::string, int64_t>> all;
  for (const std::string& model : kGoldenModels)
    for (const int64_t bucket : buckets) all.emplace_back(model, bucket);
  return all;
}

std::string model_and_bucket(const testing::TestParamInfo<std::pair<std::string, int64_t>>& info) {
  return golden_test_name({info.param.first, info.index}) + "_bucket_" + std::to_string(info.param.second);
}

INSTANTIATE_TEST_SUITE_P(Golden, Padding, testing::ValuesIn(golden_models_of({4})), model_and_bucket);
INSTANTIATE_TEST_SUITE_P(GoldenSweep, Padding, testing::ValuesIn(golden_models_of({1, 2, 8})), model_and_bucket);

// Reads the whole pool of pages before and after steps. [pages, 2, kv_heads, page, padded head_dim] bf16 a layer.
class PagesOfAStep : public testing::Test {
 protected:
  static constexpr int64_t kBucket = 4;
  LoadedModel loaded{"llama/odd_sizes"};
  Decoder decoder = loaded.decoder(decoder_options(kBucket));
  const ModelConfig& config = loaded.model.config();
  uint64_t page_bytes = KvCache::page_bytes(config);

  std::vector<std::vector<std::byte>> pool() {  // by layer
    std::vector<std::vector<std::byte>> layers;
    for (const Buffer& buffer : decoder.plan().buffers) {
      if (buffer.range.kind != "kv") continue;
      layers.emplace_back(buffer.range.bytes);
      read_device(loaded.device, layers.back(), buffer.range.address, buffer.range.name);
    }
    EXPECT_EQ(layers.size(), static_cast<size_t>(config.layers));
    return layers;
  }

  // Where the pool differs, as pairs of page and slot, in any layer.
  std::vector<std::pair<int64_t, int64_t>> changed_slots(const std::vector<std::vector<std::byte>>& before,
                                                         const std::vector<std::vector<std::byte>>& after) {
    const uint64_t head_bytes = page_bytes / static_cast<uint64_t>(2 * config.kv_heads);
    const uint64_t slot_bytes = head_bytes / kPageTokens;
    std::vector<std::pair<int64_t, int64_t>> changed;
    for (size_t layer = 0; layer < before.size(); ++layer)
      for (uint64_t i = 0; i < before[layer].size(); ++i)
        if (before[layer][i] != after[layer][i])
          changed.emplace_back(i / page_bytes, i % page_bytes % head_bytes / slot_bytes);
    std::sort(changed.begin(), changed.end());
    changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
    return changed;
  }
};

TEST_F(PagesOfAStep, AStepWritesOneSlotOfEveryLiveRowAndNothingElse) {
  // Three sequences, two of them live, lengths 5, 64 (its next token starts a page) and 70.
  std::vector<int32_t> sequences;
  for (size_t length : {5, 64, 70}) {
    const int32_t sequence = decoder.open();
    sequences.push_back(sequence);
    decoder.append(sequence, some_tokens(length, loaded.vocab(), length));
  }
  decoder.poison();
  const auto before = pool();
  decoder.step({{.sequence = sequences[1], .token = 3}, {.sequence = sequences[0], .token = 4}});
  std::vector<std::pair<int64_t, int64_t>> expected{{decoder.pages_of(sequences[0])[0], 5},
                                                    {decoder.pages_of(sequences[1])[1], 0}};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(changed_slots(before, pool()), expected);
}

TEST_F(PagesOfAStep, APrefillChunkWritesItsOwnSlotsAndNothingElse) {
  const int32_t other = decoder.open(), sequence = decoder.open();
  decoder.append(other, some_tokens(70, loaded.vocab(), 1));
  decoder.append(sequence, some_tokens(62, loaded.vocab(), 2));
  decoder.poison();
  const auto before = pool();
  decoder.append(sequence, some_tokens(3, loaded.vocab(), 3));
  const Tokens pages = decoder.pages_of(sequence);
  std::vector<std::pair<int64_t, int64_t>> expected{{pages[0], 62}, {pages[0], 63}, {pages[1], 0}};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(changed_slots(before, pool()), expected);
}

TEST_F(PagesOfAStep, PoisonLeavesOwnedPagesAndFillsTheOthers) {
  const int32_t sequence = decoder.open();
  decoder.append(sequence, some_tokens(70, loaded.vocab(), 1));
  const Tokens owned = decoder.pages_of(sequence);
  const auto before = pool();
  decoder.poison();
  const auto after = pool();
  for (size_t layer = 0; layer < after.size(); ++layer)
    for (int32_t page = 0; page < decoder.device().cache().pages(); ++page) {
      const auto first = after[layer].begin() + static_cast<long>(static_cast<uint64_t>(page) * page_bytes);
      if (std::count(owned.begin(), owned.end(), page))
        EXPECT_TRUE(std::equal(first, first + static_cast<long>(page_bytes),
                               before[layer].begin() + (first - after[layer].begin())));
      else
        EXPECT_TRUE(std::all_of(first, first + static_cast<long>(page_bytes),
                                [](std::byte b) { return b == std::byte{0xff}; }));
    }
}

}  // namespace
}  // namespace nodewright
