// A tuned step is another division of the same work: other kernels and grids, logits that agree, the three runs alike.
#include <algorithm>

#include "runtime/calls/cpu_driver_api.h"
#include "tests/engine/parity/golden_model.h"

namespace nodewright {
namespace {

using namespace test;

// A tuning for odd_sizes, whose 96 columns get 32 threads by default.
StepTuning some_tuning() {
  StepTuning tuning{.arithmetic = {}, .attend = {.splits = 3, .warps = 4, .ring = 3}, .shared = {.carveout = 57}};
  for (ProjectionTuning StepTuning::*of : {&StepTuning::qkv, &StepTuning::gate_up, &StepTuning::head}) {
    (tuning.*of).matvec = {.threads = 64, .batch = 4, .blocks_per_sm = 1};
    (tuning.*of).tile = {.warps = 1, .rows = 16, .piece = 1, .ring = 3};
  }
  tuning.out.matvec = {.threads = 96, .batch = 2, .blocks_per_sm = 3};
  tuning.down.tile = {.warps = 3, .ring = 2};
  return tuning;
}

DecoderOptions tuned(int64_t bucket, const StepTuning& tuning, RunMode mode = RunMode::explicit_) {
  DecoderOptions options = decoder_options(bucket, mode);
  options.tuning = std::make_shared<const Tuning>(Tuning{.key = {}, .steps = {{bucket, tuning}}, .products = {}});
  return options;
}

const PlanNode& node_named(const Decoder& decoder, const std::string& name) {
  return *std::ranges::find(decoder.plan().nodes, name, &PlanNode::name);
}

// The shapes that the file says.
void check_shapes(const Decoder& decoder) {
  const auto threads = [&](const std::string& name) { return node_named(decoder, name).shape.block[0]; };
  for (const PlanNode& node : decoder.plan().nodes) {
    if (node.kind != NodeKind::kernel) continue;
    EXPECT_EQ(node.attributes.shared_carveout_percent, node.name.ends_with("attend") ? -1 : 57) << node.name;
  }
  if (decoder.options().bucket == 1) {
    EXPECT_EQ(threads("l0.qkv"), 64u);
    EXPECT_EQ(threads("l0.out"), 96u);
    EXPECT_EQ(threads("logits"), 64u);
    EXPECT_EQ(threads("l0.attend"), 128u);
    EXPECT_EQ(node_named(decoder, "l0.attend").shape.grid[0], 3u);
  } else if (decoder.options().bucket == 4) {  // in tiles
    EXPECT_EQ(threads("l0.qkv"), 32u);
    EXPECT_EQ(threads("l0.down"), 96u);
  }
}

TEST(TunedSteps, GiveTheLogitsOfOthersInEveryRun) {
  LoadedModel loaded("llama/odd_sizes");
  const GoldenCase one = golden_cases_of("llama/odd_sizes").at(1);
  for (const int64_t bucket : {1, 2, 4}) {
    SCOPED_TRACE("bucket " + std::to_string(bucket));
    Decoder usual = loaded.decoder(decoder_options(bucket)), other = loaded.decoder(tuned(bucket, some_tuning()));
    check_shapes(other);
    const std::vector<Logits> rows = forced_logits(other, loaded, one.prompt, one.continuation);
    EXPECT_LT(relative_error(rows, forced_logits(usual, loaded, one.prompt, one.continuation)), 1e-2);
    for (const RunMode mode : {RunMode::captured, RunMode::eager}) {
      Decoder run = loaded.decoder(tuned(bucket, some_tuning(), mode));
      EXPECT_TRUE(same_bits(rows, forced_logits(run, loaded, one.prompt, one.continuation)));
    }
  }
}

TEST(TunedSteps, MultiplyAsTheFileSays) {
  LoadedModel loaded("llama/odd_sizes");
  const Decoder matvecs = loaded.decoder(tuned(4, {.arithmetic = Arithmetic::matvec}));
  EXPECT_EQ(node_named(matvecs, "l0.qkv").kernel_name(), "norm_project");
}

TEST(TunedSteps, AreNotTakenForOtherRowsOrInvariantNumerics) {
  LoadedModel loaded("llama/odd_sizes");
  const auto shapes = [&](const DecoderOptions& options) {
    std::vector<unsigned> threads;
    const Decoder decoder = loaded.decoder(options);
    for (const PlanNode& node : decoder.plan().nodes) threads.push_back(node.shape.block[0]);
    return threads;
  };
  DecoderOptions of_two = tuned(2, some_tuning());
  of_two.bucket = 1;
  EXPECT_EQ(shapes(of_two), shapes(decoder_options(1)));
  DecoderOptions invariant = tuned(1, some_tuning()), usual = decoder_options(1);
  invariant.numerics = usual.numerics = Numerics::invariant;
  EXPECT_EQ(shapes(invariant), shapes(usual));
}

// Eight rows of GPT-2, whose matrices all have biases: products where clusters may hold rows, else tiles.
TEST(StepsOnCpuDriver, AreNoProductsOfFewRowsWithoutClusters) {
  for (const int compute_capability : {80, 90}) {
    const std::unique_ptr<Driver> driver = Driver::load_cpu({.compute_capability = compute_capability});
    Device device(*driver, 0);
    Stream stream(device, "decode");
    KernelCache kernels(device);
    const DecoderModel model = DecoderModel::load(device, stream, golden_folder("gpt2/learned_positions"));
    const Decoder decoder(device, kernels, model, decoder_options(8));
    const bool norms_apart = std::ranges::count(decoder.plan().nodes, "l0.norm", &PlanNode::name) > 0;
    EXPECT_EQ(norms_apart, compute_capability == 90) << compute_capability;
  }
}

}  // namespace
}  // namespace nodewright
