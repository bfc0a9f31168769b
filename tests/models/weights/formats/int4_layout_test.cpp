// int4 matrices as kernels read them, word by word, against what their format makes of the same tensors.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "models/weights/drawn_weights.h"
#include "models/weights/formats/int4_words.h"
#include "models/weights/weights.h"
#include "runtime/device_selection.h"
#include "tests/models/int4_checkpoint.h"
#include "tests/models/weights/formats/format_golden.h"

namespace nodewright {
namespace {

using test::Int4Checkpoint;
using test::Int4Form;

float value_of_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Element (row, col) of words that lie as weight_layout.h says.
float int4_element(const WeightLayout& layout, const std::vector<uint32_t>& words, int64_t rows, int64_t stride,
                   int64_t row, int64_t col) {
  const int64_t in_span = col % 128, piece = in_span / 32, lane = in_span % 32 / 8, pair = in_span % 8 / 2;
  const auto code_word = static_cast<size_t>(row * stride / 8 + col / 128 * 16 + lane * 4 + piece);
  const auto scale_word =
      static_cast<size_t>(rows * stride / 8 + row * layout.group_stride(stride) + col / layout.group);
  const uint32_t code = words.at(code_word) >> (4 * pair + 16 * (col % 2)) & 15, of_group = words.at(scale_word);
  return std::bit_cast<float>(of_group & 0xffffff00u) *
         (static_cast<float>(code) - static_cast<float>(of_group & 0xffu));
}

class Int4OnCpuDriver : public ::testing::Test {
 protected:
  Int4OnCpuDriver() : opened_(open_device("cpu")), stream_(*opened_.device, "test") {}

  DecoderWeights weights_of(const std::filesystem::path& folder, LayerMatrices matrices, int64_t stages = 1,
                            int64_t stage = 0) {
    const Checkpoint checkpoint = Checkpoint::open(folder);
    const ModelConfig config = stage_of(read_model_config(folder), stage, stages);
    DecoderWeights::Places placed = DecoderWeights::place(*opened_.device, checkpoint, config, matrices);
    upload_weights(*opened_.device, stream_, placed.sources, placed.weights.range(), {},
                   {.chunk_bytes = 40 << 10, .chunks = 2, .readers = 3});  // matrices are cut
    return std::move(placed.weights);
  }
  template <class T>
  std::vector<T> read(const WeightMatrix& matrix) {
    std::vector<T> values(matrix.data.count * 2 / sizeof(T));
    read_device(*opened_.device, std::as_writable_bytes(std::span(values)),
                reinterpret_cast<uint64_t>(matrix.data.data), "weights");
    return values;
  }
  // The bf16 matrix holds the same numbers.
  void expect_same(const WeightMatrix& int4, const WeightMatrix& bf16, int64_t group, const std::string& name) {
    ASSERT_TRUE(int4.layout.is_int4()) << name;
    ASSERT_EQ(int4.layout.group, group) << name;
    const std::vector<uint32_t> words = read<uint32_t>(int4);
    ASSERT_EQ(words.size() * 4, static_cast<size_t>(int4.layout.bytes(int4.rows, int4.stride))) << name;
    const std::vector<uint16_t> expected = read<uint16_t>(bf16);
    int64_t wrong = 0;
    for (int64_t row = 0; row < bf16.rows; ++row)
      for (int64_t col = 0; col < bf16.cols; ++col)
        wrong += int4_element(int4.layout, words, int4.rows, int4.stride, row, col) !=
                 value_of_bf16(expected[static_cast<size_t>(row * bf16.stride + col)]);
    EXPECT_EQ(wrong, 0) << name;
  }
  void expect_same_layers(const DecoderWeights& int4, const DecoderWeights& bf16, int64_t group) {
    ASSERT_EQ(int4.layers().size(), bf16.layers().size());
    for (size_t l = 0; l < int4.layers().size(); ++l) {
      const LayerWeights &a = int4.layers()[l], &b = bf16.layers()[l];
      expect_same(a.qkv, b.qkv, group, "qkv");
      expect_same(a.out, b.out, group, "out");
      expect_same(a.gate_up, b.gate_up, group, "gate_up");
      expect_same(a.down, b.down, group, "down");
    }
  }

