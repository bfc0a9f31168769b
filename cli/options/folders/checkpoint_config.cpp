#include "cli/options/folders/checkpoint_config.h"

#include <algorithm>
#include <utility>

#include "engine/sampling/sampling_options.h"
#include "engine/sampling/sampling_range.h"
#include "runtime/error.h"
#include "text/tokenizer/files/token_settings.h"

namespace nodewright::cli {
namespace {

void add_end(const Tokenizer& tokenizer, ModelConfig& config) {
  const std::optional<TokenId> end = tokenizer.end_of_text();
  if (!end || *end >= config.vocab) return;
  if (std::exchange(config.eos_assumed, false)) config.eos.clear();
  if (std::ranges::count(config.eos, *end) == 0) config.eos.push_back(*end);
}

void check_defaults(const std::filesystem::path& folder, const ModelConfig& config) {
  const auto refuse = [&](std::string detail) {
    throw Error({.doing = "use the generation defaults of",
                 .object = (folder / "generation_config.json").string(),
                 .detail = std::move(detail),
                 .advice = "correct the file, or remove the key"});
  };
  const SamplingOptions silent{.seed = 0};
  if (const auto fault = sampling_fault(sampling_of(silent, config.generation)))
    refuse(fault->field + ": " + fault->detail);
  const std::vector<int32_t> stop_ids(config.eos.begin(), config.eos.end());
  if (std::string why = why_not(choice_of(silent, config.generation), stop_ids, config.vocab); !why.empty())
    refuse(std::move(why));
}

}  // namespace

ModelConfig read_config(const std::filesystem::path& folder, const std::optional<Tokenizer>& tokenizer) {
  ModelConfig config = read_model_config(folder);
  if (tokenizer) add_end(*tokenizer, config);
  check_defaults(folder, config);
  return config;
}

ModelConfig read_config_of_ids(const std::filesystem::path& folder) {
  std::optional<Tokenizer> tokenizer;
  const auto file = Tokenizer::file_in(folder);
  if (file && read_token_settings(folder).named.contains("eos_token")) tokenizer = Tokenizer::from_file(*file);
  return read_config(folder, tokenizer);
}

}  // namespace nodewright::cli
