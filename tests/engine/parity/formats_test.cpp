// Checkpoints of quantized weights against transformers on the dequantized ones, in every mode.
#include <algorithm>

#include "tests/engine/parity/parity_limits.h"

namespace nodewright {
namespace {

using namespace test;

// One of each way of storing: blocks, mixed compressed-tensors, integers along inputs and outputs, a state beside them.
const std::vector<std::string> kSomeFormats = {"formats/fp8_block",    "formats/ct_mixed", "formats/ct_nvfp4",
                                               "formats/gptq_dynamic", "formats/awq",      "formats/bnb_nf4_nested"};

std::vector<std::string> all_format_goldens() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder("formats")))
    if (std::filesystem::exists(entry.path() / "cases.json"))
      names.push_back("formats/" + entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

class FormatParity : public testing::TestWithParam<std::string> {};

TEST_P(FormatParity, IsThatOfTheDequantizedWeightsInEveryMode) {
  LoadedModel loaded(GetParam());
  const GoldenCase one = golden_cases_of(GetParam()).at(0);
  std::vector<Logits> first;
  for (const RunMode mode : {RunMode::explicit_, RunMode::captured, RunMode::eager}) {
    DecoderOptions options = decoder_options(1, mode);
    options.max_context = loaded.model.config().max_position;
    Decoder decoder = loaded.decoder(options);
    const std::vector<Logits> rows = forced_logits(decoder, loaded, one.prompt, one.continuation);
    if (first.empty()) first = rows;
    EXPECT_TRUE(same_bits(rows, first)) << to_string(mode);
  }
  const double error = relative_error(first, one.expected);
  if (writes_parity()) return record_errors(GetParam(), "one_row", {error});
  EXPECT_LT(error, parity_limit(GetParam(), "one_row", 0));
  EXPECT_GT(error, 0);
}

INSTANTIATE_TEST_SUITE_P(Some, FormatParity, testing::ValuesIn(kSomeFormats), golden_test_name);
INSTANTIATE_TEST_SUITE_P(EverySweep, FormatParity, testing::ValuesIn(all_format_goldens()), golden_test_name);

}  // namespace
}  // namespace nodewright
