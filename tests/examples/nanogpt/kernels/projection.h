// What the tests of layer_norm_project and project_bias_add share: shapes, data whose rows depend on their number only,
// and dot products in double with a bound on what fp32 may differ by. W is the weights' element, bf16 or float.
#pragma once

#include <cmath>
#include <vector>

#include "examples/nanogpt/kernels/layer_norm_project.h"
#include "examples/nanogpt/kernels/project_bias_add.h"
#include "examples/nanogpt/kernels/projection_shape.h"
#include "tests/examples/nanogpt/kernels/nanogpt_kernels.h"
#include "tests/kernels/numbers.h"
#include "tests/kernels/one_node.h"

namespace nodewright::test {

// As a model specialises them (examples/nanogpt/nanogpt_graph.cpp).
inline KernelRequest projection_request(const char* kernel, const ProjectionShape& s,
                                        Activation activation = Activation::none) {
  KernelRequest request{
      kernel, {{"kCols", s.cols}, {"kWeightBytes", s.weight_bytes}, {"kLanes", s.lanes()}, {"kThreads", s.kThreads}}};
  if (std::string_view(kernel) == "layer_norm_project")
    request.constants.push_back({"kActivation", static_cast<int64_t>(activation)});
  return request;
}

template <class W>
ProjectionShape projection_shape(int64_t rows, int64_t cols, int64_t outputs) {
  return {rows, cols, outputs, sizeof(W)};
}

template <class W>
W weight_element(double v) {
  if constexpr (sizeof(W) == 2)
    return to_bf16(v);
  else
    return static_cast<float>(v);
}
inline double exactly(bf16 v) { return static_cast<double>(value_of(v)); }
inline double exactly(float v) { return static_cast<double>(v); }

inline size_t count_of(int64_t n) { return static_cast<size_t>(n); }

template <class W>
struct ProjectionData {
  static constexpr int64_t kPadding = 8;  // elements after a row, which stay as they were: a multiple of 4

  explicit ProjectionData(const ProjectionShape& s) : shape(s) {
    x_stride = (s.cols + 3) / 4 * 4 + kPadding;
    y_stride = s.outputs + kPadding;
    x = poisoned<float>(count_of(s.rows * x_stride));
    residual = poisoned<float>(count_of(s.rows * y_stride));
    for (int64_t m = 0; m < s.rows; ++m) {
      const auto row = static_cast<uint64_t>(m);
      const double size = std::ldexp(1.0, static_cast<int>(m * 5 % 11) - 5);  // rows of different magnitude
      for (int64_t k = 0; k < s.cols; ++k)
        x[count_of(m * x_stride + k)] = static_cast<float>(size * (noise(100 + row, count_of(k)) + 0.5));
      for (int64_t n = 0; n < s.outputs; ++n)
        residual[count_of(m * y_stride + n)] = static_cast<float>(noise(300 + row, count_of(n)));
    }
    for (int64_t k = 0; k < s.cols; ++k) {
      gain.push_back(weight_element<W>(1.0 + 0.3 * noise(1, count_of(k))));
      shift.push_back(weight_element<W>(0.3 * noise(2, count_of(k))));
    }
    weight.assign(count_of(s.outputs * s.stride()), weight_element<W>(0.0));
    const double size = std::sqrt(3.0 / static_cast<double>(s.cols));  // dot products of magnitude 1
    for (int64_t n = 0; n < s.outputs; ++n) {
      for (int64_t k = 0; k < s.cols; ++k)
        weight[count_of(n * s.stride() + k)] = weight_element<W>(size * noise(3, count_of(n * s.cols + k)));
      bias.push_back(weight_element<W>(noise(4, count_of(n))));
    }
  }

  double bias_of(int64_t n) const { return bias.empty() ? 0.0 : exactly(bias[count_of(n)]); }

