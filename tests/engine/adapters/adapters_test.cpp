// Rows with LoRA adapters against PEFT, and against themselves: alone, among others, in every mode, beside rows
// without.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "runtime/error.h"
#include "tests/engine/adapters/adapted_model.h"
#include "tests/engine/parity/parity_limits.h"
#include "tests/support/scratch_folder.h"

namespace nodewright {
namespace {

using namespace test;

const std::vector<std::string> kAdapters = {"llama_all", "llama_root", "llama_layer", "llama_linear",
                                            "phi3",      "gpt_neox",   "gpt2",        "gemma2",
                                            "olmo2",     "granite",    "qwen3",       "qwen3_moe"};
constexpr const char* kAdapterForms[] = {"one_row", "eight_rows", "products"};

DecoderOptions adapter_options(const std::string& form, const LoadedModel& loaded) {
  DecoderOptions options = decoder_options(form == "eight_rows" ? 8 : 1);
  if (form == "products") options.bucket = options.sequences = kProductsFromRows, options.prefill_rows = 40;
  options.max_context = std::min<int64_t>(256, loaded.model.config().max_position);
  options.adapters = adapter_limits(2, kGoldenRank);
  return options;
}

std::vector<double> adapter_errors(LoadedModel& loaded, const std::filesystem::path& folder,
                                   const std::vector<GoldenCase>& cases, const std::string& form) {
  Decoder decoder = loaded.decoder(adapter_options(form, loaded));
  load_adapter(decoder, loaded, 1, folder);
  std::vector<double> errors;
  for (const GoldenCase& one : cases)
    errors.push_back(relative_error(adapted_logits(decoder, loaded, 1, one.prompt, one.continuation), one.expected));
  return errors;
}

class Adapters : public testing::TestWithParam<std::string> {};

TEST_P(Adapters, LogitsAreThoseOfPeftInEveryForm) {
  LoadedModel loaded(base_of(GetParam()));
  const std::string golden = "adapters/" + GetParam();
  const std::vector<GoldenCase> cases = golden_cases_of(golden);
  for (const std::string form : kAdapterForms) {
    const std::vector<double> errors = adapter_errors(loaded, adapter_folder(GetParam()), cases, form);
    if (writes_parity()) record_errors(golden, form, errors);
    for (size_t i = 0; i < cases.size(); ++i) {
      EXPECT_LE(errors[i], parity_limit(golden, form, i)) << form << ", prompt of " << cases[i].prompt.size();
      EXPECT_GT(errors[i], 0) << "compared with itself?";
    }
  }
}

TEST_P(Adapters, MergedIntoTheWeightsTheyGivePeftsLogits) {
  LoadedModel loaded(base_of(GetParam()));
  DecoderModel merged = DecoderModel::load(loaded.device, loaded.stream, golden_folder(base_of(GetParam())), {},
                                           {.merged = {adapter_folder(GetParam())}});
  std::swap(loaded.model, merged);
  const std::string golden = "adapters/" + GetParam();
  const std::vector<GoldenCase> cases = golden_cases_of(golden);
  DecoderOptions options = decoder_options(1);
  options.max_context = std::min<int64_t>(256, loaded.model.config().max_position);
  Decoder decoder = loaded.decoder(options);
  for (size_t i = 0; i < cases.size(); ++i)
    EXPECT_LE(relative_error(forced_logits(decoder, loaded, cases[i].prompt, cases[i].continuation), cases[i].expected),
              1.2 * parity_limit(golden, "one_row", i));  // weights of another rounding
}

// A row without an adapter keeps the bits of the graph without adapters, in a step where another row has one.
TEST_P(Adapters, LeaveRowsWithoutOneTheirBits) {
  LoadedModel loaded(base_of(GetParam()));
  const GoldenCase one = golden_cases_of("adapters/" + GetParam()).at(1);
  for (const std::string form : kAdapterForms) {
    if (form == std::string("one_row")) continue;
    DecoderOptions options = adapter_options(form, loaded);
    std::vector<Logits> plain;
    {
      options.adapters = {};
      Decoder decoder = loaded.decoder(options);
      plain = forced_logits(decoder, loaded, one.prompt, one.continuation);
    }
    options.adapters = adapter_limits(2, kGoldenRank);
    Decoder decoder = loaded.decoder(options);
    load_adapter(decoder, loaded, 0, adapter_folder(GetParam()));
    const int32_t own = decoder.open(), other = decoder.open(0);
    decoder.append(own, std::span(one.prompt).first(one.prompt.size() - 1));
    decoder.append(other, std::span(one.prompt).first(7));
    Tokens forced{one.prompt.back()};
    forced.insert(forced.end(), one.continuation.begin(), one.continuation.end());
    for (size_t i = 0; i < forced.size(); ++i) {
      decoder.poison();
      decoder.step({{.sequence = own, .token = forced[i]}, {.sequence = other, .token = one.prompt[7 + i]}});
      EXPECT_TRUE(same_bits(logits_of(decoder, loaded, 0), plain[i])) << form << ", step " << i;
      EXPECT_FALSE(same_bits(logits_of(decoder, loaded, 1), plain[i]));
    }
  }
}

TEST_P(Adapters, ModesChangeNoBit) {
  LoadedModel loaded(base_of(GetParam()));
  const GoldenCase one = golden_cases_of("adapters/" + GetParam()).at(0);
  for (const std::string form : kAdapterForms) {
    std::vector<Logits> first;
    for (const RunMode mode : {RunMode::explicit_, RunMode::captured, RunMode::eager}) {
      DecoderOptions options = adapter_options(form, loaded);
      options.mode = mode;
      Decoder decoder = loaded.decoder(options);
      load_adapter(decoder, loaded, 1, adapter_folder(GetParam()));
      const std::vector<Logits> rows = adapted_logits(decoder, loaded, 1, one.prompt, one.continuation);
      if (first.empty()) first = rows;
      EXPECT_TRUE(same_bits(rows, first)) << form << ", mode " << static_cast<int>(mode);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Adapters, testing::ValuesIn(kAdapters), [](const auto& info) { return info.param; });

// Eight rows, four adapters of several ranks and two rows without one: each as it is alone, bit for bit.
TEST(AdaptedBatch, RowsAreThoseOfEachAlone) {
  const std::vector<std::string> names = {"llama_all", "llama_root", "llama_layer", "llama_linear"};
  const std::vector<int32_t> slots = {0, -1, 1, 2, 3, -1, 1, 0};
  LoadedModel loaded(base_of(names[0]));
  const auto decoder_of = [&](int64_t bucket) {
    DecoderOptions options = decoder_options(bucket);
    options.numerics = Numerics::invariant;
    options.adapters = adapter_limits(4, kGoldenRank);
    std::unique_ptr<Decoder> decoder(new Decoder(loaded.decoder(options)));
    for (size_t i = 0; i < names.size(); ++i)
      load_adapter(*decoder, loaded, static_cast<int32_t>(i), adapter_folder(names[i]));
    return decoder;
  };
  const auto prompt_of = [&](size_t row) { return some_tokens(3 + 5 * row, loaded.vocab(), row); };
  const auto continuation_of = [&](size_t row) { return some_tokens(4, loaded.vocab(), 100 + row); };

  std::vector<std::vector<Logits>> alone;
  const auto single = decoder_of(1);
  for (size_t row = 0; row < slots.size(); ++row)
    alone.push_back(adapted_logits(*single, loaded, slots[row], prompt_of(row), continuation_of(row)));
  const auto together = decoder_of(8);
  std::vector<StepRow> rows;
  for (size_t row = 0; row < slots.size(); ++row) {
    const Tokens prompt = prompt_of(row);
    rows.push_back({.sequence = together->open(slots[row]), .token = prompt.back()});
    together->append(rows.back().sequence, std::span(prompt).first(prompt.size() - 1));
  }
  for (size_t step = 0; step < alone[0].size(); ++step) {
    together->poison();
    together->step(rows);
    for (size_t row = 0; row < slots.size(); ++row) {
      EXPECT_TRUE(same_bits(logits_of(*together, loaded, static_cast<int64_t>(row)), alone[row][step]))
          << "row " << row << ", step " << step;
      if (step < 4) rows[row].token = continuation_of(row)[step];
    }
  }
}

// What a wrong reading of the files costs is more than the limit.
class PlantedAdapter {
 public:
  explicit PlantedAdapter(const std::string& adapter) {
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
      std::filesystem::copy(adapter_folder(adapter) / file, scratch_.path());
  }
  const std::filesystem::path& folder() const { return scratch_.path(); }
  void set(const std::string& key, const nlohmann::json& value) {
    const std::filesystem::path file = folder() / "adapter_config.json";
    nlohmann::json config = nlohmann::json::parse(read_text(file));
    config[key] = value;
    write_text(file, config.dump());
  }
  // Two tensors of one shape trade places.
  void swap(const std::string& one, const std::string& other) {
    const std::filesystem::path file = folder() / "adapter_model.safetensors";
    std::string bytes = read_text(file);
    for (const auto& [from, to] : {std::pair(one, std::string(one.size(), '#')), std::pair(other, one),
                                   std::pair(std::string(one.size(), '#'), other)}) {
      size_t at = 0, found = 0;
      while ((at = bytes.find(from, at)) != std::string::npos) bytes.replace(at, from.size(), to), ++found;
      if (found == 0) throw std::runtime_error("no " + from);
    }
    write_text(file, bytes);
  }

 private:
  ScratchFolder scratch_;
};

void expect_noticed(const std::string& adapter, const std::filesystem::path& folder) {
  LoadedModel loaded(base_of(adapter));
  const std::vector<GoldenCase> cases = golden_cases_of("adapters/" + adapter);
  const std::vector<double> errors = adapter_errors(loaded, folder, cases, "one_row");
  for (size_t i = 0; i < cases.size(); ++i)
    EXPECT_GT(errors[i], 2 * parity_limit("adapters/" + adapter, "one_row", i)) << "prompt " << i;
}

TEST(PlantedAdapterFaults, AreNoticed) {
  PlantedAdapter scaled("llama_all"), unrooted("llama_root");
  scaled.set("lora_alpha", 6.5);
  expect_noticed("llama_all", scaled.folder());
  unrooted.set("use_rslora", false);
  expect_noticed("llama_root", unrooted.folder());
  PlantedAdapter layers("qwen3"), kinds("gemma2");
  layers.swap("layers.0.self_attn", "layers.1.self_attn");
  expect_noticed("qwen3", layers.folder());
  kinds.swap("k_proj", "v_proj");
  expect_noticed("gemma2", kinds.folder());
}

TEST(PlantedAdapterFaults, AAndBInEachOthersPlaceAreRefused) {
  PlantedAdapter planted("llama_all");
  planted.swap("lora_A", "lora_B");
  LoadedModel loaded(base_of("llama_all"));
  EXPECT_THROW(LoraAdapter::open(planted.folder(), loaded.model.config(), 16), Error);
}

}  // namespace
}  // namespace nodewright
