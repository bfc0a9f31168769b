#include "models/adapters/adapter_image.h"

#include <cstring>
#include <map>
#include <vector>

#include "models/weights/bf16_conversion.h"
#include "models/weights/weights.h"

namespace nodewright {
namespace {

// A and B of a module, in bf16.
struct ReadModule {
  std::vector<bf16> a, b;
  int64_t rank = 0;
  float scale = 0;
};

std::vector<bf16> read_bf16(const TensorInfo& tensor) {
  const std::vector<float> values = read_floats(tensor);
  std::vector<bf16> rounded(values.size());
  convert_to_bf16(Dtype::kF32, reinterpret_cast<const std::byte*>(values.data()), rounded.data(),
                  static_cast<int64_t>(values.size()));
  return rounded;
}

// Puts the rows of one matrix in their places in a slot.
class MatrixImage {
 public:
  MatrixImage(std::byte* slot, const AdapterMatrix& matrix, int64_t rank) : slot_(slot), m_(matrix), rank_(rank) {}

  void add(const WeightPart& part, const ReadModule& module) {
    auto* const b = reinterpret_cast<bf16*>(slot_ + m_.b);
    for (int64_t i = 0; i < part.rows; ++i) {
      const int64_t output = part.first + i * part.step, row = part.from + i * part.from_step;
      std::memcpy(b + output * rank_, module.b.data() + row * module.rank, bytes_of(module.rank));
      add_a(m_.part_of(output), module);
    }
  }

 private:
  static size_t bytes_of(int64_t elements) { return static_cast<size_t>(elements) * sizeof(bf16); }

  // Once for each part: a module that holds several of them gives each its A.
  void add_a(int64_t part, const ReadModule& module) {
    bool& has = has_a_[static_cast<size_t>(part)];
    if (std::exchange(has, true)) return;
    auto* const a = reinterpret_cast<bf16*>(slot_ + m_.a) + part * rank_ * m_.stride;
    for (int64_t r = 0; r < module.rank; ++r)
      std::memcpy(a + r * m_.stride, module.a.data() + r * m_.cols, bytes_of(m_.cols));
    reinterpret_cast<float*>(slot_ + m_.scales)[part] = module.scale;
  }

  std::byte* slot_;
  const AdapterMatrix& m_;
  int64_t rank_;
  std::array<bool, 3> has_a_ = {};
};

void fill(std::byte* slot, const LoraAdapter& adapter, const ModelConfig& config, const AdapterLayout& layout) {
  const Checkpoint any = Checkpoint::dummy("");
  std::map<std::string, const WeightSource*> sources;
  const std::vector<WeightSource> all = weight_sources(any, config);
  for (const WeightSource& source : all) sources.emplace(source.name, &source);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    std::map<std::string, ReadModule, std::less<>> read;  // of this layer: several pieces may be of one
    for (const Part part : kAdaptedParts) {
      const auto source = sources.find("l" + std::to_string(layer) + "." + weight_name(config, part));
      if (source == sources.end() || source->second->rows != AdapterLayout::outputs_of(config, part)) continue;
      MatrixImage image(slot, layout.of(layer, part), layout.limits().rank);
      for (const WeightPart& piece : source->second->parts) {
        std::string_view module = without_prefix(piece.tensor->name, config.names);
        module.remove_suffix(std::string_view(".weight").size());
        const AdapterModule* found = adapter.find(module);
        if (found == nullptr) continue;
        const auto [entry, is_new] = read.try_emplace(std::string(module));
        if (is_new)
          entry->second = {read_bf16(*found->a), read_bf16(*found->b), found->rank, static_cast<float>(found->scale)};
        image.add(piece, entry->second);
      }
    }
  }
}

}  // namespace

AdapterImage::AdapterImage(Device& device, const LoraAdapter& adapter, const ModelConfig& config,
                           const AdapterLayout& layout)
    : folder_(adapter.folder()), rank_(adapter.rank()), memory_(device, "adapter.image", layout.slot_bytes()) {
  std::memset(memory_.data(), 0, memory_.bytes());
  fill(memory_.data(), adapter, config, layout);
  memory_.pin();
}

}  // namespace nodewright
