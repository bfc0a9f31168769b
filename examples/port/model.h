// The model that both programs of the port decode: sizes, random weights, and what a program prints. No CUDA.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

namespace port {

constexpr unsigned kVocabulary = 2048, kWidth = 512, kHeads = 8, kHeadWidth = kWidth / kHeads, kHidden = 1024;
constexpr unsigned kLayers = 4;
constexpr unsigned kSteps = 64;  // tokens to decode, and the length of the cache
constexpr int kFirstToken = 1;

// Row-major matrices [outputs, inputs].
struct Layer {
  std::vector<float> q;         // [kWidth, kWidth]
  std::vector<float> kv;        // [2 * kWidth, kWidth]: keys, then values
  std::vector<float> out;       // [kWidth, kWidth]
  std::vector<float> up, down;  // [kHidden, kWidth], [kWidth, kHidden]
};

struct Model {
  std::vector<float> embedding, head;  // [kVocabulary, kWidth]
  std::array<Layer, kLayers> layers;
};

// The same values in every program. Sums of `inputs` products of them have a variance of about 1.
inline Model random_model() {
  std::mt19937 random(7);
  const auto matrix = [&](unsigned outputs, unsigned inputs) {
    std::vector<float> values(size_t{outputs} * inputs);
    const float largest = std::sqrt(3.0f / static_cast<float>(inputs));
    for (float& value : values) value = largest * (2.0f * static_cast<float>(random() >> 8) / 0x1p24f - 1.0f);
    return values;
  };
  Model model{matrix(kVocabulary, kWidth), matrix(kVocabulary, kWidth), {}};
  for (Layer& layer : model.layers)
    layer = {matrix(kWidth, kWidth), matrix(2 * kWidth, kWidth), matrix(kWidth, kWidth), matrix(kHidden, kWidth),
             matrix(kWidth, kHidden)};
  return model;
}

// The device memory of a program. F and I are what it holds floats and tokens by: pointers, or views.
template <class F, class I>
struct Memory {
  struct OfLayer {
    F q, kv, out, up, down, cache;
  };
  F embedding, head;
  std::array<OfLayer, kLayers> layers;
  F x, normed, q, kv, attended, hidden, logits;
  I tokens;  // [kSteps + 1]
};

// make(name, values, kind): device memory that holds `values`. The kind is "weight", "state" (kept from step to step)
// or "activation".
template <class F, class I, class Make>
Memory<F, I> make_memory(const Model& model, Make make) {
  const auto scratch = [&](const char* name, size_t count) {
    return make(name, std::vector<float>(count), "activation");
  };
  Memory<F, I> memory{make("embedding", model.embedding, "weight"),
                      make("head", model.head, "weight"),
                      {},
                      scratch("x", kWidth),
                      scratch("normed", kWidth),
                      scratch("q", kWidth),
                      scratch("kv", 2 * kWidth),
                      scratch("attended", kWidth),
                      scratch("hidden", kHidden),
                      scratch("logits", kVocabulary),
                      make("tokens", std::vector<int>(kSteps + 1, kFirstToken), "state")};
  for (unsigned l = 0; l < kLayers; ++l) {
    const std::string name = "l" + std::to_string(l) + ".";
    const Layer& layer = model.layers[l];
    memory.layers[l] = {make(name + "q", layer.q, "weight"),
                        make(name + "kv", layer.kv, "weight"),
                        make(name + "out", layer.out, "weight"),
                        make(name + "up", layer.up, "weight"),
                        make(name + "down", layer.down, "weight"),
                        make(name + "cache", std::vector<float>(2 * kSteps * kWidth), "state")};
  }
  return memory;
}

// The time of each step, between two calls of now().
class StepTimes {
 public:
  using Clock = std::chrono::steady_clock;
  static Clock::time_point now() { return Clock::now(); }
  void add(Clock::time_point begin) {
    microseconds_.push_back(std::chrono::duration<double, std::micro>(now() - begin).count());
  }
  double median() {
    std::sort(microseconds_.begin(), microseconds_.end());
    return microseconds_[microseconds_.size() / 2];
  }

 private:
  std::vector<double> microseconds_;
};

// Prints tokens and time. The exit code of the program: 1 when a token differs from the host's.
inline int report(const std::vector<int>& tokens, const std::vector<int>& expected, StepTimes& times) {
  std::printf("tokens");
  for (const int token : tokens) std::printf(" %d", token);
  const auto differ = std::mismatch(tokens.begin(), tokens.end(), expected.begin(), expected.end());
  std::printf("\nmedian step %.1f us\n", times.median());
  if (differ.first == tokens.end()) {
    std::puts("all tokens are those of the host");
    return 0;
  }
  std::printf("wrong from token %d on: %d, the host has %d\n", static_cast<int>(differ.first - tokens.begin()),
              *differ.first, *differ.second);
  return 1;
}

}  // namespace port
