// What the operations of a network allow: forms of whole steps, and kernels one by one. Needs no device.
#include "models/step/network_form.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "models/lowering/lowering.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

ModelConfig llama_config() {
  ModelConfig c;
  c.hidden = 256, c.layers = 2, c.heads = 8, c.kv_heads = 2, c.head_dim = 32, c.intermediate = 512, c.vocab = 1000;
  return c;
}

ModelConfig qwen3_config() {
  ModelConfig c = llama_config();
  c.head_norm = HeadNorm::head;
  return c;
}
ModelConfig gemma3_config() {
  ModelConfig c = qwen3_config();
  c.norm = Norm::rms_one_plus, c.post_norms = true;
  return c;
}
ModelConfig gpt2_config() {
  ModelConfig c = llama_config();
  c.norm = Norm::layer, c.biases = {true, true, true, true}, c.gated = false, c.learned_positions = true;
  return c;
}

NetworkForm form_of(const ModelConfig& config) { return network_form(network_of(config)); }

std::vector<LoweringNote> notes_of(const ModelConfig& config, int64_t rows, int sm_count = 132,
                                   const StepTuning& tuning = {}, const AdapterLimits& adapters = {}) {
  StepShape step = step_shape(form_of(config), rows, rows, {}, Numerics::fast, tuning);
  step.adapters = adapters;
  DeviceProperties device;
  device.cc_major = 9, device.sm_count = sm_count, device.shared_optin_bytes = 227 << 10;
  return lower(network_of(config), {config, step, device}).notes;
}

// The row of the table that took a run of operations, by these: "norm attention_norm product qkv".
std::map<std::string, std::string> rows_of(const ModelConfig& config, int64_t rows, int sm_count = 132) {
  std::map<std::string, std::string> found;
  for (const LoweringNote& note : notes_of(config, rows, sm_count)) found[note.operations] = note.row;
  return found;
}

// Its kernels, without their constants, and products: "add_bias product qkv".
std::map<std::string, std::string> kernels_of(const ModelConfig& config, int64_t rows) {
  std::map<std::string, std::string> found;
  for (const LoweringNote& note : notes_of(config, rows)) {
    std::string& names = found[note.operations];
    for (const std::string& kernel : note.kernels)
      names += (names.empty() ? "" : " ") +
               (kernel.starts_with("product ") ? kernel : kernel.substr(0, kernel.find_first_of(" [")));
  }
  return found;
}

TEST(NetworkForm, OfEachFamilyFollowsFromItsOperations) {
  const NetworkForm all{.post_norms = false, .tiles = true, .products = true, .gained = true};
  EXPECT_EQ(form_of(llama_config()), all);
  EXPECT_EQ(form_of(qwen3_config()), all);
  EXPECT_EQ(form_of(gemma3_config()),
            (NetworkForm{.post_norms = true, .tiles = true, .products = true, .products_from = 9}));
  EXPECT_EQ(form_of(gpt2_config()), (NetworkForm{.tiles = true, .products = true, .products_from = 4}));
}

TEST(NetworkForm, SaysFromHowManyRowsOnAStepIsOneOfProducts) {
  const auto least = [](const ModelConfig& config) {
    for (int64_t rows = 1;; ++rows)
      if (step_shape(form_of(config), rows, rows, {}, Numerics::fast).with_products()) return rows;
  };
  EXPECT_EQ(least(llama_config()), 17);
  EXPECT_EQ(least(gemma3_config()), 9);
  EXPECT_EQ(least(gpt2_config()), 4);
  ModelConfig config = llama_config();
  config.norm = Norm::layer;
  EXPECT_EQ(least(config), 17);
  config.biases = {true, true, true, true};
  EXPECT_EQ(least(config), 4);
  for (bool Biases::*part : {&Biases::qkv, &Biases::out, &Biases::gate_up, &Biases::down}) {
    ModelConfig lacking = config;
    lacking.biases.*part = false;
    EXPECT_EQ(least(lacking), 17);
  }
  EXPECT_EQ(least(shard_of(config, {.rank = 0, .ranks = 2})), 17);
  EXPECT_FALSE(step_shape(form_of(config), 16, 16, 17, Numerics::fast).with_products());
  EXPECT_FALSE(step_shape(form_of(config), 64, 64, 0, Numerics::fast).with_products());
}

