// What a second choice does to a row of logits, on the host and in double, in the order of
// mask, biases, repetition, frequency and presence penalties, min-p.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

namespace nodewright::test {

struct HostShaping {
  std::vector<bool> allowed;  // empty: all
  std::map<int32_t, double> biases;
  std::vector<int32_t> prompt, outputs;
  double repetition = 1, presence = 0, frequency = 0, min_p = 0, temperature = 0;
};

inline std::vector<double> shaped_on_host(const std::vector<float>& logits, const HostShaping& asked) {
  std::vector<double> shaped(logits.begin(), logits.end());
  for (size_t i = 0; i < asked.allowed.size(); ++i)
    if (!asked.allowed[i]) shaped[i] = -INFINITY;
  for (const auto& [token, bias] : asked.biases) shaped[static_cast<size_t>(token)] += bias;
  std::map<int32_t, int> times;  // 0: in the prompt only
  for (const int32_t token : asked.prompt) times[token];
  for (const int32_t token : asked.outputs) ++times[token];
  for (const auto& [token, count] : times) {
    double& v = shaped[static_cast<size_t>(token)];
    v = v > 0 ? v / asked.repetition : v * asked.repetition;
    v -= asked.frequency * count + (count > 0 ? asked.presence : 0);
  }
  if (asked.min_p > 0 && asked.temperature >= 1e-5) {
    double top = -INFINITY;
    for (const double v : shaped) top = std::max(top, v);
    for (double& v : shaped)
      if (std::exp((v - top) / asked.temperature) < asked.min_p) v = -INFINITY;
  }
  return shaped;
}

// log p of every token of the raw distribution.
inline std::vector<double> logprobs_on_host(const std::vector<float>& logits) {
  double top = -INFINITY, sum = 0;
  for (const float v : logits) top = std::max(top, static_cast<double>(v));
  for (const float v : logits) sum += std::exp(v - top);
  std::vector<double> all;
  for (const float v : logits) all.push_back(v - top - std::log(sum));
  return all;
}

}  // namespace nodewright::test
