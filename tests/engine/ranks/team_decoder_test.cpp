// Models split over several devices: logits against transformers, the same bits on all ranks however late one
// is, and what cannot be split.
#include "tests/engine/ranks/team_decoder.h"

#include <random>
#include <set>

#include "tests/engine/parity/parity_limits.h"
#include "tests/engine/ranks/shared_sizes.h"
#include "tests/support/error_text.h"
#include "tests/support/scratch_folder.h"

namespace nodewright {
namespace {

using namespace test;

// On the CPU driver, where most of the time goes into compiling, some stand for all in every form but eight rows.
bool tries(const std::string& name, const std::string& form) {
  const std::set<std::string> some = {"llama/odd_sizes",  "gpt2/nanogpt",        "gemma2/caps",
                                      "cohere/parallel",  "granite/multipliers", "starcoder2/window_16",
                                      "olmo2/wide_norms", "olmoe/wide_norms",    "qwen3_moe/every_second"};
  return test_device_is_cuda() || form == "eight_rows" || some.contains(name);
}

int64_t rows_of(const std::string& form) {
  return form == "one_row" ? 1 : form == "eight_rows" ? 8 : kProductsFromRows;
}

// On two GPUs where the tests run on one.
class SplitFamilies : public testing::TestWithParam<std::string> {};

TEST_P(SplitFamilies, LogitsAreThoseOfTransformersInEveryForm) {
  LoadedTeam loaded(golden_folder(GetParam()), 2, test_device());
  const std::vector<GoldenCase> cases = golden_cases_of(GetParam());
  for (const std::string form : {"one_row", "eight_rows", "products"}) {
    if (!tries(GetParam(), form)) continue;
    TeamDecoder decoder(loaded, rows_of(form));
    for (size_t i = 0; i < cases.size(); ++i) {
      const std::vector<Logits> rows = agreed(decoder.forced(cases[i].prompt, cases[i].continuation, true));
      // 3 over the error that one device has is the project's limit; parity_limit() is 2.5 times that.
      EXPECT_LE(relative_error(rows, cases[i].expected), 1.2 * parity_limit(GetParam(), form, i))
          << form << ", prompt of " << cases[i].prompt.size();
    }
  }
}

// Structures that others have, too: in sweeps and on GPUs.
const std::vector<std::string> kLikeOthers = {
    "cohere2/hybrid",        "exaone/names",     "exaone4/global",    "exaone4/hybrid",   "gemma/first",
    "granite/multipliers",   "llama/biases",     "llama/dynamic",     "llama/yarn",       "mistral/window_16",
    "mixtral/two_of_four",   "olmoe/wide_norms", "phi3/long",         "phi3/short",       "smollm3/unrotated",
    "qwen3_moe/dense_first", "qwen3_moe/normed", "stablelm/parallel", "stablelm/partial", "starcoder2/window_16"};
INSTANTIATE_TEST_SUITE_P(TwoDevices, SplitFamilies, testing::ValuesIn(split_goldens(kLikeOthers)), golden_test_name);
INSTANTIATE_TEST_SUITE_P(TwoDevicesSweep, SplitFamilies, testing::ValuesIn(kLikeOthers), golden_test_name);

// A network that eight devices share.
const char* const kSharedNetwork = "qwen2/biases";

class TeamsOnCpuDriver : public testing::TestWithParam<int> {};

// As a Decoder gives them on one device, which is closed after it.
std::vector<Logits> logits_of_one(const std::filesystem::path& folder, const Tokens& prompt,
                                  const Tokens& continuation) {
  OpenedDevice one = open_device("cpu");
  KernelCache kernels(one);
  const DecoderModel model = DecoderModel::begin_load(one, folder, {}, {.draws_weights = true});
  model.wait();
  Decoder alone(one, kernels, model, {.bucket = 1, .max_context = 128, .keep_logits = true});
  const int32_t sequence = alone.open();
  alone.append(sequence, std::span(prompt).first(prompt.size() - 1));
  Tokens forced{prompt.back()};
  forced.insert(forced.end(), continuation.begin(), continuation.end());
  std::vector<Logits> all;
  for (const int32_t token : forced) {
    alone.step({{.sequence = sequence, .token = token}});
    all.emplace_back(131);
    alone.read_logits(0, all.back());
  }
  return all;
}

// The parts' sums are rounded in another order than the whole's.
TEST_P(TeamsOnCpuDriver, LogitsAreThoseOfOneDevice) {
  for (const char* network : {kSharedNetwork, "olmo2/wide_norms"}) {
    ScratchFolder folder;
    write_shared_sizes(network, folder.path());
    const Tokens prompt = some_tokens(11, 131, 5), continuation = some_tokens(3, 131, 6);
    const std::vector<Logits> expected = logits_of_one(folder.path(), prompt, continuation);
    LoadedTeam loaded(folder.path(), GetParam(), "cpu", true);
    TeamDecoder decoder(loaded, 1);
    const double error = relative_error(agreed(decoder.forced(prompt, continuation)), expected);
    EXPECT_LE(error, 0.01) << network;
    EXPECT_GT(error, 0) << network << ": compared with itself?";
  }
}

const auto kRankCount = [](const auto& info) { return "of" + std::to_string(info.param); };
INSTANTIATE_TEST_SUITE_P(Ranks, TeamsOnCpuDriver, testing::Values(2), kRankCount);
INSTANTIATE_TEST_SUITE_P(RanksSweep, TeamsOnCpuDriver, testing::Values(4, 8), kRankCount);

// One rank or another is held up before each step. NODEWRIGHT_TEAM_STEPS: more of them than in CI.
void expect_the_same_bits_however_late_a_rank_is(int ranks) {
  const char* named = std::getenv("NODEWRIGHT_TEAM_STEPS");
  const int64_t steps = named == nullptr ? 300 : std::atoll(named);
  ScratchFolder folder;
  write_shared_sizes(kSharedNetwork, folder.path());
  LoadedTeam loaded(folder.path(), ranks, test_device(), true);
  TeamDecoder decoder(loaded, 1);
  const Tokens token{7};
  const std::vector<Logits> first = decoder.step(token, 0);
  constexpr uint64_t kMostBytes = uint64_t{16} << 20;  // some 10 us on a GPU
  std::vector<std::unique_ptr<DeviceBuffer>> scratch;
  for (Device* device : loaded.devices) {
    scratch.push_back(std::make_unique<DeviceBuffer>(*device, "scratch", 2 * kMostBytes));
    fill_device(*device, scratch.back()->address(), std::byte{0}, 2 * kMostBytes, "scratch");
  }
  std::mt19937_64 random(11);
  const uint64_t most = test_device_is_cuda() ? kMostBytes : uint64_t{1} << 12;
  for (int64_t step = 1; step <= steps; ++step) {
    const size_t rank = random() % loaded.ranks();
    const uint64_t bytes = random() % most;
    if (bytes > 0)
      copy_device_async(decoder.streams().rank(rank), scratch[rank]->address() + kMostBytes, scratch[rank]->address(),
                        bytes, "scratch");
    decoder.launch();
    if (step % 500 != 0 && step != steps) continue;  // no more may be in flight than a stream takes
    decoder.streams().synchronize();
    const std::vector<Logits> now = decoder.logits(0);
    for (size_t i = 0; i < now.size(); ++i)
      ASSERT_TRUE(same_bits(now[i], first[i])) << "rank " << i << ", step " << step;
  }
}

TEST(TwoDevicesSteps, EndInTheSameBitsHoweverLateARankIs) { expect_the_same_bits_however_late_a_rank_is(2); }
TEST(FourDevicesStepsOnGpus, EndInTheSameBitsHoweverLateARankIs) { expect_the_same_bits_however_late_a_rank_is(4); }

// A graph that runs although no row has a token, as that of a rank without requests would under data parallel
// attention.
TEST(TwoDevicesSteps, WithoutLiveRowsChangeNoBit) {
  ScratchFolder folder;
  write_shared_sizes(kSharedNetwork, folder.path());
  LoadedTeam loaded(folder.path(), 2, test_device(), true);
  const Tokens prompt = some_tokens(21, 131, 5), next{7};
  for (const int64_t rows : {1, 8, static_cast<int>(kProductsFromRows)}) {
    TeamDecoder decoder(loaded, rows), undisturbed(loaded, rows);
    decoder.forced(prompt, {}, true);
    undisturbed.forced(prompt, {}, true);
    for (int idle = 0; idle < 3; ++idle) decoder.run({}, 5, true);
    for (size_t rank = 0; rank < 2; ++rank)
      EXPECT_EQ(decoder.parts().pages(rank), undisturbed.parts().pages(rank)) << rows << " rows, rank " << rank;
    const auto at = static_cast<int64_t>(prompt.size());
    const std::vector<Logits> logits = decoder.step(next, at), expected = undisturbed.step(next, at);
    for (size_t rank = 0; rank < 2; ++rank)
      EXPECT_TRUE(same_bits(logits[rank], expected[rank])) << rows << " rows, rank " << rank;
  }
}

TEST(Shards, SayWhatCannotBeSplit) {
  const auto refused = [](const std::string& golden, int ranks) {
    return error_of([&] { shard_of(read_model_config(golden_folder(golden)), {0, ranks}); });
  };
  EXPECT_EQ(refused("llama/odd_sizes", 4),
            "cannot split over devices 'LlamaForCausalLM': num_attention_heads is 6, which 4 devices cannot share "
            "evenly; try: another number of devices than 4, or one");
  EXPECT_EQ(refused("llama/odd_sizes", 3),
            "cannot split over devices 'LlamaForCausalLM': num_key_value_heads is 2, which 3 devices cannot share "
            "evenly; try: another number of devices than 3, or one");
}

}  // namespace
}  // namespace nodewright