TEST(StepShape, HoldsItsHeadUnlessAnAlgorithmOfAllRowsIsTuned) {
  StepTuning tuning;
  tuning.head.product.config = {.algorithm = 66, .tile = 18, .stages = 36};
  const auto holds = [&](int64_t rows, int64_t sampled) {
    return step_shape(form_of(llama_config()), rows, sampled, {}, Numerics::fast, tuning).may_hold_head();
  };
  EXPECT_FALSE(holds(32, 32));
  EXPECT_TRUE(holds(128, 32)) << "as in a lane of half the rows, whose tuning is another";
  EXPECT_TRUE(holds(64, 32));
  EXPECT_FALSE(holds(64, 64));
  tuning = {};
  EXPECT_TRUE(holds(32, 32));
}

TEST(NetworkForm, OfGainedRowsDoesNotDependOnBiasesOrOnTheGate) {
  ModelConfig config = llama_config();
  const NetworkForm form = form_of(config);
  config.gated = false;
  EXPECT_EQ(form_of(config), form);
  for (bool Biases::*part : {&Biases::qkv, &Biases::out, &Biases::gate_up, &Biases::down}) {
    config.biases.*part = true;
    EXPECT_EQ(form_of(config), form);
  }
}

TEST(NetworkForm, OfAProductOfTheResidualItselfHasTilesForTheOthers) {
  const ModelConfig config = llama_config();
  Recorder n(config);
  Value x = n.embed();
  n.layers([&](FeedForward) {
    const Value a = n.attend(n.append(n.rotate(n.product(x, Part::qkv))));
    x = n.add(x, n.norm(n.product(a, Part::out), Part::attention_post_norm));
  });
  n.choose(n.product(n.norm(x, Part::final_norm), Part::head));
  EXPECT_EQ(network_form(n.take()), (NetworkForm{.post_norms = true, .tiles = true}));
}

using Runs = std::map<std::string, std::string>;  // what rows_of finds

TEST(Lowering, GivesProductsWithABiasToTilesWhateverTheirNumberOfRows) {
  ModelConfig config = llama_config();
  config.biases = {true, true, true, true};
  const Runs one = {{"embed", "embed"},
                    {"norm attention_norm product qkv", "norm_project"},
                    {"rotate append attend", "rope_flash_decode"},
                    {"product out add", "project_add"},
                    {"norm feed_forward_norm product gate_up activate", "norm_gate_up"},
                    {"product down add", "project_add"},
                    {"norm final_norm product head", "logits"},
                    {"choose", "sample"}};
  Runs tiles = one;
  for (auto& [operations, row] : tiles)
    if (operations.find("product") != std::string::npos) row = "tile_" + row;
  Runs gained = tiles;
  gained.at("norm final_norm product head") += " of gained rows";
  for (const bool gated : {true, false}) {
    config.gated = gated;
    EXPECT_EQ(rows_of(config, 1), one);
    EXPECT_EQ(rows_of(config, 4), tiles);
    EXPECT_EQ(rows_of(config, 8), gained);
    EXPECT_EQ(rows_of(config, 32), gained);
  }
}

TEST(Lowering, ExchangesInTheProductWhereItsBlocksRunAtOnce) {
  ModelConfig whole = llama_config();
  whole.intermediate = 32768;
  const ModelConfig part = shard_of(whole, {.rank = 1, .ranks = 2});
  for (const char* product : {"product out reduce add", "product down reduce add"}) {
    EXPECT_EQ(rows_of(part, 1).at(product), "project_exchange");
    for (const int64_t rows : {4, 8, 16, 32}) EXPECT_EQ(rows_of(part, rows).at(product), "tile_project_exchange");
    EXPECT_EQ(rows_of(part, 64).at(product), "library product, exchange_add");
  }
  // Eight blocks share the 16384 columns of 32 rows: no cluster of them fits four multiprocessors.
  EXPECT_EQ(rows_of(part, 32, 8).at("product down reduce add"), "tile_project_exchange");
  EXPECT_EQ(rows_of(part, 32, 4).at("product down reduce add"), "library product, exchange_add");
  whole.post_norms = true;
  const ModelConfig normed = shard_of(whole, {.rank = 0, .ranks = 2});
  for (const char* product :
       {"product out reduce norm attention_post_norm add", "product down reduce norm feed_forward_post_norm add"}) {
    EXPECT_EQ(rows_of(normed, 1).at(product), "project_exchange");
    EXPECT_EQ(rows_of(normed, 8).at(product), "tile_project_exchange");
  }
}

