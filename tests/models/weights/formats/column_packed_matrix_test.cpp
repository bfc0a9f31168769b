// Matrices that GPTQ and AWQ pack, of more inputs than are decoded at once, against the formula element by element.
#include <array>
#include <random>

#include "tests/models/weights/formats/format_golden.h"

namespace nodewright {
namespace {

constexpr int64_t kRows = 32, kCols = 800, kGroup = 80;  // outputs, inputs

struct Case {
  const char* method;
  int64_t bits;
  bool ordered;  // groups lie anywhere
};

// A checkpoint of one matrix, and its values.
class PackedMatrix {
 public:
  explicit PackedMatrix(const Case& c) : awq_(std::string_view(c.method) == "awq"), bits_(c.bits) {
    std::mt19937 random(5);
    const int64_t groups = kCols / kGroup;
    std::vector<int32_t> group_of;
    for (int64_t k = 0; k < kCols; ++k) group_of.push_back(static_cast<int32_t>(k / kGroup));
    if (c.ordered) std::ranges::shuffle(group_of, random);
    std::vector<uint32_t> codes(static_cast<size_t>(kCols * kRows * bits_ / 32)), zeros(codes.size() / kGroup);
    std::vector<float> scales;
    for (int64_t i = 0; i < groups * kRows; ++i) {
      scales.push_back(static_cast<float>(random() % 1000) * 0.001f);
      zeros_.push_back(static_cast<uint32_t>(random() % (1u << bits_)));
      put(zeros, i, zeros_.back(), awq_);
    }
    // GPTQ takes one from each zero by a subtraction of words, in which a zero of 0 borrows from the next.
    for (uint32_t& word : zeros)
      if (!awq_) word -= bits_ == 4 ? 0x11111111u : 0x01010101u;
    for (int64_t k = 0; k < kCols; ++k)
      for (int64_t n = 0; n < kRows; ++n) {
        const auto code = static_cast<uint32_t>(random() % (1u << bits_));
        // GPTQ's words lie beside each other, and inputs in them below each other.
        const int64_t in_word = 32 / bits_;
        put(codes, awq_ ? k * kRows + n : (k / in_word * kRows + n) * in_word + k % in_word, code, awq_);
        const auto grid = static_cast<size_t>(group_of[static_cast<size_t>(k)] * kRows + n);
        values_[static_cast<size_t>(n * kCols + k)] =
            (static_cast<float>(code) - static_cast<float>(zeros_[grid])) * scales[grid];
      }
    const int64_t down = awq_ ? kCols : kCols * bits_ / 32, across = awq_ ? kRows * bits_ / 32 : kRows;
    std::vector<test::TestTensor> tensors = {{"m.qweight", "I32", {down, across}, test::bytes_of(codes)},
                                             {"m.qzeros", "I32", {groups, kRows * bits_ / 32}, test::bytes_of(zeros)},
                                             {"m.scales", "F32", {groups, kRows}, test::bytes_of(scales)}};
    if (!awq_) tensors.push_back({"m.g_idx", "I32", {kCols}, test::bytes_of(group_of)});
    folder_.write("model.safetensors", test::safetensors_of(tensors));
    const nlohmann::json config = {{"quant_method", c.method}, {"bits", bits_}, {"group_size", kGroup}};
    folder_.write("config.json", nlohmann::json{{"quantization_config", config}}.dump());
  }

  const std::filesystem::path& path() const { return folder_.path(); }
  const std::vector<float>& values() const { return values_; }

 private:
  // Code i of words that hold them one after the other; in AWQ's order, the outputs of a word are in other places.
  void put(std::vector<uint32_t>& words, int64_t i, uint32_t code, bool reordered) const {
    constexpr std::array<int64_t, 8> kPlaces = {0, 4, 1, 5, 2, 6, 3, 7};
    const int64_t in_word = 32 / bits_, place = i % in_word;
    words[static_cast<size_t>(i / in_word)] |=
        code << (bits_ * (reordered ? kPlaces.at(static_cast<size_t>(place)) : place));
  }

  bool awq_;
  int64_t bits_;
  std::vector<uint32_t> zeros_;
  std::vector<float> values_ = std::vector<float>(static_cast<size_t>(kRows * kCols));
  ScratchFolder folder_;
};

TEST(ColumnPackedMatrix, IsItsFormulaWhateverItsRowsAndItsOrder) {
  for (const Case& c : {Case{"gptq", 4, false}, Case{"gptq", 4, true}, Case{"gptq", 8, true}, Case{"awq", 4, false}}) {
    SCOPED_TRACE(std::string(c.method) + " of " + std::to_string(c.bits) + " bits");
    const PackedMatrix matrix(c);
    const Checkpoint checkpoint = Checkpoint::open(matrix.path());
    const TensorInfo& tensor = checkpoint.require("m.weight", {kRows, kCols});
    for (const int64_t step : {int64_t{1}, int64_t{7}, kRows}) {  // 7: slices begin and end inside a word
      std::vector<float> values(matrix.values().size());
      for (int64_t first = 0; first < kRows; first += step) {
        const int64_t rows = std::min(step, kRows - first);
        tensor.encoded->decode(
            first, rows,
            std::span(values).subspan(static_cast<size_t>(first * kCols), static_cast<size_t>(rows * kCols)));
      }
      EXPECT_EQ(values, matrix.values()) << "by " << step;
    }
  }
}

}  // namespace
}  // namespace nodewright
