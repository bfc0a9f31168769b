#include "engine/ranks/rank_terms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <system_error>

#include "runtime/kernels/content_hash.h"

namespace nodewright {
namespace {

namespace fs = std::filesystem;

// A file's digest covers its first bytes, which hold the header of a safetensors file, and blocks spread over the rest,
// which other weights of the same shapes do not share.
constexpr uint64_t kHeadBytes = uint64_t{1} << 19, kBlockBytes = 4096, kBlocks = 64;

// Hex digits of a hash: as many as a person compares.
constexpr size_t kDigits = 16;

std::string shown(ContentHash& hash) { return to_hex(hash.finish()).substr(0, kDigits); }

void add_bytes(ContentHash& hash, std::ifstream& file, uint64_t first, uint64_t bytes) {
  std::string text(bytes, '\0');
  file.clear();
  file.seekg(static_cast<std::streamoff>(first));
  file.read(text.data(), static_cast<std::streamsize>(bytes));
  hash.add_field(std::string_view(text).substr(0, static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0))));
}

void add_file(ContentHash& hash, const fs::path& path, uint64_t head) {
  std::error_code problem;
  const uint64_t found = fs::file_size(path, problem), size = problem ? 0 : found;
  hash.add_field(fmt::format("{} {}", path.filename().string(), size));
  std::ifstream file(path, std::ios::binary);
  add_bytes(hash, file, 0, std::min(size, head));
  if (size <= head) return;
  for (uint64_t i = 0; i < kBlocks; ++i) add_bytes(hash, file, head + (size - head) / kBlocks * i, kBlockBytes);
}

const char* words_of(Numerics numerics) { return numerics == Numerics::fast ? "fast" : "invariant"; }

const char* words_of(EdgePolicy policy) {
  return policy == EdgePolicy::serial ? "serial" : policy == EdgePolicy::full ? "full" : "programmatic";
}

std::string words_of(const Tuning* tuning) {
  if (tuning == nullptr) return "none";
  ContentHash hash;
  hash.add_field(tuning_json(*tuning));
  return shown(hash);
}

}  // namespace

std::vector<RankTerm> rank_terms(const StepSlotsOptions& options, const Device& device, const ModelConfig& config) {
  return {{"device", device.name()},
          {"sizes of a rank's part", model_sizes(config)},
          {"rows of the graphs (--buckets, --step-tokens, --max-batch, --speculate)",
           fmt::format("{}", fmt::join(options.buckets.sizes(), ","))},
          {"requests at once (--max-batch)", std::to_string(options.sequences)},
          {"rows that choose (--max-batch, --speculate)", std::to_string(options.most_sampled)},
          {"tokens of context (--max-context)", std::to_string(options.max_context)},
          {"pages of layers with a window",
           options.window_pages ? std::to_string(*options.window_pages) : std::string("as of the others")},
          {"numerics (--numerics)", words_of(options.numerics)},
          {"edges (--edges)", words_of(options.policy)},
          {"second choices", options.choices ? "yes" : "no"},
          {"hidden states", std::string(name_of(options.hidden))},
          {"rows of library products (--products-from)", std::to_string(options.products_from)},
          {"tuning (--tuning)", words_of(options.tuning.get())}};
}

std::string checkpoint_identity(const fs::path& folder, bool weights) {
  ContentHash hash;
  add_file(hash, folder / "config.json", UINT64_MAX);
  if (weights) {
    std::vector<fs::path> files;
    std::error_code problem;
    for (const fs::directory_entry& file : fs::directory_iterator(folder, problem))
      if (file.path().extension() == ".safetensors") files.push_back(file.path());
    std::ranges::sort(files);
    for (const fs::path& file : files) add_file(hash, file, kHeadBytes);
  }
  return shown(hash);
}

}  // namespace nodewright
