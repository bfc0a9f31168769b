// What the tests of norm_project, norm_gate_up, project_add and project share, and those of the same on tensor cores
// (tile_norm_project, ...): shapes, data whose rows depend on their number only, and dot products in double with a
// bound on what fp32 may differ by.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels_src/elementwise/activation.h"
#include "kernels_src/product/rows/matvec_shape.h"
#include "kernels_src/product/tiles/tile_shape.h"
#include "kernels_src/projection/norm_gate_up.h"
#include "kernels_src/projection/norm_project.h"
#include "kernels_src/projection/project.h"
#include "kernels_src/projection/project_add.h"
#include "kernels_src/projection/project_gate_up.h"
#include "kernels_src/residual/norm.h"
#include "models/lowering/lowering.h"
#include "tests/kernels/one_node.h"
#include "tests/kernels/projection/drawn_groups.h"

namespace nodewright::test {

// What differs from family to family; by default Llama's.
struct MatvecFamily {
  Norm norm = Norm::rms;
  bool post_norm = false;  // something joins x before its norm
  bool biases = false;
  Activation activation = Activation::silu;
  bool leaves_gained = false;  // in tiles, for the norm that comes next
  float scale = 1, cap = 0;    // of what leaves: Granite's residual and logits, Gemma-2's logits
};

// With the constants of the format, where weights are not in bf16.
inline std::vector<Constant> with_format(const WeightLayout& weights, std::vector<Constant> constants) {
  return weights.is_quantized() ? constants_of(weights.constants(), std::move(constants)) : constants;
}

// As the model specialises them (models/lowering/decoder_kernels.cpp); no kernel minds a constant that it does not use.
inline KernelRequest matvec_request(const char* kernel, const MatvecShape& s, const MatvecFamily& family = {}) {
  return {kernel, with_format(s.weights,
                              constants_of(s.constants(), {{"kNorm", static_cast<int64_t>(family.norm)},
                                                           {"kPostNorm", family.post_norm ? 1 : 0},
                                                           {"kBias", family.biases ? 1 : 0},
                                                           factor_constant("kScale", family.scale),
                                                           cap_constant("kCap", family.cap),
                                                           {"kGated", s.unit == 2 ? 1 : 0},
                                                           {"kActivation", static_cast<int64_t>(family.activation)}}))};
}

inline int64_t ring_of(const TileShape& s) {
  const DeviceProperties& device = machine().device.properties();
  return s.ring(device.sm_count, device.shared_optin_bytes);
}
// `blocks`: as many of them, or of their clusters; 0: as many as the model would launch.
inline LaunchShape with_blocks(LaunchShape shape, unsigned blocks) {
  if (blocks != 0) shape.grid[0] = blocks;
  return shape;
}
inline LaunchShape launch_of(const MatvecShape& s, int64_t sm_count, unsigned blocks) {
  return with_blocks(s.launch_shape(sm_count), blocks);
}
inline LaunchShape launch_of(const TileShape& s, int64_t sm_count, unsigned blocks) {
  if (s.groups() > 1) {  // which have the ranges that the kernel was compiled for, one at least
    const auto most = static_cast<unsigned>(s.ranges(sm_count));
    return with_blocks(s.launch_shape(sm_count, ring_of(s)),
                       std::min(blocks, most) * static_cast<unsigned>(s.splits()));
  }
  if (s.splits() == 1) return with_blocks(s.launch_shape(sm_count, ring_of(s)), blocks);
  const int64_t wanted = s.splits() * blocks + (s.splits() > 2 ? 8 : 0);  // SMs; shared memory depends on the clusters
  return s.launch_shape(blocks == 0 ? sm_count : wanted, ring_of(s));
}

inline KernelRequest matvec_request(const char* kernel, const TileShape& s, const MatvecFamily& family = {}) {
  return {"tile_" + std::string(kernel),
          with_format(s.weights, constants_of(s.constants(ring_of(s), machine().device.properties().sm_count),
                                              {{"kGained", s.gained ? 1 : 0},
                                               {"kLeavesGained", family.leaves_gained ? 1 : 0},
                                               {"kNorm", static_cast<int64_t>(family.norm)},
                                               {"kPostNorm", family.post_norm ? 1 : 0},
                                               factor_constant("kScale", family.scale),
                                               cap_constant("kCap", family.cap),
                                               {"kBias", family.biases ? 1 : 0},
                                               {"kGated", s.unit == 2 ? 1 : 0},
                                               {"kActivation", static_cast<int64_t>(family.activation)}}))};
}

inline MatvecShape matvec_shape(int64_t rows, int64_t cols, int64_t outputs, int64_t unit) {
  return {rows, cols, (cols + 7) / 8 * 8, outputs, unit};
}
inline WeightLayout fp8_layout(bool in_blocks, int64_t unit) { return {WeightCode::fp8, in_blocks, unit}; }
inline WeightLayout int4_layout(int64_t group) { return {WeightCode::int4, false, 1, group}; }
inline WeightLayout group_layout(WeightCode code, int64_t group = 32) { return {code, false, 1, group}; }

// Compiles what a test will ask for, in parallel, instead of one after the other.
template <class Shape>
void prepare_matvec(const char* kernel, const std::vector<Shape>& shapes,
                    const std::vector<MatvecFamily>& families = {{}}) {
  std::vector<KernelRequest> requests;
  for (const Shape& s : shapes)
    for (const MatvecFamily& family : families) requests.push_back(matvec_request(kernel, s, family));
  machine().kernels.prepare(requests);
}

struct MatvecData {
  static constexpr int64_t kPadding = 5;  // elements after a row of the result, which stay as they were

