// A checkpoint in int4 against the same numbers in bf16: logits differ by the order of sums alone.
#include <filesystem>
#include <map>

#include "tests/engine/adapters/adapted_model.h"
#include "tests/engine/adapters/written_adapter.h"
#include "tests/engine/sleeper.h"
#include "tests/engine/stages/stages_decoder.h"
#include "tests/models/int4_checkpoint.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

using namespace test;

struct Stored {
  Int4Form form;
  int64_t group;
};

class Int4Weights : public testing::TestWithParam<Stored> {
 protected:
  Int4Weights() : checkpoint_(GetParam().form, GetParam().group) {}
  Int4Checkpoint checkpoint_;
  const Tokens prompt_ = some_tokens(20, static_cast<size_t>(Int4Checkpoint::kVocab), 3),
               continuation_ = some_tokens(3, static_cast<size_t>(Int4Checkpoint::kVocab), 4);

  // One row, two, tiles, held tiles of one group and of several, products of the library; a part of them in other
  // groups.
  static std::vector<int64_t> rows_of_steps() {
    if (GetParam().group == 128) return {1, 2, 4, 8, 24, 40, 72};
    if (GetParam().group == 64) return {1, 8, 40};
    return {1, 4, 72};
  }
  static DecoderOptions options_of(int64_t rows, RunMode mode = RunMode::explicit_) {
    DecoderOptions options = decoder_options(rows, mode);
    options.sequences = rows, options.prefill_rows = std::max<int64_t>(rows, 8);
    return options;
  }
  std::vector<Logits> logits_of(LoadedModel& loaded, const DecoderOptions& options) {
    Decoder decoder = loaded.decoder(options);
    return forced_logits(decoder, loaded, prompt_, continuation_);
  }
};

TEST_P(Int4Weights, GiveTheLogitsOfTheSameWeightsInBf16) {
  const std::vector<int64_t> rows = rows_of_steps();
  std::vector<std::vector<Logits>> int4, bf16;
  uint64_t bytes_per_token = 0;
  {
    LoadedModel loaded(checkpoint_.in_int4());
    const WeightLayouts& layouts = loaded.model.config().layouts;
    for (const WeightLayout& layout : {layouts.qkv, layouts.out, layouts.gate_up, layouts.down}) {
      EXPECT_TRUE(layout.is_int4());
      EXPECT_EQ(layout.group, GetParam().group);
    }
    bytes_per_token = loaded.model.weights().bytes_per_token();
    for (const int64_t n : rows) int4.push_back(logits_of(loaded, options_of(n)));
  }
  LoadedModel loaded(checkpoint_.in_bf16());
  EXPECT_LT(bytes_per_token, loaded.model.weights().bytes_per_token() * 4 / 10);
  for (size_t i = 0; i < rows.size(); ++i)
    EXPECT_LE(relative_error(int4[i], logits_of(loaded, options_of(rows[i]))), 0.01) << rows[i] << " rows";
}

TEST_P(Int4Weights, GiveTheLogitsOfBf16WithAnAdapter) {
  const ScratchFolder adapter;
  write_adapter(adapter.path(), read_model_config(checkpoint_.in_bf16()), 8, 5, 0.05f);
  const auto logits = [&](const std::string& folder, int64_t rows, bool adapted) {
    LoadedModel loaded(folder);
    DecoderOptions options = options_of(rows);
    options.adapters = adapter_limits(1, 8);
    Decoder decoder = loaded.decoder(options);
    load_adapter(decoder, loaded, 0, adapter.path());
    return adapted_logits(decoder, loaded, adapted ? 0 : -1, prompt_, continuation_);
  };
  for (const int64_t rows : GetParam().group == 64 ? std::vector<int64_t>{8, 24} : std::vector<int64_t>{1, 4, 72}) {
    const std::vector<Logits> int4 = logits(checkpoint_.in_int4(), rows, true);
    EXPECT_LE(relative_error(int4, logits(checkpoint_.in_bf16(), rows, true)), 0.01) << rows << " rows";
    EXPECT_GT(relative_error(int4, logits(checkpoint_.in_int4(), rows, false)), 0.03) << rows << " rows";
  }
}