TEST(Lowering, ExchangesOnceWhatTheExpertsOfARowGive) {
  ModelConfig whole = llama_config();
  whole.experts = {.count = 8, .chosen = 2, .intermediate = 96};
  const ModelConfig part = shard_of(whole, {.rank = 1, .ranks = 2});
  EXPECT_EQ(part.experts.intermediate, 48);
  const std::string product = "expert_product reduce add";
  for (const int64_t rows : {1, 2}) EXPECT_EQ(rows_of(part, rows).at(product), "expert_down_sum, exchange_add");
  for (const int64_t rows : {3, 16, 64}) EXPECT_EQ(rows_of(part, rows).at(product), "tile_expert_down, exchange_add");
}

TEST(Lowering, NormsOverTheHeadsOfAllRanksInFrontOfTheKernelsThatRotate) {
  ModelConfig whole = llama_config();
  whole.head_norm = HeadNorm::width, whole.biases.qkv = true;
  const ModelConfig part = shard_of(whole, {.rank = 1, .ranks = 2});
  for (const int64_t rows : {1, 8, 64}) {
    EXPECT_EQ(rows_of(part, rows).at("shared_norm"), "norm_heads_exchange");
    EXPECT_EQ(rows_of(part, rows).at(rows < 64 ? "rotate append attend" : "rotate append"),
              rows < 64 ? "rope_flash_decode" : "rope_append");
  }
  EXPECT_EQ(kernels_of(part, 64).at("product qkv"), "add_bias product qkv") << "the norm is of the sum";
  EXPECT_EQ(rows_of(whole, 1).at("head_norm rotate append attend"), "rope_flash_decode");
  EXPECT_EQ(exchanges_of_step(part), 8);
  EXPECT_FALSE(norms_heads_apart(part, 0));
  whole.layers = 5;
  const ModelConfig odd = shard_of(whole, {.rank = 0, .ranks = 2});
  EXPECT_EQ(exchanges_of_step(odd), 18);
  EXPECT_TRUE(norms_heads_apart(odd, 0));
  EXPECT_FALSE(norms_heads_apart(odd, 4));
  whole.head_norm = HeadNorm::head;
  EXPECT_EQ(exchanges_of_step(shard_of(whole, {.rank = 0, .ranks = 2})), 12);
}

TEST(Lowering, AddsABiasBehindALibrarysProductOrWithItsActivation) {
  ModelConfig config = llama_config();
  config.biases = {true, true, true, true};
  for (const bool gated : {true, false}) {
    config.gated = gated;
    const std::map<std::string, std::string> kernels = kernels_of(config, 64);
    EXPECT_EQ(kernels.at("product qkv"), "product qkv");
    EXPECT_EQ(kernels.at("rotate append"), "rope_append");
    EXPECT_EQ(kernels.at("product out add"), "add_bias product out");
    EXPECT_EQ(kernels.at("product gate_up"), "product gate_up");
    EXPECT_EQ(kernels.at("activate"), "gate");
    EXPECT_EQ(kernels.at("product down add"), "add_bias product down");
  }
  config.head_norm = HeadNorm::head;  // whose scales are of the sum
  EXPECT_EQ(kernels_of(config, 64).at("product qkv"), "add_bias product qkv");
  config.biases = {};
  for (const auto& [operations, names] : kernels_of(config, 64))
    EXPECT_EQ(names.find("add_bias"), std::string::npos) << operations;
}

// A LayerNorm's rows do not come gained: tiles norm up to 16 of them, and a library takes more than 32.
TEST(Lowering, GivesProductsOfALayerNormToTilesAndToALibrary) {
  ModelConfig config = llama_config();
  config.norm = Norm::layer, config.gated = false;
  for (const int64_t rows : {4, 8, 16}) {
    const Runs found = rows_of(config, rows);
    EXPECT_EQ(found.at("norm attention_norm product qkv"), "tile_norm_project") << rows;
    EXPECT_EQ(found.at("product out add"), "tile_project_add") << rows;
    EXPECT_EQ(found.at("norm feed_forward_norm product gate_up activate"), "tile_norm_gate_up") << rows;
    EXPECT_EQ(found.at("norm final_norm product head"), "tile_logits") << rows;
  }
  const Runs found = rows_of(config, 64);
  EXPECT_EQ(found.at("norm attention_norm"), "norm_rows");
  EXPECT_EQ(found.at("product qkv"), "library product");
  EXPECT_EQ(found.at("product out add"), "library product onto the residual");
  EXPECT_EQ(found.at("activate"), "gate");
  EXPECT_EQ(found.at("norm final_norm"), "norm_rows");
}

