#include "engine/ranks/rank_terms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <system_error>

#include "base/checked_file.h"
#include "base/file_to_read.h"
#include "base/gguf_file.h"
#include "runtime/compilers/content_hash.h"

namespace nodewright {
namespace {

namespace fs = std::filesystem;

// A file's digest covers its first bytes, which hold the header of a safetensors file, and blocks spread over the rest,
// which other weights of the same shapes do not share.
constexpr uint64_t kHeadBytes = uint64_t{1} << 19, kBlockBytes = 4096, kBlocks = 64;

// Hex digits of a hash: as many as a person compares.
constexpr size_t kDigits = 16;

std::string shown(ContentHash& hash) { return to_hex(hash.finish()).substr(0, kDigits); }

void add_bytes(ContentHash& hash, const CheckedFile& file, uint64_t first, uint64_t bytes) {
  std::string text(std::min(bytes, file.bytes() - first), '\0');
  file.read(first, std::as_writable_bytes(std::span(text)));
  hash.add_field(text);
}

void add_file(ContentHash& hash, const fs::path& path, uint64_t head) {
  if (!is_present(path)) return hash.add_field(path.filename().string() + " 0");  // an adapter has no config.json
  const CheckedFile file(path);
  const uint64_t size = file.bytes();
  hash.add_field(fmt::format("{} {}", path.filename().string(), size));
  add_bytes(hash, file, 0, std::min(size, head));
  if (size <= head) return;
  for (uint64_t i = 0; i < kBlocks; ++i) add_bytes(hash, file, head + (size - head) / kBlocks * i, kBlockBytes);
}

// The header of a GGUF file ends wherever its vocabulary does: the digest covers what it says of tensors, and the first
// bytes of each.
void add_gguf(ContentHash& hash, const fs::path& path) {
  const GgufModel model = GgufModel::open(path, kGgufTokenizer);
  for (const GgufTensor& tensor : model.tensors()) {
    hash.add_field(fmt::format("{} {} {} {}", tensor.name, tensor.type->name, tensor.offset, tensor.bytes));
    add_bytes(hash, *tensor.file, tensor.offset, std::min(tensor.bytes, kBlockBytes));
  }
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
          {"cache (--kv-cache-dtype)", std::string(name_of(config.cache))},
          {"numerics (--numerics)", words_of(options.numerics)},
          {"edges (--edges)", words_of(options.policy)},
          {"second choices", options.choices ? "yes" : "no"},
          {"hidden states", std::string(name_of(options.hidden))},
          {"rows of library products (--products-from)",
           options.products_from ? std::to_string(*options.products_from) : "as suits the network"},
          {"tuning (--tuning)", words_of(options.tuning.get())}};
}

std::string checkpoint_identity(const fs::path& folder, bool weights) {
  ContentHash hash;
  if (is_gguf(folder)) {
    add_gguf(hash, folder);
    return shown(hash);
  }
  add_file(hash, folder / "config.json", UINT64_MAX);
  if (is_present(folder / "hf_quant_config.json")) add_file(hash, folder / "hf_quant_config.json", UINT64_MAX);
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
