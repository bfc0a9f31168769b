// Where the matrices of an adapter lie in the memory of a slot: the same for every adapter of a model, whatever its own
// ranks, so that one graph serves all.
//
// For each matrix of a layer that kernels multiply as one (qkv, out, gate_up, down) a slot has the A of each part (q,
// k, v; gate, up), stacked, and one B whose row n belongs to output n; absent parts are zero.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "models/config/model_config.h"
#include "models/network/network.h"

namespace nodewright {

// How many adapters the device holds at once, and up to which rank.
struct AdapterLimits {
  int64_t slots = 0;  // 0: no adapters
  int64_t rank = 0;   // a multiple of 8
  bool any() const { return slots > 0; }
  bool operator==(const AdapterLimits&) const = default;
};
// Limits for the largest rank as the user gave it.
constexpr AdapterLimits adapter_limits(int64_t slots, int64_t most_rank) {
  return {slots, slots > 0 ? (most_rank + 7) / 8 * 8 : 0};
}

inline constexpr std::array<Part, 4> kAdaptedParts = {Part::qkv, Part::out, Part::gate_up, Part::down};
// As weights are called: "gate_up", and "up" without a gate.
inline std::string weight_name(const ModelConfig& config, Part part) {
  return part == Part::gate_up && !config.gated ? "up" : std::string(to_string(part));
}
constexpr size_t place_of(Part part) {
  size_t place = 0;
  while (kAdaptedParts[place] != part) ++place;
  return place;
}

// One matrix. Offsets are bytes from the start of a slot.
struct AdapterMatrix {
  int64_t cols = 0, stride = 0;       // of A; elements
  int64_t outputs = 0;                // rows of B
  int64_t parts = 1;                  // that have an A of their own
  std::array<int64_t, 2> first = {};  // outputs that part 1 and part 2 begin with; where `alternates`, of no meaning
  bool alternates = false;            // outputs 2i are of part 0, 2i + 1 of part 1
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

  // `part`: a matrix that adapters may change in this layer.
  const AdapterMatrix& of(int64_t layer, Part part) const {
    return matrices_[static_cast<size_t>(layer) * kAdaptedParts.size() + place_of(part)];
  }
  const AdapterLimits& limits() const { return limits_; }
  uint64_t slot_bytes() const { return slot_bytes_; }  // a multiple of 256
  uint64_t bytes() const { return slot_bytes_ * static_cast<uint64_t>(limits_.slots); }

  // Whether adapters may change this matrix of a layer: not where it is those of experts, one below the other.
  static bool adapts(const ModelConfig& config, int64_t layer, Part part) {
    const bool of_block = part == Part::gate_up || part == Part::down;
    return !of_block || config.feed_forward(layer) == FeedForward::dense;
  }
  // Parts of a matrix of this configuration, and its rows.
  static int64_t parts_of(const ModelConfig& config, Part part);
  static int64_t outputs_of(const ModelConfig& config, Part part);

 private:
  AdapterLimits limits_;
  std::vector<AdapterMatrix> matrices_;
  uint64_t slot_bytes_ = 0;
};

}  // namespace nodewright
