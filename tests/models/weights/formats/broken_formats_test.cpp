// Quantized checkpoints with something wrong in them: each is refused with the name of what is wrong.
#include <functional>
#include <limits>

#include "tests/models/weights/formats/format_golden.h"

namespace nodewright {
namespace {

using test::EditedFormat;
using test::TestTensor;

struct Fault {
  std::string golden;
  std::function<void(EditedFormat&)> plant;
  std::vector<std::string> words;  // that the error has
};

std::string first_matrix(const char* ending = "") { return std::string("model.layers.0.mlp.gate_proj") + ending; }

void expect_faults(const std::vector<Fault>& faults) {
  ASSERT_GE(faults.size(), 10u);
  for (size_t i = 0; i < faults.size(); ++i) {
    EditedFormat edited(faults[i].golden);
    faults[i].plant(edited);
    SCOPED_TRACE(faults[i].golden + ", fault " + std::to_string(i));
    const std::string message = error_of([&] { test::decode_all(edited.path()); });
    EXPECT_NE(message, "") << "no Error was thrown";
    for (const std::string& word : faults[i].words) expect_words(message, {word});
  }
}

// Edits that several formats share.
auto config(nlohmann::json patch) {
  return [patch = std::move(patch)](EditedFormat& edited) { edited.config(patch); };
}
auto removed(std::string ending) {
  return [=](EditedFormat& edited) { edited.remove(first_matrix(ending.c_str())); };
}
auto reshaped(std::string ending, std::vector<int64_t> shape, std::string dtype = {}) {
  return [=](EditedFormat& edited) { edited.reshape(first_matrix(ending.c_str()), shape, dtype); };
}
void cut_short(EditedFormat& edited) {
  std::filesystem::resize_file(edited.file(), std::filesystem::file_size(edited.file()) - 1);
}
// A tensor whose header claims `dimension` rows.
auto claims(std::string ending, std::string dimension) {
  return [=](EditedFormat& edited) {
    std::string bytes = read_text(edited.file());
    const size_t name = bytes.find("\"" + first_matrix(ending.c_str()) + "\"");
    const size_t shape = bytes.find("\"shape\":[", name) + 9, end = bytes.find_first_of(",]", shape);
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    header += dimension.size() - (end - shape);
    bytes.replace(shape, end - shape, dimension);
    std::memcpy(bytes.data(), &header, sizeof header);
    write_text(edited.file(), bytes);
  };
}
constexpr const char* kLargest = "9223372036854775807";

TEST(BrokenFormats, OfFp8AreRefused) {
  expect_faults({
      {"fp8_block", removed(".weight_scale_inv"), {first_matrix(".weight_scale_inv"), "missing", "[1, 2]"}},
      {"fp8_block", removed(".weight"), {first_matrix(".weight"), "missing"}},
      {"fp8_block", reshaped(".weight_scale_inv", {2, 1}), {"weight_scale_inv", "expected shape [1, 2], found [2, 1]"}},
      {"fp8_block", reshaped(".weight_scale_inv", {1, 2}, "I32"), {"weight_scale_inv", "F32", "found I32"}},
      {"fp8_block", reshaped(".weight", {72, 135}), {first_matrix(".weight"), "expected shape [72, 136]"}},
      {"fp8_block", cut_short, {"model.safetensors", "download the file again"}},
      {"fp8_block", claims(".weight", kLargest), {first_matrix(".weight"), "2^64 - 1 bits"}},
      {"fp8_block", claims(".weight", "-72"), {first_matrix(".weight")}},
      {"fp8_block", config({{"weight_block_size", {128}}}), {"weight_block_size", "[128]"}},
      {"fp8_block", config({{"weight_block_size", {0, 128}}}), {"weight_block_size", "[0,128]"}},
      {"fp8_block", config({{"weight_block_size", {128, int64_t{1} << 40}}}), {"weight_block_size"}},
      {"fp8_block", config({{"weight_block_size", {64, 64}}}), {"weight_scale_inv", "expected shape [3, 2]"}},
      {"fp8_block", config({{"fmt", "e5m2"}}), {"quantization_config.fmt", "e5m2"}},
      {"fp8_block", config({{"activation_scheme", "none"}}), {"activation_scheme", "none"}},
      {"fp8_tensor", removed(".weight_scale"), {first_matrix(".weight_scale"), "missing"}},
      {"fp8_tensor", reshaped(".weight_scale", {64}), {"weight_scale", "expected shape [] or [1]"}},
  });
}

TEST(BrokenFormats, OfPackedIntegersAreRefused) {
  const auto weights = [](nlohmann::json patch) {
    return config({{"config_groups", {{"group_0", {{"weights", std::move(patch)}}}}}});
  };
  expect_faults({
      {"ct_int4_zeros", removed(".weight_scale"), {first_matrix(".weight_scale"), "missing", "[64, 3]"}},
      {"ct_int4_zeros", removed(".weight_zero_point"), {first_matrix(".weight_zero_point"), "missing", "[8, 3]"}},
      {"ct_int4_zeros", removed(".weight_packed"), {first_matrix(".weight_packed"), "missing", "[64, 12]"}},
      {"ct_int4_zeros", reshaped(".weight_packed", {64, 11}), {"weight_packed", "expected shape [64, 12]"}},
      {"ct_int4_zeros", reshaped(".weight_packed", {64, 12}, "F32"), {"weight_packed", "expected dtype I32"}},
      {"ct_int4_zeros", reshaped(".weight_zero_point", {64, 3}), {"weight_zero_point", "expected shape [8, 3]"}},
      {"ct_int4_zeros", reshaped(".weight_scale", {64, 3}, "U8"), {"weight_scale", "found U8"}},
      {"ct_int4_zeros",
       [](EditedFormat& edited) {
         edited.tensor(first_matrix(".weight_shape"), [](TestTensor& t) { t.data[0] = 63; });
       },
       {"weight_shape", "[63, 96]", "[64, 96]"}},
      {"ct_int4_zeros", claims(".weight_packed", kLargest), {"weight_packed", "2^64 - 1 bits"}},
      {"ct_int4_zeros", cut_short, {"model.safetensors", "download the file again"}},
      {"ct_int4_zeros", weights({{"group_size", 0}}), {"group_size is 0"}},
      {"ct_int4_zeros", weights({{"group_size", int64_t{1} << 60}}), {"group_size"}},
      {"ct_int4_zeros", weights({{"group_size", 64}}), {"weight_scale", "expected shape [96, 1]"}},
      {"ct_int4_zeros", weights({{"num_bits", 3}}), {"3 bits"}},
      {"ct_int4_zeros", weights({{"num_bits", 8}}), {"weight_packed", "expected shape [96, 16]"}},
      {"ct_int4_zeros", weights({{"type", "complex"}}), {"type", "complex"}},
      {"ct_int4_zeros", weights({{"strategy", "token"}}), {"strategy", "token"}},
      {"ct_int4_zeros", config({{"format", "marlin-24"}}), {"format", "marlin-24"}},
      {"ct_int4_zeros", config({{"sparsity_config", {{"format", "sparse-24-bitmask"}}}}), {"sparsity_config"}},
      {"ct_int4_zeros", config({{"transform_config", {{"config_groups", {{"R1", 1}}}}}}), {"transform_config"}},
      {"ct_int4_zeros", config({{"ignore", {"re:("}}}), {"ignore", "regular expression"}},
      {"ct_int4_zeros", config({{"ignore", {"re:(?:x?){30000}"}}}), {"ignore", "more than 1000 times"}},
      {"ct_int4_zeros", config({{"ignore", {"re:(?:(x?){40}){2,40}"}}}), {"ignore", "more than 1000 times"}},
      {"ct_int4_zeros", weights({{"actorder", "group"}}), {"down_proj.weight_g_idx", "missing", "[64]"}},
      {"ct_int4_zeros", config({{"ignore", "lm_head"}}), {"ignore", "expected a list"}},
      {"ct_int4_zeros", config({{"ignore", {first_matrix()}}}), {first_matrix(".weight"), "missing"}},
      {"ct_int4_zeros", config({{"quantization_status", "calibration"}}), {"quantization_status", "calibration"}},
      {"ct_int8_channel", reshaped(".weight_scale", {64, 2}), {"weight_scale", "[64, 1] or [64]"}},
      {"ct_nvfp4", removed(".weight_global_scale"), {first_matrix(".weight_global_scale"), "missing"}},
      {"ct_nvfp4", reshaped(".weight_scale", {64, 6}, "F32"), {"weight_scale", "found F32"}},
      {"ct_nvfp4", weights({{"group_size", 32}}), {"group_size must be 16"}},
      {"ct_mxfp4", reshaped(".weight_scale", {64, 6}), {"weight_scale", "expected shape [64, 3]"}},
      {"modelopt_nvfp4", removed(".weight_scale_2"), {first_matrix(".weight_scale_2"), "missing"}},
      {"modelopt_nvfp4", config({{"quant_algo", "W4A8_AWQ"}}), {"quant_algo", "W4A8_AWQ"}},
  });
}

TEST(BrokenFormats, OfFilesThatOlderWritersPutBesideAreRefusedByTheirName) {
  const auto refused = [](const char* file, const char* object, std::initializer_list<std::string_view> words) {
    const ScratchFolder folder;
    folder.write("config.json", "{}");
    folder.write(file, object);
    expect_error([&] { Checkpoint::open(folder.path()); }, words);
  };
  refused("quantize_config.json", R"({"bits": 4, "group_size": 128})",
          {"config.json", "quantize_config.json", "quant_method", "gptq"});
  refused("quant_config.json", R"({"w_bit": 4, "q_group_size": 64, "version": "GEMM"})",
          {"config.json", "quant_config.json", "awq", "w_bit as bits", "q_group_size as group_size"});
}

TEST(BrokenFormats, OfAMatrixInTwoShapesAreRefused) {
  const Checkpoint checkpoint = Checkpoint::open(test::format_folder("ct_fp8_tensor"));
  const std::string name = first_matrix(".weight");
  const TensorInfo& tensor = checkpoint.require(name, checkpoint.find(name)->shape);
  EXPECT_EQ(&tensor, &checkpoint.require(name, tensor.shape));
  expect_error([&] { checkpoint.require(name, {tensor.shape[1], tensor.shape[0]}); }, {name, "expected shape"});
}

TEST(BrokenFormats, OfOrderedGroupsAreRefused) {
  for (const int32_t group : {-1, 3, std::numeric_limits<int32_t>::max()}) {
    const std::string word = "element 2 is " + std::to_string(group) + ", expected a group from 0 to 2";
    EditedFormat compressed("ct_ordered"), gptq("gptq_ordered");
    for (EditedFormat* edited : {&compressed, &gptq})
      edited->tensor("gate_proj." + std::string(edited == &gptq ? "g_idx" : "weight_g_idx"),
                     [&](TestTensor& t) { std::memcpy(t.data.data() + 8, &group, sizeof group); });
    expect_error([&] { test::decode_all(compressed.path()); }, {"weight_g_idx", word});
    expect_error([&] { test::decode_all(gptq.path()); }, {"g_idx", word});
  }
}

TEST(BrokenFormats, OfGptqAreRefused) {
  expect_faults({
      {"gptq", removed(".scales"), {first_matrix(".scales"), "missing", "[3, 64]"}},
      {"gptq", removed(".qzeros"), {first_matrix(".qzeros"), "missing", "[3, 8]"}},
      {"gptq", removed(".qweight"), {first_matrix(".weight"), "missing"}},
      {"gptq", reshaped(".qweight", {64, 12}), {"qweight", "expected shape [12, 64]"}},
      {"gptq", reshaped(".qweight", {12, 64}, "F32"), {"qweight", "expected dtype I32"}},
      {"gptq", reshaped(".scales", {2, 64}), {"scales", "expected shape [3, 64]"}},
      {"gptq", reshaped(".g_idx", {95}), {"g_idx", "expected shape [96]"}},
      {"gptq", claims(".qweight", kLargest), {"qweight", "2^64 - 1 bits"}},
      {"gptq", cut_short, {"model.safetensors", "download the file again"}},
      {"gptq", config({{"bits", 3}}), {"bits is 3"}},
      {"gptq", config({{"bits", 8}}), {"qweight", "expected shape [16, 96]"}},
      {"gptq", config({{"group_size", 0}}), {"group_size is 0"}},
      {"gptq", config({{"group_size", int64_t{1} << 62}}), {"group_size"}},
      {"gptq", config({{"checkpoint_format", "marlin"}}), {"checkpoint_format", "marlin"}},
      {"gptq", config({{"dynamic", {{"+:.*", {{"bits", 8}}}}}}), {"qweight", "expected shape [16, 96]"}},
      {"gptq", config({{"checkpoint_format", "gptq"}, {"format", "gptq_v2"}}), {"format is 'gptq_v2'", "is 'gptq'"}},
      {"gptq", config({{"is_marlin_format", true}}), {"is_marlin_format"}},
      {"gptq_ordered", removed(".g_idx"), {first_matrix(".g_idx"), "missing", "[96]"}},
      {"gptq", config({{"dynamic", {{"+:(", {{"bits", 8}}}}}}), {"dynamic.+:(", "regular expression"}},
      {"gptq", config({{"dynamic", {{"+:.*", 8}}}}), {"dynamic.+:.*", "expected an object"}},
      {"gptq", config({{"dynamic", {{".*", {{"bits", 16}}}}}}), {"gives module", "16 bits"}},
      {"gptq_dynamic", config({{"dynamic", {{".*mlp", {{"bits", 4}}}}}}), {"mlp.down_proj", "different things"}},
  });
}

TEST(BrokenFormats, OfAwqAreRefused) {
  expect_faults({
      {"awq", removed(".scales"), {first_matrix(".scales"), "missing", "[3, 64]"}},
      {"awq", removed(".qzeros"), {first_matrix(".qzeros"), "missing", "[3, 8]"}},
      {"awq", removed(".qweight"), {first_matrix(".weight"), "missing"}},
      {"awq", reshaped(".qweight", {12, 64}), {"qweight", "expected shape [96, 8]"}},
      {"awq", reshaped(".qzeros", {3, 8}, "U8"), {"qzeros", "expected dtype I32"}},
      {"awq", reshaped(".scales", {4, 64}), {"scales", "expected shape [3, 64]"}},
      {"awq", cut_short, {"model.safetensors", "download the file again"}},
      {"awq", config({{"bits", 8}}), {"bits is 8"}},
      {"awq", config({{"group_size", -2}}), {"group_size"}},
      {"awq", config({{"version", "gemv"}}), {"version", "gemv"}},
      {"awq", config({{"zero_point", false}}), {"zero_point"}},
  });
}

TEST(BrokenFormats, OfAutoRoundAreRefused) {
  const auto extra = [](const char* module, nlohmann::json changes) {
    return config({{"extra_config", {{module, std::move(changes)}}}});
  };
  expect_faults({
      {"auto_round_v2", removed(".scales"), {first_matrix(".scales"), "missing", "[3, 64]"}},
      {"auto_round_v2", removed(".qzeros"), {first_matrix(".qzeros"), "missing", "[3, 8]"}},
      {"auto_round_v2", removed(".qweight"), {first_matrix(".weight"), "missing"}},
      {"auto_round_v2", reshaped(".qweight", {64, 12}), {"qweight", "expected shape [12, 64]"}},
      {"auto_round_v2", config({{"packing_format", "auto_round:auto_awq"}}), {"qweight", "expected shape [64, 12]"}},
      {"auto_round_v2", config({{"packing_format", "auto_round:llm_compressor"}}), {"packing_format", "llm_comp"}},
      {"auto_round_v2", config({{"data_type", "mx_fp"}}), {"data_type", "mx_fp"}},
      {"auto_round_v2", config({{"act_bits", 8}}), {"act_bits"}},
      {"auto_round_v2", config({{"bits", 3}}), {"bits is 3"}},
      {"auto_round_v2", config({{"bits", 16}}), {"bits is 16"}},
      {"auto_round_v2", extra("model.layers.0.mlp.gate_proj", {{"bits", 8}}), {"qweight", "expected shape [24, 64]"}},
      {"auto_round_v2", extra(".*gate_proj", {{"bits", 5}}), {"extra_config..*gate_proj.bits is 5"}},
      {"auto_round_v2", extra("model.layers.0.mlp.gate_proj", {{"bits", 16}}), {"gives module", "gate_proj", "16"}},
      {"auto_round_awq", config({{"bits", 8}}), {"bits is 8"}},
  });
}

TEST(BrokenFormats, OfBitsAndBytesAreRefused) {
  const std::string state = ".weight.quant_state.bitsandbytes__nf4";
  const auto says = [&](std::string from, std::string to) {
    return [=](EditedFormat& edited) {
      edited.tensor(first_matrix(state.c_str()), [&](TestTensor& t) {
        const size_t at = t.data.find(from);
        ASSERT_NE(at, std::string::npos);
        t.data.replace(at, from.size(), to);
        t.shape = {static_cast<int64_t>(t.data.size())};
      });
    };
  };
  expect_faults({
      {"bnb_nf4", removed(".weight"), {first_matrix(".weight"), "missing", "[10880, 1]"}},
      {"bnb_nf4", removed(".weight.absmax"), {first_matrix(".weight.absmax"), "missing", "[340]"}},
      {"bnb_nf4", removed(".weight.quant_map"), {first_matrix(".weight.quant_map"), "missing", "[16]"}},
      {"bnb_nf4", removed(state), {first_matrix(".weight"), "found [10880, 1]"}},
      {"bnb_nf4", reshaped(".weight", {136, 80}), {first_matrix(".weight"), "expected shape [10880, 1]"}},
      {"bnb_nf4", reshaped(".weight.absmax", {340}, "U8"), {"absmax", "expected dtype F32"}},
      {"bnb_nf4", reshaped(state, {2, 40}), {state, "[2, 40]"}},
      {"bnb_nf4", reshaped(state, {5000}), {state, "4096 bytes"}},
      {"bnb_nf4", says("{", "["), {state, "no JSON object"}},
      {"bnb_nf4", says("[136", "[137"), {state, "[137, 160]", "[136, 160]"}},
      {"bnb_nf4", says("64", "0"), {state, "blocksize is 0"}},
      {"bnb_nf4", says("64", "32"), {"absmax", "expected shape [680]"}},
      {"bnb_nf4_nested", removed(".weight.nested_absmax"), {"nested_absmax", "missing", "[2]"}},
      {"bnb_nf4_nested", removed(".weight.nested_quant_map"), {"nested_quant_map", "missing", "[256]"}},
      {"bnb_nf4_nested", says("256", "128"), {"nested_absmax", "expected shape [3]"}},
      {"bnb_nf4_nested", says("\"nested_offset\": 0", "\"nested_offset\": 9e35, \"x\": 0"), {"nested_offset"}},
      {"bnb_nf4", config({{"load_in_8bit", true}}), {"load_in_8bit"}},
      {"bnb_nf4", config({{"bnb_4bit_quant_type", "int4"}}), {"bnb_4bit_quant_type", "int4"}},
      {"bnb_nf4", cut_short, {"model.safetensors", "download the file again"}},
  });
}

TEST(BrokenFormats, OfMxfp4ExpertsAreRefused) {
  const auto edit = [](std::string tensor, std::vector<int64_t> shape, std::string dtype = {}) {
    return [=](EditedFormat& edited) { edited.reshape(tensor, shape, dtype); };
  };
  const auto remove = [](std::string tensor) { return [=](EditedFormat& edited) { edited.remove(tensor); }; };
  const std::string blocks = "experts.down_proj_blocks", scales = "experts.down_proj_scales";
  expect_faults({
      {"mxfp4_experts", remove(blocks), {"experts.0.down_proj.weight", "missing"}},
      {"mxfp4_experts", remove(scales), {scales, "missing", "[3, 64, 1]"}},
      {"mxfp4_experts", edit(blocks, {2, 64, 1, 16}), {scales, "expected shape [2, 64, 1], found [3, 64, 1]"}},
      {"mxfp4_experts", edit(blocks, {3, 64, 16}), {blocks, "expected shape [3, 64, 1, 16]"}},
      {"mxfp4_experts", edit(blocks, {3, 32, 2, 16}), {blocks, "expected shape [3, 64, 1, 16]"}},
      {"mxfp4_experts", edit(blocks, {0, 64, 1, 16}), {blocks, "no expert 0"}},
      {"mxfp4_experts", edit(blocks, {}, "U8"), {blocks, "no expert 0"}},
      {"mxfp4_experts", edit(blocks, {3, 64, 1, 16}, "I8"), {blocks, "expected dtype U8"}},
      {"mxfp4_experts", edit(scales, {3, 64}), {scales, "expected shape [3, 64, 1]"}},
      {"mxfp4_experts", edit(scales, {3, 64, 1}, "BF16"), {scales, "expected dtype U8"}},
      {"mxfp4_experts", cut_short, {"model.safetensors", "download the file again"}},
  });
  const EditedFormat edited("mxfp4_experts");
  const Checkpoint checkpoint = Checkpoint::open(edited.path());
  for (const char* expert : {"3", "-1", "x", "99999999999999999999"})
    expect_error(
        [&] {
          checkpoint.require("model.layers.0.mlp.experts." + std::string(expert) + ".down_proj.weight", {64, 32});
        },
        {expert});
  expect_error(
      [&] {
        checkpoint.require("model.layers.0.mlp.experts.0.down_proj.weight", {64, 33});
      },
      {"[64, 33]", "multiple of 32"});
}

TEST(BrokenFormats, ThatAreNotSupportedAreRefusedByName) {
  for (const char* method : {"aqlm", "exl3", "hqq", "quip", "vptq", "torchao", "quark"}) {
    EditedFormat edited("gptq");
    edited.config({{"quant_method", method}});
    expect_error([&] { test::decode_all(edited.path()); },
                 {"config.json", "quant_method '" + std::string(method) + "' is not supported", "compressed-tensors"});
  }
  EditedFormat unnamed("gptq");
  unnamed.config({{"quant_method", nullptr}});
  expect_error([&] { test::decode_all(unnamed.path()); }, {"quant_method is missing"});
}

TEST(BrokenFormats, AreNoneWithoutAConfiguration) {
  EditedFormat edited("fp8_block");
  nlohmann::json config = test::json_of(edited.path() / "config.json");
  config.erase("quantization_config");
  write_text(edited.path() / "config.json", config.dump());
  expect_error([&] { test::decode_all(edited.path()); }, {"weight", "F8_E4M3", "quantization_config"});
}

}  // namespace
}  // namespace nodewright
