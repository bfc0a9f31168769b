// Small checkpoints in FP8 or int4, dense or of experts, that two devices can share, and the same numbers in bf16.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/engine/parity/fp8_checkpoint.h"
#include "tests/models/int4_checkpoint.h"

namespace nodewright::test {

enum class Coding : uint8_t { fp8_rows, fp8_blocks, int4, int4_of_32 };

// `rows`: of the steps that a test takes.
struct CodedCase {
  Coding coding;
  bool experts;
  int64_t rows = 1;
};
inline std::vector<CodedCase> coded_cases(const std::vector<int64_t>& rows) {
  std::vector<CodedCase> cases;
  for (const Coding coding : {Coding::fp8_rows, Coding::fp8_blocks, Coding::int4, Coding::int4_of_32})
    for (const bool experts : {false, true})
      for (const int64_t n : rows) cases.push_back({coding, experts, n});
  return cases;
}
inline std::string name_of_coded(const testing::TestParamInfo<CodedCase>& info) {
  constexpr const char* kNames[] = {"fp8_rows", "fp8_blocks", "int4", "int4_of_32"};
  return std::string(kNames[static_cast<size_t>(info.param.coding)]) + (info.param.experts ? "_experts_" : "_dense_") +
         std::to_string(info.param.rows);
}

class CodedCheckpoint {
 public:
  explicit CodedCheckpoint(const CodedCase& of) {
    const SmallNetwork& network = of.experts ? kExpertsSharedByTwo : kSharedByTwo;
    if (of.coding == Coding::fp8_rows || of.coding == Coding::fp8_blocks)
      fp8_.emplace(of.coding == Coding::fp8_blocks, "", "", std::vector<TestTensor>{}, network);
    else
      int4_.emplace(Int4Form::compressed_zeros, of.coding == Coding::int4 ? 64 : 32, "", "", network);
  }
  std::string coded() const { return fp8_ ? fp8_->in_fp8() : int4_->in_int4(); }
  std::string in_bf16() const { return fp8_ ? fp8_->in_bf16() : int4_->in_bf16(); }

 private:
  std::optional<Fp8Checkpoint> fp8_;
  std::optional<Int4Checkpoint> int4_;
};

}  // namespace nodewright::test
