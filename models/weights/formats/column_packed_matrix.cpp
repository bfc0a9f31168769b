#include "models/weights/formats/column_packed_matrix.h"

#include <fmt/format.h>

#include <vector>

#include "models/weights/formats/stored_tensor.h"

namespace nodewright {
namespace {

class ColumnPackedMatrix : public EncodedMatrix {
 public:
  ColumnPackedMatrix(std::string format, const ColumnPackedParts& p)
      : EncodedMatrix(std::move(format), p.groups ? std::vector{p.codes, p.scales, p.zeros, p.groups}
                                                  : std::vector{p.codes, p.scales, p.zeros}),
        p_(p) {}

  void decode(int64_t first, int64_t rows, std::span<float> to) const override {
    const auto outputs = static_cast<size_t>(rows), groups = static_cast<size_t>(p_.group_count());
    const auto inputs = static_cast<size_t>(p_.cols), in_word = static_cast<size_t>(p_.codes_of_word());
    std::vector<float> scales(groups * outputs), zeros(groups * outputs);
    std::vector<uint32_t> words;
    for (size_t g = 0; g < groups; ++g) {
      const uint64_t at = g * static_cast<uint64_t>(p_.rows) + static_cast<uint64_t>(first);
      read_values(*p_.scales, at, std::span(scales).subspan(g * outputs, outputs));
      read_across(*p_.zeros, g, first, rows, words);
      for (size_t n = 0; n < outputs; ++n)
        zeros[g * outputs + n] = static_cast<float>(code_across(words, first, n) + p_.zero_offset);
    }
    const std::vector<int32_t> group_of = groups_of();
    if (p_.packs_inputs) words.resize(outputs);
    for (size_t k = 0; k < inputs; ++k) {
      if (!p_.packs_inputs)
        read_across(*p_.codes, k, first, rows, words);
      else if (k % in_word == 0)
        read_elements(*p_.codes, k / in_word * static_cast<uint64_t>(p_.rows) + static_cast<uint64_t>(first),
                      std::span(words));
      const auto shift = static_cast<unsigned>(k % in_word) * static_cast<unsigned>(p_.bits);
      const size_t grid = static_cast<size_t>(group_of[k]) * outputs;
      for (size_t n = 0; n < outputs; ++n) {
        const int64_t code =
            p_.packs_inputs ? static_cast<int64_t>(words[n] >> shift & mask()) : code_across(words, first, n);
        to[n * inputs + k] = (static_cast<float>(code) - zeros[grid + n]) * scales[grid + n];
      }
    }
  }

 private:
  uint32_t mask() const { return (1u << static_cast<unsigned>(p_.bits)) - 1; }

  // The words of a row that hold outputs [first, first + rows).
  void read_across(const TensorInfo& tensor, uint64_t row, int64_t first, int64_t rows,
                   std::vector<uint32_t>& words) const {
    const int64_t in_word = p_.codes_of_word(), first_word = first / in_word;
    words.resize(static_cast<size_t>((first + rows - 1) / in_word + 1 - first_word));
    read_elements(tensor, row * static_cast<uint64_t>(p_.rows / in_word) + static_cast<uint64_t>(first_word),
                  std::span(words));
  }
  // Output first + n of what read_across() read.
  int64_t code_across(const std::vector<uint32_t>& words, int64_t first, size_t n) const {
    const auto in_word = static_cast<size_t>(p_.codes_of_word());
    const size_t at = static_cast<size_t>(first) % in_word + n;
    return words[at / in_word] >> (p_.place[at % in_word] * static_cast<unsigned>(p_.bits)) & mask();
  }

  std::vector<int32_t> groups_of() const {
    std::vector<int32_t> groups(static_cast<size_t>(p_.cols));
    if (p_.groups == nullptr) {
      for (size_t k = 0; k < groups.size(); ++k) groups[k] = static_cast<int32_t>(static_cast<int64_t>(k) / p_.group);
      return groups;
    }
    read_elements(*p_.groups, 0, std::span(groups));
    for (size_t k = 0; k < groups.size(); ++k)
      if (groups[k] < 0 || groups[k] >= p_.group_count())
        refuse_stored(*p_.groups, fmt::format("element {} is {}, expected a group from 0 to {}", k, groups[k],
                                              p_.group_count() - 1));
    return groups;
  }

  ColumnPackedParts p_;
};

}  // namespace

std::unique_ptr<EncodedMatrix> column_packed_matrix(std::string format, const ColumnPackedParts& parts) {
  return std::make_unique<ColumnPackedMatrix>(std::move(format), parts);
}

}  // namespace nodewright
