// The network of a configuration: what is computed, in the order of the papers. The families differ in what surrounds
// attention and the feed-forward block.
#include "models/network/network.h"

namespace nodewright {
namespace {

class Layer {
 public:
  Layer(Recorder& n, const ModelConfig& config) : n_(n), config_(config) {}

  Value project(Value x) {
    n_.shrink(x, Part::qkv, Part::attention_norm);
    const Value qkv = n_.product(n_.norm(x, Part::attention_norm), Part::qkv);
    n_.expand(Part::qkv);
    return qkv;
  }
  Value attend(Value qkv) {
    if (config_.head_norm != HeadNorm::none) qkv = n_.head_norm(qkv);
    if (!config_.learned_positions) qkv = n_.rotate(qkv);
    return n_.attend(n_.append(qkv));
  }
  Value activate(Value x, Part norm) {
    n_.shrink(x, Part::gate_up, norm);
    return n_.activate(n_.product(n_.norm(x, norm), Part::gate_up));
  }
  // The same by the experts of each row, which the router chooses, and what they give together.
  Value add_experts(Value x) {
    const Value experts = n_.route(n_.product(n_.norm(x, Part::feed_forward_norm), Part::router));
    const Value made = n_.expert_product(n_.norm(x, Part::feed_forward_norm), experts, Part::gate_up);
    return n_.add(x, n_.reduce(n_.expert_product(n_.activate(made), experts, Part::down)));
  }
  // What a block gives, added to the residual.
  Value add(Value x, Value y, Part matrix, Part post_norm) {
    n_.shrink(y, matrix, Part::embedding);
    y = n_.reduce(n_.product(y, matrix));
    x = n_.add(x, config_.post_norms ? n_.norm(y, post_norm) : y);
    n_.expand(matrix);
    return x;
  }

 private:
  Recorder& n_;
  const ModelConfig& config_;
};

}  // namespace

Network network_of(const ModelConfig& config, bool adapted) {
  Recorder n(config, adapted);
  Layer layer(n, config);
  Value x = n.embed();
  n.layers([&](FeedForward feed_forward) {
    if (config.blocks == Blocks::sequential) {
      x = layer.add(x, layer.attend(layer.project(x)), Part::out, Part::attention_post_norm);
      x = feed_forward == FeedForward::experts
              ? layer.add_experts(x)
              : layer.add(x, layer.activate(x, Part::feed_forward_norm), Part::down, Part::feed_forward_post_norm);
      return;
    }
    // Both blocks read the same residual, so both have read it before either adds to it.
    const Part norm = config.blocks == Blocks::parallel ? Part::feed_forward_norm : Part::attention_norm;
    const Value qkv = layer.project(x), activated = layer.activate(x, norm);
    x = layer.add(x, layer.attend(qkv), Part::out, Part::attention_post_norm);
    x = layer.add(x, activated, Part::down, Part::feed_forward_post_norm);
  });
  n.choose(n.gather(n.product(n.norm(x, Part::final_norm), Part::head)));
  return n.take();
}

}  // namespace nodewright