TEST(Lowering, HoldsAHeadInOneBlockWhateverItsTuningSaysOfSplits) {
  ModelConfig config = llama_config();
  config.hidden = 2560, config.vocab = 32000;
  StepTuning tuning;
  tuning.head.tile.splits = 4;
  const auto head = [](const std::vector<LoweringNote>& notes) {
    return std::ranges::find(notes, "norm final_norm product head", &LoweringNote::operations)->kernels;
  };
  EXPECT_TRUE(head(notes_of(config, 32)).front().starts_with("tile_norm_project"));
  EXPECT_EQ(head(notes_of(config, 32, 132, tuning)), head(notes_of(config, 32)));
}

// An adapter's sums take registers that the six spans of a warp need.
TEST(Lowering, SharesWideRowsBetweenTwoBlocksWhereTheyHaveAdapters) {
  ModelConfig config = llama_config();
  config.hidden = 3072, config.intermediate = 8192;
  const auto gate_up = [&](const AdapterLimits& adapters) {
    const std::vector<LoweringNote> notes = notes_of(config, 32, 132, {}, adapters);
    return std::ranges::find(notes, "norm feed_forward_norm product gate_up activate", &LoweringNote::operations)
        ->kernels.front();
  };
  const std::string alone = gate_up({}), adapted = gate_up(adapter_limits(4, 8));
  EXPECT_TRUE(alone.starts_with("tile_norm_gate_up[")) << alone;
  EXPECT_TRUE(adapted.starts_with("tile_adapted_gate_up[")) << adapted;
  EXPECT_TRUE(alone.find("kSpans=6,") != std::string::npos && alone.find("kSplits=1,") != std::string::npos) << alone;
  EXPECT_TRUE(adapted.find("kSpans=3,") != std::string::npos && adapted.find("kSplits=2,") != std::string::npos)
      << adapted;
}

// Rows that come gained are held in all of a step's projections or in none.
TEST(Lowering, LeavesAStepToTheLibraryWhereRowsOfOneProductCannotBeHeld) {
  ModelConfig config = llama_config();
  config.biases.qkv = true;
  EXPECT_EQ(rows_of(config, 32).at("product down add"), "tile_project_add");
  config.intermediate = 18944;  // columns of down, more than eight blocks hold
  const Runs found = rows_of(config, 32);
  EXPECT_EQ(found.at("product qkv"), "library product");
  EXPECT_EQ(found.at("product gate_up"), "library product");
  EXPECT_EQ(found.at("product down add"), "library product onto the residual");
}

TEST(Lowering, RefusesLayerNormsBehindBlocks) {
  ModelConfig config = llama_config();
  config.norm = Norm::layer, config.post_norms = true;
  for (const int64_t rows : {8, 32, 64}) EXPECT_THROW(notes_of(config, rows), Error) << rows;
}

// Up to 32 rows that a kernel has normed are held by tiles: of small matrices, of gate and up, and of those with
// biases.
TEST(Lowering, HoldsNormedRowsWhereALibrarysProductIsSlower) {
  ModelConfig small = llama_config();
  small.norm = Norm::layer;
  ModelConfig large = small;
  large.hidden = 2048, large.head_dim = 256, large.intermediate = 8192;
  ModelConfig biased = large;
  biased.biases = {true, true, true, true};
  for (const int64_t rows : {17, 32}) {
    for (const ModelConfig& config : {small, large, biased}) {
      const Runs found = rows_of(config, rows);
      const bool held = config.hidden == 256 || config.biases.qkv;
      EXPECT_EQ(found.at("norm attention_norm"), "norm_rows");
      EXPECT_EQ(found.at("product qkv"), held ? "tile_project" : "library product") << rows;
      EXPECT_EQ(found.at("product out add"), held ? "tile_project_add" : "library product onto the residual") << rows;
      EXPECT_EQ(found.at("product gate_up activate"), "tile_project_gate_up") << rows;
      EXPECT_EQ(found.at("product down add"), held ? "tile_project_add" : "library product onto the residual") << rows;
      EXPECT_EQ(found.at("norm final_norm product head"), "norm, tile_logits") << rows;
    }
    ModelConfig post = small;
    post.norm = Norm::rms, post.post_norms = true;
    EXPECT_EQ(rows_of(post, rows).at("product down norm feed_forward_post_norm add"), "tile_project") << rows;
  }
  EXPECT_EQ(rows_of(small, 64).at("norm final_norm"), "norm_rows");
  EXPECT_EQ(rows_of(small, 64).at("product head"), "library product");
}

}  // namespace
}  // namespace nodewright
