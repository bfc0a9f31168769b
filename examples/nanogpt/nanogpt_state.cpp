#include "examples/nanogpt/nanogpt_state.h"

#include <cstddef>
#include <cstring>
#include <string>

namespace nodewright {
namespace {

// Rows of activations start at 16 bytes, the widest load of a lane.
int64_t round_up_4(int64_t n) { return (n + 3) / 4 * 4; }

NanogptInputs lay_out_inputs(Arena& arena, const NanogptConfig& config) {
  const auto context = static_cast<uint64_t>(config.context);
  NanogptInputs in;
  const auto take = [&]<class T>(View<T>& view, const char* name, uint64_t count) {
    view = arena.take<T>(name, count, "input", 16);
  };
  take(in.prompt, "prompt", context);
  take(in.prompt_positions, "prompt_positions", context);
  take(in.prompt_length, "prompt_length", 1);
  take(in.one, "one", 1);
  take(in.position, "position", 1);
  take(in.token, "token", 1);
  take(in.sequence, "sequence", context);
  take(in.temperature, "temperature", 1);
  take(in.top_k, "top_k", 1);
  take(in.top_p, "top_p", 1);
  take(in.seed, "seed", 1);
  return in;
}

void lay_out_activations(Arena& arena, NanogptState& s, const NanogptConfig& config) {
  const auto rows = [&](int64_t stride) { return static_cast<uint64_t>(config.context * stride); };
  s.residual = arena.take<float>("residual", rows(s.embedding_stride));
  s.qkv = arena.take<float>("qkv", rows(s.qkv_stride));
  s.attended = arena.take<float>("attended", rows(s.embedding_stride));
  s.activated = arena.take<float>("activated", rows(s.feed_forward_stride));
  s.logits = arena.take<float>("logits", static_cast<uint64_t>(config.vocab), "output");
  s.chosen = arena.take<int32_t>("chosen", 1, "output");
}

void lay_out_lasting(Arena& arena, NanogptState& s, const NanogptConfig& config) {
  s.last_token = arena.take<int32_t>("last_token", 1, "state");
  s.cache.clear();
  for (int64_t l = 0; l < config.layers; ++l)
    s.cache.push_back(arena.take<float>("cache.l" + std::to_string(l),
                                        static_cast<uint64_t>(2 * config.context * config.embedding), "kv"));
}

template <class LayOut>
uint64_t bytes_of(LayOut lay_out) {
  Arena arena = Arena::measuring();
  lay_out(arena);
  return arena.used_bytes();
}

}  // namespace

NanogptState::NanogptState(Device& device, const NanogptConfig& config)
    : embedding_stride(round_up_4(config.embedding)),
      qkv_stride(round_up_4(3 * config.embedding)),
      feed_forward_stride(round_up_4(config.feed_forward())),
      device_inputs_(device, "inputs", bytes_of([&](Arena& arena) { lay_out_inputs(arena, config); })),
      activations_(device, "activations", bytes_of([&](Arena& arena) { lay_out_activations(arena, *this, config); })),
      lasting_(device, "kept", bytes_of([&](Arena& arena) { lay_out_lasting(arena, *this, config); })),
      pinned_inputs_(device, "host.inputs", device_inputs_.bytes()),
      pinned_chosen_(device, "host.chosen", sizeof(int32_t)) {
  Arena on_device(device_inputs_), activations(activations_), lasting(lasting_);
  const auto host_address = reinterpret_cast<uint64_t>(pinned_inputs_.data());
  Arena on_host(pinned_inputs_.name(), host_address, pinned_inputs_.bytes());
  inputs = lay_out_inputs(on_device, config);
  host_inputs = lay_out_inputs(on_host, config);
  lay_out_activations(activations, *this, config);
  lay_out_lasting(lasting, *this, config);
  scratch_ = activations.ranges();
  kept_ = lasting.ranges();
  inputs_range = {"inputs", device_inputs_.address(), device_inputs_.bytes(), "input"};
  host_inputs_range = {"host.inputs", host_address, pinned_inputs_.bytes(), "input"};
  host_chosen = {static_cast<int32_t*>(pinned_chosen_.data()), 1};
  host_chosen_range = {"host.chosen", host_chosen.address(), host_chosen.bytes(), "output"};
  std::memset(pinned_inputs_.data(), 0, pinned_inputs_.bytes());
  // NaN: nothing may depend on a slot of the cache or on an activation that was not written.
  for (const DeviceBuffer* buffer : {&activations_, &lasting_})
    fill_device(device, buffer->address(), std::byte{0xff}, buffer->bytes(), buffer->name());
  fill_device(device, device_inputs_.address(), std::byte{0}, device_inputs_.bytes(), device_inputs_.name());
}

}  // namespace nodewright
