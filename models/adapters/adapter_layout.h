// Where the matrices of a LoRA adapter are in the memory of an adapter slot. The layout is the same for every adapter
// of a model, since each has room for the largest rank, so that one graph serves them all.
//
// Kernels multiply four matrices of a layer: qkv, out, gate_up and down. For each, a slot has the A of its parts (q, k,
// v; gate, up), stacked, and one B, whose row n belongs to output n. Parts that an adapter lacks are zero.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "models/config/model_config.h"
#include "models/config/part.h"

namespace nodewright {

// How many adapters the device holds at once, and their largest rank.
struct AdapterLimits {
  int64_t slots = 0;  // 0: no adapters
  int64_t rank = 0;   // a multiple of 8
  bool any() const { return slots > 0; }
  bool operator==(const AdapterLimits&) const = default;
};
// `most_rank`: the largest rank as the user gave it, which is rounded up here.
constexpr AdapterLimits adapter_limits(int64_t slots, int64_t most_rank) {
  return {slots, slots > 0 ? (most_rank + 7) / 8 * 8 : 0};
}

inline constexpr std::array<Part, 4> kAdaptedParts = {Part::qkv, Part::out, Part::gate_up, Part::down};
constexpr size_t place_of(Part part) {
  size_t place = 0;
  while (kAdaptedParts[place] != part) ++place;
  return place;
}

// An adapter's A and B for one matrix of a layer. Offsets are bytes from the start of a slot.
struct AdapterMatrix {
  int64_t cols = 0, stride = 0;       // of A, in elements
  int64_t outputs = 0;                // rows of B
  int64_t parts = 1;                  // parts of the matrix, each with an A of its own
  std::array<int64_t, 2> first = {};  // the first output of part 1 and of part 2; unused where `alternates`
  bool alternates = false;            // output 2i belongs to part 0 and output 2i + 1 to part 1
  uint64_t a = 0;                     // [parts * rank, stride] bf16
  uint64_t b = 0;                     // [outputs, rank] bf16
  uint64_t scales = 0;                // [parts] float

  int64_t part_of(int64_t output) const {
    if (alternates) return output % 2;
    return output < first[0] ? 0 : output < first[1] ? 1 : 2;
  }
};

class AdapterLayout {
 public:
  AdapterLayout(const ModelConfig& config, const AdapterLimits& limits);

  // `part`: one that adapts() allows in this layer.
  const AdapterMatrix& of(int64_t layer, Part part) const {
    return matrices_[static_cast<size_t>(layer) * kAdaptedParts.size() + place_of(part)];
  }
  const AdapterLimits& limits() const { return limits_; }
  uint64_t slot_bytes() const { return slot_bytes_; }  // a multiple of 256
  uint64_t bytes() const { return slot_bytes_ * static_cast<uint64_t>(limits_.slots); }

  // Whether adapters may change this matrix of the layer. In a layer with experts, gate_up and down are the stacked
  // matrices of all experts, which no adapter may change.
  static bool adapts(const ModelConfig& config, int64_t layer, Part part) {
    const bool of_block = part == Part::gate_up || part == Part::down;
    return !of_block || config.feed_forward(layer) == FeedForward::dense;
  }
  // The parts of a matrix: 3 for qkv, 2 for gate_up with a gate, otherwise 1.
  static int64_t parts_of(const ModelConfig& config, Part part);

 private:
  AdapterLimits limits_;
  std::vector<AdapterMatrix> matrices_;
  uint64_t slot_bytes_ = 0;
};

}  // namespace nodewright
