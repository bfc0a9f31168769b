// The device memory of weights, given back and taken again: the same layout at another address.
#include "models/weights/weights.h"

namespace nodewright {
namespace {

// Moves what lies in a buffer that has become another.
class Move {
 public:
  explicit Move(uint64_t by) : by_(by) {}  // modulo 2^64

  void operator()(Weight<WeightElement>& weight) const {
    if (weight.count > 0) weight.data = reinterpret_cast<const WeightElement*>(weight.address() + by_);
  }
  void operator()(NormWeights& norm) const { all(norm.gain, norm.shift); }
  void operator()(WeightMatrix& matrix) const { all(matrix.data, matrix.bias); }
  void operator()(LayerWeights& layer) const {
    all(layer.attention_norm, layer.qkv, layer.q_norm, layer.k_norm, layer.out, layer.attention_post_norm,
        layer.feed_forward_norm, layer.router, layer.gate_up, layer.down, layer.feed_forward_post_norm);
  }
  template <class... Parts>
  void all(Parts&... parts) const {
    ((*this)(parts), ...);
  }

 private:
  uint64_t by_;
};

}  // namespace

void DecoderWeights::release_memory() { buffer_ = DeviceBuffer(buffer_.device(), buffer_.name(), 0); }

void DecoderWeights::take_memory() {
  if (buffer_.bytes() > 0) return;
  buffer_ = DeviceBuffer(buffer_.device(), buffer_.name(), needed_bytes_);
  const uint64_t by = buffer_.address() - placed_at_;
  placed_at_ = buffer_.address();
  const Move move(by);
  move.all(embedding_, positions_, head_, final_norm_, post_gain_before_, gain_behind_);
  for (LayerWeights& layer : layers_) move(layer);
  for (NamedRange& range : ranges_) range.address += by;
}

}  // namespace nodewright