  // Row m holds the values of row number `numbers[m]`.
  template <class Shape>
  MatvecData(const Shape& shape, const std::vector<uint64_t>& numbers)
      : rows(shape.rows), cols(shape.cols), stride(shape.stride), outputs(shape.outputs) {
    y_stride = outputs / shape.unit + kPadding;
    x.assign(count(rows * stride), 0.0f);
    packed_x = poisoned<bf16>(count(rows * stride));
    projected = poisoned<float>(count(rows * stride));
    residual.resize(count(rows * y_stride));
    for (int64_t m = 0; m < rows; ++m) {
      const uint64_t number = numbers[count(m)];
      const double size = std::ldexp(1.0, static_cast<int>(number * 5 % 11) - 5);  // rows of different magnitude
      for (int64_t k = 0; k < cols; ++k) {
        x[count(m * stride + k)] = static_cast<float>(size * (noise(100 + number, count(k)) + 0.1));
        packed_x[count(m * stride + k)] = to_bf16(size * noise(200 + number, count(k)));
        projected[count(m * stride + k)] = static_cast<float>(noise(400 + number, count(k)) / size);
      }
      for (int64_t n = 0; n < y_stride; ++n)
        residual[count(m * y_stride + n)] = static_cast<float>(noise(300 + number, count(n)));
    }
    for (int64_t k = 0; k < cols; ++k) gain.push_back(to_bf16(1.0 + 0.3 * noise(1, count(k))));
    for (int64_t k = 0; k < cols; ++k) post_gain.push_back(to_bf16(0.4 + noise(5, count(k))));
    for (int64_t k = 0; k < cols; ++k) shift.push_back(to_bf16(0.5 * noise(3, count(k))));
    for (int64_t n = 0; n < outputs; ++n) bias.push_back(to_bf16(2 * noise(4, count(n))));
    const double size = std::sqrt(3.0 / static_cast<double>(cols));  // dot products of magnitude 1
    if (shape.weights.is_fp8())
      draw_fp8(shape.weights, size);
    else if (shape.weights.is_grouped())
      draw_groups(shape.weights, size);
    else
      draw_bf16(size);
  }
  void draw_bf16(double size) {
    weight.assign(count(outputs * stride), bf16{0});
    for (int64_t n = 0; n < outputs; ++n)
      for (int64_t k = 0; k < cols; ++k) weight[count(n * stride + k)] = to_bf16(size * noise(2, count(n * cols + k)));
  }
  // Any code but NaN's, and scales of different magnitude.
  void draw_fp8(const WeightLayout& layout, double size) {
    std::vector<uint8_t> bytes(count(layout.bytes(outputs, stride)), 0xff);
    std::vector<float> scales(count(layout.scales(outputs, stride)));
    for (size_t i = 0; i < scales.size(); ++i)
      scales[i] = static_cast<float>(size * (0.004 + 0.003 * noise(6, i)) * (noise(7, i) > 0 ? 1 : 7));
    std::memcpy(bytes.data() + outputs * stride, scales.data(), 4 * scales.size());
    coded_values.assign(count(outputs * stride), 0.0);
    for (int64_t n = 0; n < outputs; ++n)
      for (int64_t k = 0; k < stride; ++k) {
        uint8_t& code = bytes[count(n * stride + k)];
        code = k < cols ? static_cast<uint8_t>(random_bits(2, count(n * cols + k))) : uint8_t{0};
        if ((code & 0x7f) == 0x7f) code = 0x80;
        const int64_t scale =
            layout.in_blocks ? layout.group_of(n) * layout.scale_stride(stride) + k / WeightLayout::kScaleBlock : n;
        coded_values[count(n * stride + k)] = value_of_fp8(code) * static_cast<double>(scales[count(scale)]);
      }
    keep_coded(bytes);
  }
  void draw_groups(const WeightLayout& layout, double size) {
    DrawnGroups drawn(layout, outputs, stride, size);
    coded_values = std::move(drawn.values), parts = std::move(drawn.parts);
    keep_coded(drawn.bytes);
  }
  template <class T>
  void keep_coded(const std::vector<T>& coded) {
    weight.resize(coded.size() * sizeof(T) / 2);
    std::memcpy(weight.data(), coded.data(), coded.size() * sizeof(T));
  }
  template <class Shape>
  explicit MatvecData(const Shape& shape) : MatvecData(shape, first_numbers(shape.rows)) {}