TEST_P(Int4Weights, ModesChangeNoBit) {
  LoadedModel loaded(checkpoint_.in_int4());
  for (const int64_t rows : rows_of_steps()) {
    const std::vector<Logits> first = logits_of(loaded, options_of(rows));
    for (const RunMode mode : {RunMode::captured, RunMode::eager})
      EXPECT_TRUE(same_bits(logits_of(loaded, options_of(rows, mode)), first)) << rows << " rows, " << to_string(mode);
  }
}

TEST_P(Int4Weights, HaveTheSameBitsInEveryStepWithInvariantNumerics) {
  LoadedModel loaded(checkpoint_.in_int4());
  std::vector<Logits> first;
  for (const auto& [rows, chunk] : {std::pair{1, 8}, {2, 1}, {8, 3}, {40, 40}, {72, 16}}) {
    DecoderOptions options = options_of(rows);
    options.prefill_rows = chunk, options.numerics = Numerics::invariant;
    const std::vector<Logits> all = logits_of(loaded, options);
    if (first.empty()) first = all;
    EXPECT_TRUE(same_bits(all, first)) << rows << " rows, chunks of " << chunk;
  }
}

TEST_P(Int4Weights, ServeTheSameTokensAfterSleep) {
  Sleeper on(checkpoint_.in_int4());
  expect_served_after_sleep(on, on.served());
}

// Graphs are of the formats that were loaded.
TEST_P(Int4Weights, ACheckpointInOtherFormatsDoesNotWake) {
  Sleeper on(checkpoint_.in_int4());
  const std::map<RequestId, Tokens> expected = on.served();
  on.sleep.sleep(SleepLevel::weights_dropped);
  const ScratchFolder kept;
  const auto replace = [](const std::filesystem::path& by, const std::filesystem::path& folder) {
    for (const char* name : {"model.safetensors", "config.json"})
      std::filesystem::copy_file(by / name, folder / name, std::filesystem::copy_options::overwrite_existing);
  };
  replace(checkpoint_.in_int4(), kept.path());
  replace(checkpoint_.in_bf16(), checkpoint_.in_int4());
  expect_error([&] { on.sleep.wake(); }, {"other formats than when it was loaded"});
  replace(kept.path(), checkpoint_.in_int4());
  on.sleep.wake();
  EXPECT_EQ(on.served(), expected);
}

class Int4Stages : public Int4Weights {};

TEST_P(Int4Stages, HaveTheBitsOfOneDevice) {
  for (const int64_t rows : {rows_of_steps().front(), rows_of_steps().back()}) {
    std::vector<Logits> first;
    for (const int count : {1, 2}) {
      LoadedStages loaded(checkpoint_.in_int4(), count, test_device());
      for (const DecoderModel& model : loaded.models) EXPECT_TRUE(model.config().layouts.down.is_int4());
      const std::vector<Logits> all = StagesDecoder(loaded, rows).forced(prompt_, continuation_, true);
      if (count == 1) first = all;
      EXPECT_TRUE(same_bits(all, first)) << rows << " rows";
    }
  }
}

const auto kStored =
    testing::Values(Stored{Int4Form::compressed, 128}, Stored{Int4Form::gptq, 64}, Stored{Int4Form::awq, 32});
std::string name_of(const testing::TestParamInfo<Stored>& info) {
  return "groups_of_" + std::to_string(info.param.group);
}
INSTANTIATE_TEST_SUITE_P(Formats, Int4Weights, kStored, name_of);
INSTANTIATE_TEST_SUITE_P(TwoDevices, Int4Stages, kStored, name_of);

}  // namespace
}  // namespace nodewright
