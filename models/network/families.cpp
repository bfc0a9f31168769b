// The networks, a function a family: what is computed, in the order of the papers.
#include "models/network/network.h"

namespace nodewright {
namespace {

// Llama: norms before the blocks, rotated queries and keys, a gated feed-forward block.
Network llama(const ModelConfig& config) {
  Recorder n(config);
  Value x = n.embed();
  n.layers([&] {
    Value h = n.norm(x, Part::attention_norm);
    const Value a = n.attend(n.append(n.rotate(n.product(h, Part::qkv))));
    x = n.add(x, n.product(a, Part::out));
    h = n.norm(x, Part::feed_forward_norm);
    x = n.add(x, n.product(n.activate(n.product(h, Part::gate_up)), Part::down));
  });
  n.choose(n.product(n.norm(x, Part::final_norm), Part::head));
  return n.take();
}

// Qwen3: a Llama whose queries and keys are normed, head by head.
Network qwen3(const ModelConfig& config) {
  Recorder n(config);
  Value x = n.embed();
  n.layers([&] {
    Value h = n.norm(x, Part::attention_norm);
    const Value a = n.attend(n.append(n.rotate(n.head_norm(n.product(h, Part::qkv)))));
    x = n.add(x, n.product(a, Part::out));
    h = n.norm(x, Part::feed_forward_norm);
    x = n.add(x, n.product(n.activate(n.product(h, Part::gate_up)), Part::down));
  });
  n.choose(n.product(n.norm(x, Part::final_norm), Part::head));
  return n.take();
}

// Gemma 3: norms before the blocks and behind them.
Network gemma3(const ModelConfig& config) {
  Recorder n(config);
  Value x = n.embed();
  n.layers([&] {
    Value h = n.norm(x, Part::attention_norm);
    const Value a = n.attend(n.append(n.rotate(n.head_norm(n.product(h, Part::qkv)))));
    x = n.add(x, n.norm(n.product(a, Part::out), Part::attention_post_norm));
    h = n.norm(x, Part::feed_forward_norm);
    const Value f = n.product(n.activate(n.product(h, Part::gate_up)), Part::down);
    x = n.add(x, n.norm(f, Part::feed_forward_post_norm));
  });
  n.choose(n.product(n.norm(x, Part::final_norm), Part::head));
  return n.take();
}

// GPT-2: learned positions, LayerNorms, biases, no gate.
Network gpt2(const ModelConfig& config) {
  Recorder n(config);
  Value x = n.embed();
  n.layers([&] {
    Value h = n.norm(x, Part::attention_norm);
    const Value a = n.attend(n.append(n.product(h, Part::qkv)));
    x = n.add(x, n.product(a, Part::out));
    h = n.norm(x, Part::feed_forward_norm);
    x = n.add(x, n.product(n.activate(n.product(h, Part::gate_up)), Part::down));
  });
  n.choose(n.product(n.norm(x, Part::final_norm), Part::head));
  return n.take();
}

}  // namespace

Network network_of(const ModelConfig& config) {
  switch (config.family) {
    case Family::llama:
      return llama(config);
    case Family::qwen3:
      return qwen3(config);
    case Family::gemma3:
      return gemma3(config);
    case Family::gpt2:
      return gpt2(config);
  }
  return {};
}

}  // namespace nodewright
