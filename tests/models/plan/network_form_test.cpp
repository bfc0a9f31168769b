// What the operations of a network allow: forms of whole steps, and kernels one by one. Needs no device.
#include "models/plan/network_form.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "models/lowering/lowering.h"

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

// By the operations of a run: "norm product attention_norm qkv".
std::map<std::string, std::string> rows_of(const ModelConfig& config, int64_t rows) {
  const StepShape step = step_shape(form_of(config), rows, rows, kProductsFromRows, Numerics::fast);
  DeviceProperties device;
  device.cc_major = 9, device.sm_count = 132, device.shared_optin_bytes = 227 << 10;
  std::map<std::string, std::string> found;
  for (const LoweringNote& note : lower(network_of(config), {config, step, device}).notes)
    found[note.operations] = note.row;
  return found;
}

TEST(NetworkForm, OfEachFamilyFollowsFromItsOperations) {
  const NetworkForm all{.post_norms = false, .tiles = true, .products = true, .gained = true};
  EXPECT_EQ(form_of(llama_config()), all);
  EXPECT_EQ(form_of(qwen3_config()), all);
  EXPECT_EQ(form_of(gemma3_config()), (NetworkForm{.post_norms = true, .tiles = true, .products = true}));
  EXPECT_EQ(form_of(gpt2_config()), NetworkForm{});
}

TEST(NetworkForm, WithOneBiasHasTilesAndProductsButNoGainedResidual) {
  for (bool Biases::*part : {&Biases::qkv, &Biases::out, &Biases::gate_up, &Biases::down}) {
    ModelConfig config = llama_config();
    config.biases.*part = true;
    EXPECT_EQ(form_of(config), (NetworkForm{.tiles = true, .products = true}));
  }
}

TEST(NetworkForm, OfAProductOfTheResidualItselfHasTilesForTheOthers) {
  const ModelConfig config = llama_config();
  Recorder n(config);
  Value x = n.embed();
  n.layers([&] {
    const Value a = n.attend(n.append(n.rotate(n.product(x, Part::qkv))));
    x = n.add(x, n.norm(n.product(a, Part::out), Part::attention_post_norm));
  });
  n.choose(n.product(n.norm(x, Part::final_norm), Part::head));
  EXPECT_EQ(network_form(n.take()), (NetworkForm{.post_norms = true, .tiles = true}));
}

TEST(Lowering, GivesOnlyTheProductWithABiasToAKernelThatAddsIt) {
  ModelConfig config = llama_config();
  config.biases.qkv = true;
  const std::map<std::string, std::string> eight = rows_of(config, 8);
  EXPECT_EQ(eight.at("norm attention_norm product qkv"), "norm_project");
  EXPECT_EQ(eight.at("product out add"), "tile_project_add");
  EXPECT_EQ(eight.at("norm feed_forward_norm product gate_up activate"), "tile_norm_gate_up");
  EXPECT_EQ(eight.at("product down add"), "tile_project_add");
  EXPECT_EQ(eight.at("norm final_norm product head"), "tile_logits");
  const std::map<std::string, std::string> many = rows_of(config, 64);
  EXPECT_EQ(many.at("norm attention_norm product qkv"), "norm_project");
  EXPECT_EQ(many.at("product out add"), "library product onto the residual");
  EXPECT_EQ(many.at("norm feed_forward_norm"), "norm_rows");
  EXPECT_EQ(many.at("product gate_up"), "library product");
}

TEST(Lowering, GivesOnlyProductsOfALayerNormToKernelsThatShift) {
  ModelConfig config = llama_config();
  config.norm = Norm::layer;
  const std::map<std::string, std::string> eight = rows_of(config, 8);
  EXPECT_EQ(eight.at("norm attention_norm product qkv"), "norm_project");
  EXPECT_EQ(eight.at("product out add"), "tile_project_add");
  EXPECT_EQ(eight.at("norm feed_forward_norm product gate_up activate"), "norm_gate_up");
  EXPECT_EQ(eight.at("norm final_norm product head"), "logits");
}

}  // namespace
}  // namespace nodewright