  double weight_value(int64_t n, int64_t k) const {
    const size_t at = count(n * stride + k);
    return coded_values.empty() ? value_of(weight[at]) : coded_values[at];
  }

  static std::vector<uint64_t> first_numbers(int64_t rows) {
    std::vector<uint64_t> numbers(count(rows));
    std::iota(numbers.begin(), numbers.end(), uint64_t{0});
    return numbers;
  }
  static size_t count(int64_t n) { return static_cast<size_t>(n); }

  int64_t rows, cols, stride, outputs, y_stride;
  float eps = 1e-5f;
  MatvecFamily family;
  std::vector<float> x;              // [rows, stride], padded with zeros: the input of the norms
  std::vector<bf16> packed_x;        // [rows, stride], padded with NaN: the input of project_add
  std::vector<float> projected;      // [rows, stride], padded with NaN: what joins x, in a family with post norms
  std::vector<bf16> gain;            // [cols]
  std::vector<bf16> post_gain;       // [cols]
  std::vector<bf16> shift;           // [cols] of a LayerNorm
  std::vector<bf16> bias;            // [outputs], in a family with biases
  std::vector<bf16> weight;          // [outputs, stride], padded with zeros; of codes the bytes of their layout
  std::vector<double> coded_values;  // [outputs, stride] of quantized weights
  std::vector<double> parts;         // as of DrawnGroups
  std::vector<float> residual;       // [rows, y_stride]
};

// A dot product, and how far a kernel's may be from it.
struct Dot {
  double value, bound;
};

// Additions in a chain of the fp32 sum: a thread's chunks of 8, five steps of the warp, the block's warps.
inline double chain_length(const MatvecShape& s) {
  return static_cast<double>(8 * s.chunks_per_thread() + 5 + s.threads() / 32);
}

// A lane's columns, one after the other in the worst of orders, four lanes of an instruction, the block's warps.
inline double chain_length(const TileShape& s) { return static_cast<double>(s.spans() * 64 + s.warps() + s.splits()); }

// The magnitude of what is added up of W[n, k]. Rows multiply codes and zeros apart; in tiles differences.
inline double magnitude(const MatvecShape&, const MatvecData& d, int64_t n, int64_t k) {
  return d.parts.empty() ? std::abs(d.weight_value(n, k)) : d.parts[d.count(n * d.stride + k)];
}
inline double magnitude(const TileShape&, const MatvecData& d, int64_t n, int64_t k) {
  return std::abs(d.weight_value(n, k));
}

// How far a weight may be from its value when it is multiplied. Rows round those of 8 bits to fp16; tiles round what
// has an fp16 scale, to bf16 or to fp16.
inline double rounding(const MatvecShape& s, double weight) {
  return s.weights.is_grouped() && !s.weights.has_nibbles() ? std::abs(weight) * 0x1p-12 + 0x1p-25 : 0;
}
inline double rounding(const TileShape& s, double weight) {
  return s.weights.is_grouped() && !s.weights.is_int4() ? std::abs(weight) * 0x1p-9 + 0x1p-25 : 0;
}

// x . W[n]. Each fp32 addition is off by at most 2^-24 of a partial sum, which sum |x w| bounds.
template <class Shape>
Dot dot(const Shape& s, const MatvecData& d, const std::vector<double>& x, int64_t n) {
  double value = 0.0, absolute = 0.0, rounded = 0.0;
  for (int64_t k = 0; k < s.cols; ++k) {
    value += x[d.count(k)] * d.weight_value(n, k);
    absolute += std::abs(x[d.count(k)]) * magnitude(s, d, n, k);
    rounded += std::abs(x[d.count(k)]) * rounding(s, d.weight_value(n, k));
  }
  return {value, absolute * chain_length(s) * 0x1p-24 + rounded};
}

// norm(x[m])
inline std::vector<double> normed_row(const MatvecData& d, int64_t m) {
  const auto cols = static_cast<double>(d.cols);
  std::vector<double> row(d.x.begin() + m * d.stride, d.x.begin() + m * d.stride + d.cols);
  if (d.family.norm == Norm::none) return row;
  if (d.family.norm == Norm::layer) {
    const double mean = std::accumulate(row.begin(), row.end(), 0.0) / cols;
    for (double& v : row) v -= mean;
  }
  double squares = 0.0;
  for (const double v : row) squares += v * v;
  const double scale = 1.0 / std::sqrt(squares / cols + d.eps);
  for (size_t k = 0; k < row.size(); ++k) {
    row[k] *= scale * (value_of(d.gain[k]) + (d.family.norm == Norm::rms_one_plus ? 1.0 : 0.0));
    if (d.family.norm == Norm::layer) row[k] += value_of(d.shift[k]);
  }
  return row;
}

// The bias of output n, in double.
inline double bias_of(const MatvecData& d, int64_t n) { return d.family.biases ? value_of(d.bias[d.count(n)]) : 0.0; }

// As it leaves: scaled and capped, whose fp32 is good to 2^-20 of the cap.
inline Dot shaped(const MatvecData& d, Dot v) {
  v.value *= d.family.scale, v.bound *= std::abs(d.family.scale);
  if (d.family.cap == 0) return v;
  return {d.family.cap * std::tanh(v.value / d.family.cap), v.bound + 0x1p-20 * d.family.cap};
}

// The same with what the norm's own fp32 adds: half the sum of squares' error, and eight roundings on the way. Beside
// codes each element is rounded to fp16, too.
inline Dot normed_dot(const MatvecShape& s, const MatvecData& d, const std::vector<double>& row, int64_t n) {
  Dot result = dot(s, d, row, n);
  result.bound *= 1.5 + (s.weights.is_quantized() ? 8 + 0x1p13 : 8) / chain_length(s);
  return result;
}
// In tiles each element is rounded to bf16, too.
inline Dot normed_dot(const TileShape& s, const MatvecData& d, const std::vector<double>& row, int64_t n) {
  Dot result = dot(s, d, row, n);
  result.bound *= 1.5 + (8 + 0x1p16) / chain_length(s);
  return result;
}

// ---- the four kernels, called alike: each returns [rows, y_stride] after a launch with `n_live` live rows ----

// `name` in tiles, for a TileShape.
template <class A, class Shape>
Kernel<A> matvec_kernel(const char* name, const Shape& s, const MatvecFamily& family, unsigned grid_x) {
  const LaunchShape shape = launch_of(s, machine().device.properties().sm_count, grid_x);
  return machine().kernels.kernel<A>(matvec_request(name, s, family), shape);
}

// What the family has, else nothing.
inline Frozen<bf16> given(bool has, const Guarded<bf16>& vector) {
  if (has) return vector;
  return {};
}

// What a family with post norms has, and the sums of both that leave the kernel.
struct Joining {
  bool has;
  Guarded<float> projected, x_next;
  Guarded<bf16> post_gain;

