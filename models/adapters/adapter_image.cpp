#include "models/adapters/adapter_image.h"

#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/weights/bf16_conversion.h"
#include "models/weights/weights.h"

namespace nodewright {
namespace {

// A and B of a module, in bf16.
struct ReadModule {
  std::vector<WeightElement> a, b;
  int64_t rank = 0, cols = 0;  // of A, all columns
  float scale = 0;
};

std::vector<WeightElement> read_bf16(const TensorInfo& tensor) {
  const std::vector<float> values = read_floats(tensor);
  std::vector<WeightElement> rounded(values.size());
  convert_to_bf16(Dtype::kF32, reinterpret_cast<const std::byte*>(values.data()), rounded.data(),
                  static_cast<int64_t>(values.size()));
  return rounded;
}

// Puts the rows of one matrix in their places in a slot.
class MatrixImage {
 public:
  MatrixImage(std::byte* slot, const AdapterMatrix& matrix, int64_t rank) : slot_(slot), m_(matrix), rank_(rank) {}

  void add(const WeightPart& part, const ReadModule& module) {
    auto* const b = reinterpret_cast<WeightElement*>(slot_ + m_.b);
    for (int64_t i = 0; i < part.rows; ++i) {
      const int64_t output = part.first + i * part.step, row = part.from + i * part.from_step;
      std::memcpy(b + output * rank_, module.b.data() + row * module.rank, bytes_of(module.rank));
      add_a(m_.part_of(output), module, part.from_col);
    }
  }

 private:
  static size_t bytes_of(int64_t elements) { return static_cast<size_t>(elements) * sizeof(WeightElement); }

  // Once for each part: a module that holds several of them gives each its A.
  void add_a(int64_t part, const ReadModule& module, int64_t from_col) {
    bool& has = has_a_[static_cast<size_t>(part)];
    if (std::exchange(has, true)) return;
    auto* const a = reinterpret_cast<WeightElement*>(slot_ + m_.a) + part * rank_ * m_.stride;
    for (int64_t r = 0; r < module.rank; ++r)
      std::memcpy(a + r * m_.stride, module.a.data() + r * module.cols + from_col, bytes_of(m_.cols));
    reinterpret_cast<float*>(slot_ + m_.scales)[part] = module.scale;
  }

  std::byte* slot_;
  const AdapterMatrix& m_;
  int64_t rank_;
  std::array<bool, 3> has_a_ = {};
};

// The modules of one layer, each read once: several pieces may be of one, and every rank has some of each.
class LayerModules {
 public:
  explicit LayerModules(const LoraAdapter& adapter) : adapter_(adapter) {}

  // That of a piece of a weight; null: the adapter leaves it as it is.
  const ReadModule* of(const WeightPart& piece, const ModelConfig& config) {
    std::string_view name = without_prefix(piece.tensor->name, config.names);
    name.remove_suffix(std::string_view(".weight").size());
    const AdapterModule* const found = adapter_.find(name);
    if (found == nullptr) return nullptr;
    const auto [entry, is_new] = read_.try_emplace(std::string(name));
    if (is_new)
      entry->second = {read_bf16(*found->a), read_bf16(*found->b), found->rank, found->a->shape[1],
                       static_cast<float>(found->scale)};
    return &entry->second;
  }

 private:
  const LoraAdapter& adapter_;
  std::map<std::string, ReadModule, std::less<>> read_;
};

// The slot of one rank, while it is filled.
class SlotImage {
 public:
  SlotImage(std::byte* slot, const ModelConfig& config, const AdapterLayout& layout)
      : slot_(slot), config_(config), layout_(layout), sources_(weight_sources(any_, config)) {
    for (const WeightSource& source : sources_) by_name_.emplace(source.name, &source);
  }

  void add(int64_t layer, LayerModules& modules) {
    for (const Part part : kAdaptedParts) {
      if (!AdapterLayout::adapts(config_, layer, part)) continue;
      const auto source = by_name_.find("l" + std::to_string(layer) + "." + weight_name(config_, part));
      if (source == by_name_.end()) continue;
      MatrixImage image(slot_, layout_.of(layer, part), layout_.limits().rank);
      for (const WeightPart& piece : source->second->parts)
        if (const ReadModule* module = modules.of(piece, config_)) image.add(piece, *module);
    }
  }

 private:
  std::byte* slot_;
  const ModelConfig& config_;
  const AdapterLayout& layout_;
  const Checkpoint any_ = Checkpoint::dummy("");
  std::vector<WeightSource> sources_;
  std::map<std::string_view, const WeightSource*> by_name_;
};

}  // namespace

AdapterImage::AdapterImage(const LoraAdapter& adapter, std::span<const AdapterPlace> ranks)
    : folder_(adapter.folder()), rank_(adapter.rank()) {
  std::vector<std::unique_ptr<SlotImage>> slots;
  parts_.reserve(ranks.size());
  pools_.reserve(ranks.size());
  for (const AdapterPlace& at : ranks) {
    const StagingBuffer& memory = parts_.emplace_back(
        at.pool != nullptr ? at.pool->take() : StagingBuffer(*at.device, "adapter.image", at.layout->slot_bytes()));
    pools_.push_back(at.pool);
    std::memset(memory.data(), 0, memory.bytes());
    slots.push_back(std::make_unique<SlotImage>(memory.data(), *at.config, *at.layout));
  }
  for (int64_t layer = 0; layer < ranks[0].config->layers; ++layer) {
    LayerModules modules(adapter);
    for (const auto& slot : slots) slot->add(layer, modules);
  }
  for (StagingBuffer& part : parts_) part.pin();
}

AdapterImage::~AdapterImage() {
  for (size_t rank = 0; rank < parts_.size(); ++rank)
    if (pools_[rank] != nullptr) pools_[rank]->give_back(std::move(parts_[rank]));
}

AdapterImage::AdapterImage(Device& device, const LoraAdapter& adapter, const ModelConfig& config,
                           const AdapterLayout& layout)
    : AdapterImage(adapter, std::array{AdapterPlace{&device, &config, &layout}}) {}

}  // namespace nodewright