  OpenedDevice opened_;
  Stream stream_;
};

TEST_F(Int4OnCpuDriver, LieAsKernelsReadThem) {
  for (const Int4Form form :
       {Int4Form::compressed, Int4Form::compressed_zeros, Int4Form::gptq, Int4Form::gptq_v2, Int4Form::awq})
    for (const int64_t group : {32, 64, 128, 256, -1}) {
      SCOPED_TRACE("form " + std::to_string(static_cast<int>(form)) + ", groups of " + std::to_string(group));
      const Int4Checkpoint checkpoint(form, group);
      const DecoderWeights bf16 = weights_of(checkpoint.in_bf16(), LayerMatrices::stored);
      expect_same_layers(weights_of(checkpoint.in_int4(), LayerMatrices::stored), bf16,
                         group < 0 ? 128 : std::min<int64_t>(group, 128));
      const DecoderWeights decoded = weights_of(checkpoint.in_int4(), LayerMatrices::bf16);
      EXPECT_EQ(read<uint16_t>(decoded.layers()[1].gate_up), read<uint16_t>(bf16.layers()[1].gate_up));
    }
}

TEST_F(Int4OnCpuDriver, LieSoInEveryStage) {
  const Int4Checkpoint checkpoint(Int4Form::awq, 64);
  for (const int64_t stage : {0, 1})
    expect_same_layers(weights_of(checkpoint.in_int4(), LayerMatrices::stored, 2, stage),
                       weights_of(checkpoint.in_bf16(), LayerMatrices::stored, 2, stage), 64);
}

WeightLayouts layouts_of(const std::filesystem::path& folder, LayerMatrices matrices = LayerMatrices::stored) {
  return weight_footprint(Checkpoint::open(folder), read_model_config(folder), matrices).layouts;
}

TEST(Int4Layouts, AreOfMatricesThatAllLayersHaveSo) {
  const std::string plain = "model.layers.1.self_attn.o_proj", other = "model.layers.0.mlp.down_proj";
  for (const Int4Form form : {Int4Form::compressed_zeros, Int4Form::gptq}) {
    const WeightLayouts one_plain = layouts_of(Int4Checkpoint(form, 128, plain).in_int4());
    EXPECT_FALSE(one_plain.out.is_quantized());
    for (const WeightLayout& layout : {one_plain.qkv, one_plain.gate_up, one_plain.down}) EXPECT_TRUE(layout.is_int4());
    const WeightLayouts one_other = layouts_of(Int4Checkpoint(form, 128, "", other).in_int4());
    EXPECT_FALSE(one_other.down.is_quantized());
    EXPECT_TRUE(one_other.out.is_int4());
    // Queries and keys are one matrix.
    EXPECT_FALSE(layouts_of(Int4Checkpoint(form, 64, "", "model.layers.0.self_attn.k_proj").in_int4()).qkv.is_int4());
    EXPECT_EQ(layouts_of(Int4Checkpoint(form).in_int4(), LayerMatrices::bf16), WeightLayouts{});
  }
}

TEST(Int4Layouts, AreNotOfOrderedColumnsOrOtherWidths) {
  EXPECT_EQ(layouts_of(Int4Checkpoint(Int4Form::gptq_ordered).in_int4()), WeightLayouts{});
  EXPECT_EQ(layouts_of(Int4Checkpoint(Int4Form::gptq, 16).in_int4()), WeightLayouts{});
  for (const char* golden : {"ct_int4_group", "gptq", "awq"})  // 96 and 64 columns
    EXPECT_EQ(layouts_of(test::format_folder(golden)), WeightLayouts{});
}

// As older versions of compressed-tensors wrote it: an index of groups that lie in order, or say nothing.
TEST(Int4Layouts, AreOfColumnsWhoseOrderIsStoredAndUsual) {
  const Int4Checkpoint checkpoint(Int4Form::compressed, 64);
  const std::filesystem::path file = std::filesystem::path(checkpoint.in_int4()) / "model.safetensors";
  const std::vector<test::TestTensor> stored = test::tensors_of(file);
  const auto layout_with = [&](const auto& group_of) {
    std::vector<test::TestTensor> tensors = stored;
    for (const int64_t l : {0, 1}) {
      std::vector<int32_t> groups;
      for (int32_t k = 0; k < test::SmallNetwork{}.intermediate; ++k) groups.push_back(group_of(k));
      tensors.push_back({"model.layers." + std::to_string(l) + ".mlp.down_proj.weight_g_idx",
                         "I32",
                         {test::SmallNetwork{}.intermediate},
                         test::bytes_of(groups)});
    }
    write_text(file, test::safetensors_of(tensors));
    return layouts_of(checkpoint.in_int4()).down;
  };
  EXPECT_TRUE(layout_with([](int32_t k) { return k / 64; }).is_int4());
  EXPECT_TRUE(layout_with([](int32_t) { return -1; }).is_int4());
  EXPECT_FALSE(layout_with([](int32_t k) { return k % 6; }).is_int4());
  expect_error([&] { layout_with([](int32_t k) { return k / 32; }); },
               {"weight_g_idx", "expected a group from 0 to 5"});
}

TEST_F(Int4OnCpuDriver, RefuseAZeroThatFourBitsDoNotHold) {
  const Int4Checkpoint checkpoint(Int4Form::compressed_zeros, 128);
  const std::filesystem::path file = std::filesystem::path(checkpoint.in_int4()) / "model.safetensors";
  const auto load_with = [&](int8_t zero) {
    std::vector<test::TestTensor> tensors = test::tensors_of(file);
    for (test::TestTensor& tensor : tensors)
      if (tensor.name == "model.layers.0.self_attn.o_proj.weight_zero_point")
        tensor = {tensor.name, "I8", {256, 2}, std::string(512, static_cast<char>(zero))};
    write_text(file, test::safetensors_of(tensors));
    weights_of(checkpoint.in_int4(), LayerMatrices::stored);
  };
  load_with(-8);
  load_with(7);
  for (const int8_t zero : {-9, 8})
    expect_error([&] { load_with(zero); },
                 {"o_proj.weight_zero_point", "has the zero " + std::to_string(zero) + ", expected -8 to 7"});
}

TEST(Int4Words, HaveTheNearestScaleOfSixteenBits) {
  const auto scale_of = [](uint32_t word) { return std::bit_cast<float>(word & 0xffffff00u); };
  for (const float scale : {1.0f, -0.37f, 3e-5f, 0x1p-140f, 0.0f})
    for (const uint8_t zero : {0, 8, 16}) {
      EXPECT_EQ(int4_scale_word(scale, zero) & 0xff, zero);
      EXPECT_LE(std::abs(scale_of(int4_scale_word(scale, zero)) - scale),
                std::max(std::abs(scale) * 0x1p-16f, 0x1p-141f));
    }
  EXPECT_EQ(scale_of(int4_scale_word(1 + 0x1p-16f, 3)), 1.0f);  // ties to even
  EXPECT_EQ(scale_of(int4_scale_word(1 + 3 * 0x1p-16f, 3)), 1 + 0x1p-14f);
  EXPECT_EQ(scale_of(int4_scale_word(1 + 5 * 0x1p-18f, 3)), 1 + 0x1p-15f);
  EXPECT_TRUE(std::isnan(scale_of(int4_scale_word(std::numeric_limits<float>::quiet_NaN(), 8))));
  EXPECT_EQ(scale_of(int4_scale_word(std::numeric_limits<float>::infinity(), 8)),
            std::numeric_limits<float>::infinity());
}

// ---- Drawn

TEST(DrawnInt4, HasTheDeviationOfDrawnNumbers) {
  const TensorInfo tensor{"l.q_proj.weight", Dtype::kBF16, {64, 400}};
  const DrawnTensor drawn(tensor, 400);
  std::vector<uint8_t> codes(400);
  double sum = 0, squares = 0;
  for (int64_t row = 0; row < 64; ++row) {
    drawn.int4_row(row, codes);
    for (const uint8_t code : codes) {
      ASSERT_LE(code, 15);
      const double value = (code - 8.0) * static_cast<double>(drawn.int4_scale());
      sum += value, squares += value * value;
    }
  }
  EXPECT_NEAR(sum / 25600, 0, 0.003);
  EXPECT_NEAR(std::sqrt(squares / 25600), 0.05, 0.0015);
}

TEST_F(Int4OnCpuDriver, IsDrawnWhereConfigJsonSaysSo) {
  for (const Int4Form form : {Int4Form::compressed, Int4Form::gptq, Int4Form::gptq_ordered, Int4Form::awq}) {
    const Int4Checkpoint checkpoint(form, 64);
    const Checkpoint dummy = Checkpoint::dummy(checkpoint.in_int4());
    const ModelConfig config = read_model_config(checkpoint.in_int4());
    DecoderWeights::Places placed = DecoderWeights::place(*opened_.device, dummy, config, LayerMatrices::stored);
    if (form == Int4Form::gptq_ordered) {
      EXPECT_EQ(placed.weights.layouts(), WeightLayouts{});
      continue;
    }
    upload_weights(*opened_.device, stream_, placed.sources, placed.weights.range(), {});
    const WeightMatrix& down = placed.weights.layers()[1].down;
    ASSERT_TRUE(down.layout.is_int4());
    ASSERT_EQ(down.layout.group, 64);
    const std::vector<uint32_t> words = read<uint32_t>(down);
    double squares = 0;
    for (int64_t row = 0; row < down.rows; ++row)
      for (int64_t col = 0; col < down.cols; ++col)
        squares += std::pow(int4_element(down.layout, words, down.rows, down.stride, row, col), 2);
    EXPECT_NEAR(squares / static_cast<double>(down.rows), 1, 0.05);
  }
}

}  // namespace
}  // namespace nodewright
