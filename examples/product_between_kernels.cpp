// A matrix product of cuBLASLt between two kernels, as nodes of one graph: y = 2 (x + x) . w^T + y0. On a GPU the
// library's kernel becomes a node of ours; on the CPU driver the same node runs our reference product.
//   product_between_kernels cpu
#include <nodewright/graph/graph_builder.h>
#include <nodewright/graph/graph_dump.h>
#include <nodewright/graph/graph_exec.h>
#include <nodewright/kernels/saxpy.h>
#include <nodewright/runtime/device_selection.h>
#include <nodewright/runtime/error.h>
#include <nodewright/runtime/matmul_plan.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

using namespace nodewright;

namespace {

constexpr int64_t kRows = 8, kInputs = 256, kOutputs = 128;

// Small whole numbers: every sum below is exact in fp32.
std::vector<float> numbers(int64_t count, int64_t modulus) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i % modulus - modulus / 2));
  return values;
}

}  // namespace

int main(int argc, char** argv) try {
  const OpenedDevice opened = open_device(argc > 1 ? argv[1] : "auto");
  Device& device = *opened.device;
  const Stream stream(device, "main");
  KernelCache kernels(device);
  const auto scale = typed_kernel<Saxpy>(kernels, {"saxpy", {}}, saxpy_shape(kRows * kInputs));
  const auto add = typed_kernel<Saxpy>(kernels, {"saxpy", {}}, saxpy_shape(kRows * kOutputs));
  const MatmulPlanner products(device, kernels);  // cuBLASLt, or the reference product on the CPU driver
  const auto matmul = products.plan("x times w", {.m = kRows,
                                                  .n = kOutputs,
                                                  .k = kInputs,
                                                  .transpose_b = true,
                                                  .inputs = Element::f32,
                                                  .output = Element::f32,
                                                  .alpha = 2.0f});

  const DeviceBuffer x_buffer(device, "x", kRows * kInputs * 4), sum_buffer(device, "sum", kRows * kInputs * 4),
      w_buffer(device, "w", kOutputs * kInputs * 4), y0_buffer(device, "y0", kRows * kOutputs * 4),
      y_buffer(device, "y", kRows * kOutputs * 4), scratch(device, "scratch", matmul->workspace_bytes());
  const View<float> x = view_of<float>(x_buffer), sum = view_of<float>(sum_buffer), y0 = view_of<float>(y0_buffer),
                    y = view_of<float>(y_buffer);
  const std::vector<float> x_values = numbers(kRows * kInputs, 5), w_values = numbers(kOutputs * kInputs, 7),
                           y0_values = numbers(kRows * kOutputs, 11);
  write_view<float>(device, x, x_values, "x");
  write_view<float>(device, view_of<float>(w_buffer), w_values, "w");
  write_view<float>(device, y0, y0_values, "y0");

  GraphBuilder g(device, "product_between_kernels");
  for (const DeviceBuffer* input : {&x_buffer, &w_buffer, &y0_buffer})
    g.declare(range_of(*input, "input"), {.live_in = true});
  for (const DeviceBuffer* output : {&sum_buffer, &y_buffer})
    g.declare(range_of(*output, "activation"), {.live_out = true});
  if (scratch.bytes() != 0) g.declare(range_of(scratch, "workspace"));

  g.copy("copy", sum, x, x.bytes());
  g.launch("double", scale, {.x = x, .y = sum, .a = 1.0f});  // sum = x + x
  const NodeId product = g.product(
      "product", matmul, {.a = sum, .b = weight_of<float>(w_buffer), .y = y, .workspace = view_of<uint8_t>(scratch)});
  g.launch("add", add, {.x = y0, .y = y, .a = 1.0f});  // y += y0
  ExplicitGraph exec(std::move(g).finish(EdgePolicy::programmatic));
  std::fputs(to_text(exec.plan()).c_str(), stdout);
  std::printf("the product stands in the graph as: %s\n", std::string(to_string(exec.library_form(product))).c_str());

  exec.upload(stream);
  exec.launch(stream);
  stream.synchronize();
  std::vector<float> result(kRows * kOutputs);
  read_view<float>(device, result, y, "y");
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t column = 0; column < kOutputs; ++column) {
      const auto at = [](const std::vector<float>& values, int64_t i) { return values[static_cast<size_t>(i)]; };
      float expected = at(y0_values, row * kOutputs + column);
      for (int64_t i = 0; i < kInputs; ++i)
        expected += 4.0f * at(x_values, row * kInputs + i) * at(w_values, column * kInputs + i);
      const float got = at(result, row * kOutputs + column);
      if (got == expected) continue;
      std::printf("y[%d, %d] = %g, expected %g\n", static_cast<int>(row), static_cast<int>(column),
                  static_cast<double>(got), static_cast<double>(expected));
      return 1;
    }
  std::printf("y[0, 0] = %g; all %d values are exact\n", static_cast<double>(result[0]),
              static_cast<int>(result.size()));
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "product_between_kernels: %s\n", error.what());
  return 1;
}
