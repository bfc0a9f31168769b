#include "models/weights/formats/column_packed_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "models/weights/formats/int4_words.h"
#include "models/weights/formats/packed_codes.h"
#include "models/weights/formats/stored_tensor.h"

namespace nodewright {
namespace {

class ColumnPackedMatrix : public EncodedMatrix {
 public:
  ColumnPackedMatrix(std::string format, const ColumnPackedParts& p)
      : EncodedMatrix(std::move(format), p.groups ? std::vector{p.codes, p.scales, p.zeros, p.groups}
                                                  : std::vector{p.codes, p.scales, p.zeros}),
        p_(p) {}

  // As many codes of a row of the file are read at once: 128 bytes of AWQ's.
  int64_t rows_at_once() const override { return 256; }

  void decode(int64_t first, int64_t rows, std::span<float> to) const override {
    const Factors factors = factors_of(first, rows);
    const std::vector<int32_t> groups = groups_of();
    each_tile(first, rows, [&](int64_t row, int64_t begin, int64_t end, const uint8_t* codes) {
      scale(codes, begin, end, factors, row, groups, to.data() + row * p_.cols + begin);
    });
  }

  std::optional<WeightLayout> group_layout() const override {
    return p_.bits == 4 && groups_of().empty() ? int4_layout_of(p_.group, p_.cols) : std::nullopt;
  }
  void group_codes(int64_t first, int64_t rows, std::span<uint8_t> to) const override {
    each_tile(first, rows, [&](int64_t row, int64_t begin, int64_t end, const uint8_t* codes) {
      std::copy_n(codes, end - begin, to.data() + row * p_.cols + begin);
    });
  }
  std::vector<uint32_t> group_words(int64_t first, int64_t rows) const override {
    const int64_t group = int4_layout_of(p_.group, p_.cols)->group;
    const Factors factors = factors_of(first, rows);
    std::vector<uint32_t> words;
    words.reserve(static_cast<size_t>(rows * (p_.cols / group)));
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t col = 0; col < p_.cols; col += group) {
        const auto at = static_cast<size_t>(row * p_.group_count() + col / p_.group);
        words.push_back(int4_scale_word(factors.scales[at], static_cast<uint8_t>(factors.zeros[at])));
      }
    return words;
  }

 private:
  static constexpr int64_t kTile = 256;  // inputs, a multiple of the codes of a word: 32 KiB of words, in a cache

  // [rows, groups]
  struct Factors {
    std::vector<float> scales, zeros;
  };

  Factors factors_of(int64_t first, int64_t rows) const {
    const auto outputs = static_cast<size_t>(rows), groups = static_cast<size_t>(p_.group_count());
    Factors factors{std::vector<float>(groups * outputs), std::vector<float>(groups * outputs)};
    std::vector<float> scales(outputs);
    std::vector<uint32_t> words;
    for (size_t g = 0; g < groups; ++g) {
      read_values(*p_.scales, g * static_cast<uint64_t>(p_.rows) + static_cast<uint64_t>(first), scales);
      words.clear();
      read_across(*p_.zeros, g, first, rows, words);
      for (uint32_t& word : words) word += p_.zero_addend;
      for (size_t n = 0; n < outputs; ++n) {
        factors.scales[n * groups + g] = scales[n];
        factors.zeros[n * groups + g] = static_cast<float>(code_across(words, first, n));
      }
    }
    return factors;
  }

  // Calls f(row, begin, end, codes of inputs [begin, end)) for each row, tile after tile.
  template <class F>
  void each_tile(int64_t first, int64_t rows, const F& f) const {
    std::vector<uint32_t> words;
    for (int64_t begin = 0; begin < p_.cols; begin += kTile) {
      const int64_t end = std::min(begin + kTile, p_.cols);
      const auto finish = [&](int64_t row, const uint8_t* codes) {
        if (row >= 0 && row < rows) f(row, begin, end, codes);
      };
      if (p_.packs_inputs)
        inputs_of_words(first, rows, begin, end, words, finish);
      else
        outputs_of_words(first, rows, begin, end, words, finish);
    }
  }