  explicit Joining(const MatvecData& d)
      : has(d.family.post_norm),
        projected("projected", d.projected),
        x_next("x_next", d.x.size()),
        post_gain("post_gain", d.post_gain) {}
  In<float> input() const { return has ? projected.view() : View<float>{}; }
  PartialOut<float> output() const { return has ? x_next.view() : View<float>{}; }
};

// Rows of x times the gain, and their sums of squares in kParts parts, as a kernel before leaves them.
struct Gained {
  static constexpr uint64_t kParts = 3;
  bool has;
  Guarded<bf16> rows;      // [rows, stride]
  Guarded<float> squares;  // [kParts, TileShape::padded_rows]

  Gained(const MatvecShape&, const MatvecData& d) : Gained(false, d) {}
  Gained(const TileShape& s, const MatvecData& d) : Gained(s.gained, d) {}
  Gained(bool gained, const MatvecData& d)
      : has(gained), rows("gained", rows_of(d)), squares("squares", squares_of(d)) {}

  static std::vector<bf16> rows_of(const MatvecData& d) {
    std::vector<bf16> rows;
    for (size_t i = 0; i < d.x.size(); ++i) {
      const size_t k = i % d.count(d.stride);
      rows.push_back(to_bf16(k < d.gain.size() ? d.x[i] * static_cast<float>(value_of(d.gain[k])) : 0));
    }
    return rows;
  }
  static std::vector<float> squares_of(const MatvecData& d) {
    const int64_t tokens = TileShape::padded_rows(d.rows);
    std::vector<float> squares(kParts * d.count(tokens), kNaN);  // of rows that are not there: anything
    for (int64_t m = 0; m < d.rows; ++m)
      for (uint64_t part = 0; part < kParts; ++part) {
        double sum = 0;
        for (size_t k = part; k < d.count(d.cols); k += kParts)
          sum += std::pow(static_cast<double>(d.x[d.count(m * d.stride) + k]), 2);
        squares[part * d.count(tokens) + d.count(m)] = static_cast<float>(sum);
      }
    return squares;
  }
};

// Logits: the rows to be left out, and the launch's output for all.
struct LeftOut {
  std::vector<float> temperature;  // [rows]
  int32_t keeps_all = 0;
  std::vector<ScoredToken> best;  // out: [rows, parts]
};

inline ResidualIn residual_in(const MatvecData& d, const Guarded<float>& x, const Guarded<bf16>& gain,
                              const Guarded<bf16>& shift, const Gained& gained, const Joining& joining, bool x_next) {
  return {.x = gained.has ? View<float>{} : x.view(),
          .gain = given(!gained.has, gain),
          .shift = given(d.family.norm == Norm::layer, shift),
          .projected = joining.input(),
          .post_gain = given(joining.has, joining.post_gain),
          .x_next = x_next ? joining.output() : PartialOut<float>{},
          .gained = gained.has ? gained.rows.view() : View<bf16>{},
          .squares = gained.has ? gained.squares.view() : View<float>{},
          .eps = d.eps};
}

// `grid_x`: blocks over the outputs, 0 for as many as the model would launch. `x_next`: of a family with post norms.
struct RunNormProject {
  using Element = float;
  static constexpr const char* kName = "norm_project";
  static constexpr int64_t kUnit = 1;

