// Rows with LoRA adapters on models split over several devices: against PEFT and one device, and without an adapter the
// bits of the graph that knows none.
#include <algorithm>

#include "tests/engine/adapters/adapted_model.h"
#include "tests/engine/adapters/written_adapter.h"
#include "tests/engine/parity/parity_limits.h"
#include "tests/engine/ranks/team_decoder.h"
#include "tests/support/scratch_folder.h"

namespace nodewright {
namespace {

using namespace test;

int64_t rows_of_form(const std::string& form) {
  return form == "one_row" ? 1 : form == "eight_rows" ? 8 : kProductsFromRows;
}
const std::vector<std::string> kTeamForms = {"one_row", "eight_rows", "products"};

// Those of models whose heads two devices share.
class TeamAdapters : public testing::TestWithParam<std::string> {};

TEST_P(TeamAdapters, LogitsAreThoseOfPeftInEveryForm) {
  LoadedTeam loaded(golden_folder(base_of(GetParam())), 2, test_device());
  const std::string golden = "adapters/" + GetParam();
  const std::vector<GoldenCase> cases = golden_cases_of(golden);
  for (const std::string& form : kTeamForms) {
    TeamDecoder decoder(loaded, rows_of_form(form), Numerics::fast, 0, adapter_limits(2, kGoldenRank));
    decoder.use_adapter(1, adapter_folder(GetParam()));
    for (size_t i = 0; i < cases.size(); ++i) {
      const std::vector<Logits> rows = agreed(decoder.forced(cases[i].prompt, cases[i].continuation, true));
      // 3 over the error that one device has is the project's limit; parity_limit() is 2.5 times that.
      EXPECT_LE(relative_error(rows, cases[i].expected), 1.2 * parity_limit(golden, form, i))
          << form << ", prompt of " << cases[i].prompt.size();
    }
  }
}

// Also where the last row of the step has one.
using TeamAdaptersSweep = TeamAdapters;

TEST_P(TeamAdaptersSweep, LeaveRowsWithoutOneTheirBits) {
  LoadedTeam loaded(golden_folder(base_of(GetParam())), 2, test_device());
  const GoldenCase one = golden_cases_of("adapters/" + GetParam()).at(1);
  const std::span<const int32_t> eight = std::span(one.prompt).first(8);
  for (const std::string& form : kTeamForms) {
    const int64_t rows = rows_of_form(form);
    TeamDecoder plain(loaded, rows), adapted(loaded, rows, Numerics::fast, 0, adapter_limits(2, kGoldenRank));
    adapted.use_adapter(0, adapter_folder(GetParam()));
    adapted.adapter_of([](int32_t) { return -1; });
    EXPECT_TRUE(same_bits(agreed(adapted.forced(one.prompt, one.continuation, true)),
                          agreed(plain.forced(one.prompt, one.continuation, true))))
        << form;
    if (rows != 8) continue;  // of the others one row alone has logits
    adapted.adapter_of([](int32_t position) { return position == 7 ? 0 : -1; });
    const std::vector<Logits> last = adapted.step(eight, 0, true), plain_last = plain.step(eight, 0, true);
    for (size_t rank = 0; rank < last.size(); ++rank) {
      EXPECT_TRUE(same_bits(adapted.logits(6)[rank], plain.logits(6)[rank])) << "rank " << rank;
      EXPECT_FALSE(same_bits(last[rank], plain_last[rank])) << "rank " << rank;
    }
  }
}

const auto kSplitAdapters = testing::Values("llama_all", "llama_root", "llama_layer", "llama_linear", "phi3", "gemma2",
                                            "granite", "olmo2", "qwen3_moe");
const auto kAdapterName = [](const auto& info) { return info.param; };
INSTANTIATE_TEST_SUITE_P(TwoDevices, TeamAdapters, kSplitAdapters, kAdapterName);
INSTANTIATE_TEST_SUITE_P(TwoDevices, TeamAdaptersSweep, kSplitAdapters, kAdapterName);

// A network that four devices share, with sizes that are odd otherwise.
void write_four_heads(const std::filesystem::path& folder) {
  std::ofstream(folder / "config.json") << nlohmann::json{{"architectures", {"Qwen2ForCausalLM"}},
                                                          {"model_type", "qwen2"},
                                                          {"hidden_size", 60},
                                                          {"num_hidden_layers", 2},
                                                          {"num_attention_heads", 8},
                                                          {"num_key_value_heads", 4},
                                                          {"head_dim", 12},
                                                          {"intermediate_size", 52},
                                                          {"vocab_size", 131},
                                                          {"max_position_embeddings", 128},
                                                          {"tie_word_embeddings", false},
                                                          {"rms_norm_eps", 1e-6},
                                                          {"rope_theta", 10000.0},
                                                          {"eos_token_id", 0},
                                                          {"hidden_act", "silu"}};
}

struct SplitCase {
  std::filesystem::path model, adapter;
  bool draws = false;
  Tokens prompt, continuation;
};

// On one device, which is closed after it; without an adapter where `slot` is -1.
std::vector<Logits> adapted_logits_of_one(const SplitCase& of, int32_t slot) {
  OpenedDevice one = open_device("cpu");
  KernelCache kernels(one);
  const Stream stream(one, "decode");
  const DecoderModel model = DecoderModel::begin_load(one, of.model, {}, {.draws_weights = of.draws});
  model.wait();
  DecoderOptions options{.bucket = 1, .max_context = 64};
  options.adapters = adapter_limits(2, kGoldenRank);
  options.keep_logits = true;
  Decoder alone(one, kernels, model, options);
  const AdapterLayout& layout = alone.device().adapters()->layout();
  const LoraAdapter adapter = LoraAdapter::open(of.adapter, model.config(), kGoldenRank);
  const AdapterImage image(one, adapter, model.config(), layout);
  alone.device().adapters()->upload(stream, 1, image);
  stream.synchronize();
  const int32_t sequence = alone.open(slot);
  alone.append(sequence, std::span(of.prompt).first(of.prompt.size() - 1));
  Tokens forced{of.prompt.back()};
  forced.insert(forced.end(), of.continuation.begin(), of.continuation.end());
  std::vector<Logits> all;
  for (const int32_t token : forced) {
    alone.step({{.sequence = sequence, .token = token}});
    all.emplace_back(static_cast<size_t>(model.config().vocab));
    alone.read_logits(0, all.back());
  }
  return all;
}

// In every form, within rounding; far from those without the adapter.
void expect_those_of_one(const SplitCase& of, int ranks) {
  const std::vector<Logits> expected = adapted_logits_of_one(of, 1), plain = adapted_logits_of_one(of, -1);
  ASSERT_GT(relative_error(plain, expected), 0.2) << "the adapter changes little";
  LoadedTeam loaded(of.model, ranks, "cpu", of.draws);
  for (const std::string& form : kTeamForms) {
    TeamDecoder decoder(loaded, rows_of_form(form), Numerics::fast, 0, adapter_limits(2, kGoldenRank));
    decoder.use_adapter(1, of.adapter);
    const double error = relative_error(agreed(decoder.forced(of.prompt, of.continuation)), expected);
    EXPECT_LE(error, 0.03) << ranks << " ranks, " << form;
    EXPECT_GT(error, 0) << "compared with itself?";
  }
}

TEST(TeamAdaptersSweepOnCpuDriver, FourDevicesGiveTheLogitsOfOne) {
  ScratchFolder model, adapter;
  write_four_heads(model.path());
  write_adapter(adapter.path(), read_model_config(model.path()), 6, 3);
  expect_those_of_one({model.path(), adapter.path(), true, some_tokens(11, 131, 5), some_tokens(3, 131, 6)}, 4);
}

// Whose matrices are stored the other way round, with biases and without a gate.
TEST(TeamAdaptersSweepOnCpuDriver, Gpt2IsSplitAsItsWeightsAre) {
  ScratchFolder adapter;
  const std::filesystem::path model = golden_folder("gpt2/nanogpt");
  const ModelConfig config = read_model_config(model);
  const auto vocab = static_cast<size_t>(config.vocab);
  write_adapter(adapter.path(), config, 8, 4, 0.15f);
  expect_those_of_one({model, adapter.path(), false, some_tokens(11, vocab, 5), some_tokens(3, vocab, 6)}, 2);
}

}  // namespace
}  // namespace nodewright