  ProjectionShape shape;
  int64_t x_stride, y_stride;
  float eps = 1e-5f;
  std::vector<float> x;         // [rows, x_stride], NaN after the columns
  std::vector<float> residual;  // [rows, y_stride], NaN after the outputs
  std::vector<W> gain, shift;   // [cols]
  std::vector<W> weight;        // [outputs, stride]
  std::vector<W> bias;          // [outputs], or empty
};

// A result, and how far a kernel's may be from it.
struct Bounded {
  double value, bound;
};

inline constexpr double kUnit = 0x1p-24;  // half a unit in the last place of 1.0f

// Additions in a chain of the fp32 sum: a lane's columns, the steps of its group, the bias.
inline double chain_length(const ProjectionShape& s) {
  const int64_t loads = (s.stride() / s.elements() + s.lanes() - 1) / s.lanes();
  return static_cast<double>(loads * s.elements() + 5 + 1);
}

// x . W[n] + bias[n], where x[k] is itself off by at most off[k]. Each fp32 addition is off by at most 2^-24 of a
// partial sum, which sum |x w| + |bias| bounds.
template <class W>
Bounded dot(const ProjectionData<W>& d, const std::vector<double>& x, const std::vector<double>& off, int64_t n) {
  double value = d.bias_of(n), absolute = std::abs(d.bias_of(n)), bound = 0.0;
  for (size_t k = 0; k < x.size(); ++k) {
    const double w = exactly(d.weight[count_of(n * d.shape.stride()) + k]);
    value += x[k] * w;
    absolute += std::abs(x[k] * w);
    bound += off[k] * std::abs(w);
  }
  return {value, bound + absolute * chain_length(d.shape) * kUnit};
}

// layer_norm(x[m]) and what its fp32 steps may be off by: the mean by its chain of additions, which the centred values
// inherit; the variance and its root by a chain more, relative; then the product with the gain and the shift.
template <class W>
void normed_row(const ProjectionData<W>& d, int64_t m, std::vector<double>& x, std::vector<double>& off) {
  const auto cols = static_cast<double>(d.shape.cols);
  double mean = 0.0, largest = 0.0, variance = 0.0;
  x.clear(), off.clear();
  for (int64_t k = 0; k < d.shape.cols; ++k) {
    x.push_back(d.x[count_of(m * d.x_stride + k)]);
    mean += x.back() / cols;
    largest = std::max(largest, std::abs(x.back()));
  }
  for (const double v : x) variance += (v - mean) * (v - mean) / cols;
  const double scale = 1.0 / std::sqrt(variance + static_cast<double>(d.eps)), chain = chain_length(d.shape) * kUnit;
  for (size_t k = 0; k < x.size(); ++k) {
    const double gain = exactly(d.gain[k]), normed = (x[k] - mean) * scale;
    x[k] = normed * gain + exactly(d.shift[k]);
    off.push_back(std::abs(gain) * (2 * largest * scale * chain + std::abs(normed) * (chain + 4 * kUnit)) +
                  kUnit * std::abs(x[k]));
  }
}

// ---- the two kernels: each returns [rows, y_stride] after a launch with `n_live` live rows ----

template <class W>
std::vector<float> run_layer_norm_project(const ProjectionData<W>& d, Activation activation, int32_t n_live,
                                          unsigned grid_x = 0) {
  LaunchShape shape = d.shape.launch_shape(machine().device.properties().sm_count);
  if (grid_x != 0) shape.grid[0] = grid_x;
  const Guarded<float> x("x", d.x), y("y", d.residual.size());
  const Guarded<W> gain("gain", d.gain), shift("shift", d.shift), weight("weight", d.weight), bias("bias", d.bias);
  const Guarded<int32_t> live("n_live", std::vector{n_live});
  run_node(nanogpt_kernel_cache().kernel<LayerNormProject<W>>(
               projection_request("layer_norm_project", d.shape, activation), shape),
           {.x = x,
            .n_live = live,
            .gain = gain,
            .shift = shift,
            .weight = weight,
            .bias = bias,
            .y = y,
            .outputs = d.shape.outputs,
            .x_stride = d.x_stride,
            .y_stride = d.y_stride,
            .eps = d.eps});
  return y.read();
}

template <class W>
std::vector<float> run_project_bias_add(const ProjectionData<W>& d, int32_t n_live, unsigned grid_x = 0) {
  LaunchShape shape = d.shape.launch_shape(machine().device.properties().sm_count);
  if (grid_x != 0) shape.grid[0] = grid_x;
  const Guarded<float> x("x", d.x), residual("residual", d.residual);
  const Guarded<W> weight("weight", d.weight), bias("bias", d.bias);
  const Guarded<int32_t> live("n_live", std::vector{n_live});
  run_node(nanogpt_kernel_cache().kernel<ProjectBiasAdd<W>>(projection_request("project_bias_add", d.shape), shape),
           {.x = x,
            .n_live = live,
            .weight = weight,
            .bias = bias,
            .residual = residual,
            .outputs = d.shape.outputs,
            .x_stride = d.x_stride,
            .residual_stride = d.y_stride});
  return residual.read();
}

}  // namespace nodewright::test