  static std::vector<float> initial(const MatvecData& d) { return poisoned<float>(d.residual.size()); }

  template <class Shape>
  static std::vector<float> run(const Shape& s, const MatvecData& d, int32_t n_live, unsigned grid_x = 0,
                                std::vector<float>* x_next = nullptr, LeftOut* left_out = nullptr) {
    const Guarded<float> x("x", d.x), y("y", d.residual.size());
    const Joining joining(d);
    const Gained gained(s, d);
    const Guarded<bf16> gain("gain", d.gain), shift("shift", d.shift), weight("weight", d.weight), bias("bias", d.bias);
    const Guarded<int32_t> live("n_live", std::vector{n_live});
    Kernel<NormProject> kernel = matvec_kernel<NormProject>(kName, s, d.family, grid_x);
    if (s.rows == 1) kernel.shape = with_best(kernel.shape);
    const uint64_t parts = leaves_best(s) ? parts_of(s, kernel.shape) : 0;
    const Guarded<ScoredToken> best("best", static_cast<uint64_t>(s.rows) * parts);
    const Guarded<float> temperature("temperature", left_out ? left_out->temperature : std::vector<float>{});
    const Guarded<int32_t> keeps_all("keeps_all",
                                     std::vector<int32_t>(left_out ? 1 : 0, left_out ? left_out->keeps_all : 0));
    run_node(kernel, {.from = residual_in(d, x, gain, shift, gained, joining, x_next != nullptr),
                      .w = {weight, given(d.family.biases, bias), s.outputs},
                      .to = {y, d.y_stride},
                      .best = best,
                      .n_live = live,
                      .temperature = left_out != nullptr ? temperature.view() : View<float>{},
                      .keeps_all = left_out != nullptr ? keeps_all.view() : View<int32_t>{}});
    if (x_next != nullptr) *x_next = joining.x_next.read();
    const std::vector<ScoredToken> found = best.read();
    const std::vector<float> results = y.read();
    if (left_out != nullptr) {
      left_out->best = found;
      return results;
    }
    for (int64_t m = 0; parts > 0 && m < (s.rows == 1 ? 1 : n_live); ++m)
      expect_best(std::span(found).subspan(static_cast<uint64_t>(m) * parts, parts),
                  row_of(results, m, d.y_stride, s.outputs), s.outputs);
    return results;
  }
  static bool leaves_best(const MatvecShape& s) { return s.rows == 1; }
  static bool leaves_best(const TileShape& s) { return s.splits() == 1; }  // of a cluster, parts are other ranges
  static uint64_t parts_of(const MatvecShape&, const LaunchShape& launch) { return launch.grid[0]; }
  static uint64_t parts_of(const TileShape& s, const LaunchShape& launch) {
    return s.groups() > 1 ? MatvecData::count(s.ranges(machine().device.properties().sm_count)) : launch.grid[0];
  }

