// Quantized checkpoints against digests of what their library, or else the specification, makes of them.
#include "models/weights/formats/weight_format.h"
#include "tests/models/weights/formats/format_golden.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

TEST(GoldenFormats, AreDecodedToTheExpectedBits) {
  ASSERT_GE(test::all_formats().size(), 28u);
  for (const std::string& name : test::formats_and_experts()) {
    const test::EditedFormat copy(name);
    const nlohmann::json expected = test::expected_matrices(copy.path());
    for (const int64_t step : {1000, 7}) {  // whole, and in slices that begin inside a word or a block
      const auto matrices = test::decode_all(copy.path(), step);
      for (const auto& [matrix, about] : expected.items())
        EXPECT_EQ(test::digest_of(matrices.at(matrix)), about.at("digest").get<std::string>())
            << name << " " << matrix << " by " << step;
    }
  }
}

TEST(GoldenFormats, MayBeDeclaredForTheTextAlone) {
  const test::EditedFormat edited("fp8_block");
  nlohmann::json config = test::json_of(edited.path() / "config.json");
  config["text_config"]["quantization_config"] = config["quantization_config"];
  config.erase("quantization_config");
  write_text(edited.path() / "config.json", config.dump());
  EXPECT_EQ(test::decode_all(edited.path()), test::decode_all(test::format_folder("fp8_block")));
}

TEST(GoldenFormats, SayThatAQuantizedCacheIsNotUsed) {
  test::EditedFormat edited("fp8_block");
  const std::string words = Checkpoint::open(edited.path()).format()->words();
  edited.config(
      {{"kv_cache_scheme", {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}, {"dynamic", false}}}});
  EXPECT_EQ(Checkpoint::open(edited.path()).format()->words(),
            words + "; its cache is quantized with --kv-cache-dtype fp8 alone");
  EXPECT_EQ(Checkpoint::open(edited.path()).format()->other_cache(), "");
}

// An FP8 cache would take the scales of other codes for its own.
TEST(GoldenFormats, NameACacheThatIsNotInFp8) {
  const auto other_with = [](const nlohmann::json& changes) {
    test::EditedFormat edited("fp8_block");
    edited.config(changes);
    return Checkpoint::open(edited.path()).format()->other_cache();
  };
  const auto scheme = [](const nlohmann::json& of) { return nlohmann::json{{"kv_cache_scheme", of}}; };
  EXPECT_EQ(other_with(scheme({{"num_bits", 8}})),
            "quantization_config.kv_cache_scheme, int of 8 bits by tensor");  // int is the library's own default
  EXPECT_EQ(other_with(scheme({{"num_bits", 4}, {"type", "float"}})),
            "quantization_config.kv_cache_scheme, float of 4 bits by tensor");
  EXPECT_EQ(other_with(scheme({{"num_bits", 8}, {"type", "float"}, {"strategy", "attn_head"}})),
            "quantization_config.kv_cache_scheme, float of 8 bits by attn_head");
  EXPECT_EQ(other_with({{"kv_cache_quant_algo", "FP8"}}), "");
  EXPECT_EQ(other_with({{"kv_cache_quant_algo", "NVFP4"}}), "quantization_config.kv_cache_quant_algo 'NVFP4'");
}

TEST(GoldenFormats, LeaveWeightsOutWhereTheCacheAloneIsQuantized) {
  const ScratchFolder folder;
  folder.write("config.json", "{}");
  folder.write("hf_quant_config.json", R"({"quantization": {"quant_algo": null, "kv_cache_quant_algo": "FP8"}})");
  EXPECT_EQ(weight_format_of(folder.path()), nullptr);
  folder.write("hf_quant_config.json", R"({"quantization": {"kv_cache_quant_algo": "FP8"}})");
  expect_error([&] { weight_format_of(folder.path()); }, {"hf_quant_config.json", "quant_method is missing"});
}

// GPTQModel names the version under either key.
TEST(GoldenFormats, OfGptqsSecondVersionAreKnownByFormatAlone) {
  test::EditedFormat edited("gptq_v2");
  edited.config({{"checkpoint_format", nullptr}, {"format", "gptq_v2"}});
  const auto matrices = test::decode_all(edited.path());
  const nlohmann::json expected = test::expected_matrices(edited.path());
  for (const auto& [matrix, about] : expected.items())
    EXPECT_EQ(test::digest_of(matrices.at(matrix)), about.at("digest").get<std::string>()) << matrix;
}

}  // namespace
}  // namespace nodewright