  // Calls finish(row, codes of inputs [begin, end)) for each row, where a word holds inputs.
  template <class Finish>
  void inputs_of_words(int64_t first, int64_t rows, int64_t begin, int64_t end, std::vector<uint32_t>& words,
                       const Finish& finish) const {
    const int64_t in_word = p_.codes_of_word(), count = (end - begin) / in_word;
    words.resize(static_cast<size_t>(count * rows));
    for (int64_t i = 0; i < count; ++i)
      read_elements(*p_.codes, static_cast<uint64_t>((begin / in_word + i) * p_.rows + first),
                    std::span(words).subspan(static_cast<size_t>(i * rows), static_cast<size_t>(rows)));
    std::array<uint8_t, kTile> codes;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < count; ++i)
        unpack_word(words[static_cast<size_t>(i * rows + row)], static_cast<unsigned>(p_.bits),
                    codes.data() + i * in_word);
      finish(row, codes.data());
    }
  }

  // The same where a word holds outputs. Also of rows outside [0, rows), which share a word with one inside.
  template <class Finish>
  void outputs_of_words(int64_t first, int64_t rows, int64_t begin, int64_t end, std::vector<uint32_t>& words,
                        const Finish& finish) const {
    const auto in_word = static_cast<size_t>(p_.codes_of_word()), inputs = static_cast<size_t>(end - begin);
    words.clear();
    for (int64_t k = begin; k < end; ++k) read_across(*p_.codes, static_cast<uint64_t>(k), first, rows, words);
    const size_t across = words.size() / inputs;
    std::vector<uint8_t> codes(in_word * kTile);
    std::array<uint8_t, 16> of_word;
    for (size_t column = 0; column < across; ++column) {
      for (size_t k = 0; k < inputs; ++k) {
        unpack_word(words[k * across + column], static_cast<unsigned>(p_.bits), of_word.data());
        for (size_t i = 0; i < in_word; ++i) codes[i * kTile + k] = of_word[p_.place[i]];
      }
      const int64_t row = static_cast<int64_t>(column * in_word) - first % p_.codes_of_word();
      for (size_t i = 0; i < in_word; ++i) finish(row + static_cast<int64_t>(i), codes.data() + i * kTile);
    }
  }

  // Inputs [begin, end) of a row. `groups`: groups_of().
  void scale(const uint8_t* codes, int64_t begin, int64_t end, const Factors& factors, int64_t row,
             const std::vector<int32_t>& groups, float* to) const {
    const float* const scales = factors.scales.data() + row * p_.group_count();
    const float* const zeros = factors.zeros.data() + row * p_.group_count();
    if (!groups.empty()) {
      for (int64_t k = begin; k < end; ++k) {
        const int32_t group = groups[static_cast<size_t>(k)];
        to[k - begin] = (static_cast<float>(codes[k - begin]) - zeros[group]) * scales[group];
      }
      return;
    }
    for (int64_t k = begin; k < end;) {
      const int64_t group = k / p_.group, after = std::min((group + 1) * p_.group, end);
      scale_codes(std::span(codes + (k - begin), static_cast<size_t>(after - k)), zeros[group], scales[group],
                  to + (k - begin));
      k = after;
    }
  }

  // Appends the words of a row that hold outputs [first, first + rows).
  void read_across(const TensorInfo& tensor, uint64_t row, int64_t first, int64_t rows,
                   std::vector<uint32_t>& words) const {
    const int64_t in_word = p_.codes_of_word(), first_word = first / in_word;
    const size_t before = words.size();
    words.resize(before + static_cast<size_t>((first + rows - 1) / in_word + 1 - first_word));
    read_elements(tensor, row * static_cast<uint64_t>(p_.rows / in_word) + static_cast<uint64_t>(first_word),
                  std::span(words).subspan(before));
  }
  // Output first + n of what read_across() read of one row.
  int64_t code_across(const std::vector<uint32_t>& words, int64_t first, size_t n) const {
    const auto in_word = static_cast<size_t>(p_.codes_of_word());
    const size_t at = static_cast<size_t>(first) % in_word + n;
    const uint32_t mask = (1u << static_cast<unsigned>(p_.bits)) - 1;
    return words[at / in_word] >> (p_.place[at % in_word] * static_cast<unsigned>(p_.bits)) & mask;
  }

  // The group of each input; empty where they are in order.
  std::vector<int32_t> groups_of() const {
    if (p_.groups == nullptr) return {};
    std::vector<int32_t> groups(static_cast<size_t>(p_.cols));
    read_elements(*p_.groups, 0, std::span(groups));
    bool in_order = true;
    for (size_t k = 0; k < groups.size(); ++k) {
      if (groups[k] < 0 || groups[k] >= p_.group_count())
        refuse_stored(*p_.groups, fmt::format("element {} is {}, expected a group from 0 to {}", k, groups[k],
                                              p_.group_count() - 1));
      in_order = in_order && groups[k] == static_cast<int64_t>(k) / p_.group;
    }
    return in_order ? std::vector<int32_t>() : groups;
  }

  ColumnPackedParts p_;
};

}  // namespace

std::unique_ptr<EncodedMatrix> column_packed_matrix(std::string format, const ColumnPackedParts& parts) {
  return std::make_unique<ColumnPackedMatrix>(std::move(format), parts);
}

}  // namespace nodewright