  // The largest of each part of a row `y`, the first of equals.
  static void expect_best(std::span<const ScoredToken> best, std::span<const float> y, int64_t outputs) {
    const auto parts = static_cast<int64_t>(best.size());
    for (int64_t part = 0; part < parts; ++part) {
      const auto first = y.begin() + outputs * part / parts, last = y.begin() + outputs * (part + 1) / parts;
      const bool has_nan = std::any_of(first, last, [](float v) { return std::isnan(v); });
      const auto largest = std::max_element(first, last);
      EXPECT_EQ(best[static_cast<size_t>(part)].token, has_nan ? -1 : largest - y.begin()) << "part " << part;
      if (!has_nan) {
        EXPECT_EQ(best[static_cast<size_t>(part)].score, *largest) << "part " << part;
      }
    }
  }
};

struct RunNormGateUp {
  using Element = bf16;
  static constexpr const char* kName = "norm_gate_up";
  static constexpr int64_t kUnit = 2;

  static std::vector<bf16> initial(const MatvecData& d) { return poisoned<bf16>(d.residual.size()); }

  template <class Shape>
  static std::vector<bf16> run(const Shape& s, const MatvecData& d, int32_t n_live, unsigned grid_x = 0,
                               std::vector<float>* x_next = nullptr) {
    const Guarded<float> x("x", d.x);
    const Joining joining(d);
    const Gained gained(s, d);
    const Guarded<bf16> gain("gain", d.gain), shift("shift", d.shift), weight("weight", d.weight), bias("bias", d.bias),
        y("y", d.residual.size());
    const Guarded<int32_t> live("n_live", std::vector{n_live});
    run_node(matvec_kernel<NormGateUp>(kName, s, d.family, grid_x),
             {.from = residual_in(d, x, gain, shift, gained, joining, x_next != nullptr),
              .w = {weight, given(d.family.biases, bias), s.outputs},
              .to = {y, d.y_stride},
              .n_live = live});
    if (x_next != nullptr) *x_next = joining.x_next.read();
    return y.read();
  }
};

struct RunProjectAdd {
  using Element = float;
  static constexpr const char* kName = "project_add";
  static constexpr int64_t kUnit = 1;

  static std::vector<float> initial(const MatvecData& d) { return d.residual; }

  template <class Shape>
  static std::vector<float> run(const Shape& s, const MatvecData& d, int32_t n_live, unsigned grid_x = 0) {
    const Guarded<bf16> x("x", d.packed_x), weight("weight", d.weight), bias("bias", d.bias);
    const Guarded<float> residual("residual", d.residual);
    const Guarded<int32_t> live("n_live", std::vector{n_live});
    run_node(matvec_kernel<ProjectAdd>(kName, s, d.family, grid_x),
             {.from = {x, d.stride},
              .w = {weight, given(d.family.biases, bias), s.outputs},
              .to = {.residual = residual, .stride = d.y_stride},
              .n_live = live});
    return residual.read();
  }
};

// Tiles alone have it.
struct RunProjectGateUp {
  using Element = bf16;
  static constexpr const char* kName = "project_gate_up";
  static constexpr int64_t kUnit = 2;

  static std::vector<bf16> initial(const MatvecData& d) { return poisoned<bf16>(d.residual.size()); }

  static std::vector<bf16> run(const TileShape& s, const MatvecData& d, int32_t n_live, unsigned grid_x = 0) {
    const Guarded<bf16> x("x", d.packed_x), weight("weight", d.weight), bias("bias", d.bias), y("y", d.residual.size());
    const Guarded<int32_t> live("n_live", std::vector{n_live});
    run_node(matvec_kernel<ProjectGateUp>(kName, s, d.family, grid_x),
             {.from = {x, d.stride},
              .w = {weight, given(d.family.biases, bias), s.outputs},
              .to = {y, d.y_stride},
              .n_live = live});
    return y.read();
  }
};

struct RunProject {
  using Element = float;
  static constexpr const char* kName = "project";
  static constexpr int64_t kUnit = 1;

  static std::vector<float> initial(const MatvecData& d) { return poisoned<float>(d.residual.size()); }

  template <class Shape>
  static std::vector<float> run(const Shape& s, const MatvecData& d, int32_t n_live, unsigned grid_x = 0) {
    const Guarded<bf16> x("x", d.packed_x), weight("weight", d.weight), bias("bias", d.bias);
    const Guarded<float> y("y", d.residual.size());
    const Guarded<int32_t> live("n_live", std::vector{n_live});
    run_node(matvec_kernel<Project>(kName, s, d.family, grid_x),
             {.from = {x, d.stride},
              .w = {weight, given(d.family.biases, bias), s.outputs},
              .to = {y, d.y_stride},
              .n_live = live});
    return y.read();
  }
};

}  // namespace nodewright::test
