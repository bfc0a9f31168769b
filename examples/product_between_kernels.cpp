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
  const OpenedDevice device = open_device(argc > 1 ? argv[1] : "auto");
  const Stream stream(device, "main");
  KernelCache kernels(device);
  const auto scale = kernels.kernel<Saxpy>("saxpy", saxpy_shape(kRows * kInputs));
  const auto add = kernels.kernel<Saxpy>("saxpy", saxpy_shape(kRows * kOutputs));
  const MatmulPlanner products(device, kernels);  // cuBLASLt, or the reference product on the CPU driver
  const auto matmul = products.plan("x times w", {.m = kRows,
                                                  .n = kOutputs,
                                                  .k = kInputs,
                                                  .transpose_b = true,
                                                  .inputs = Element::f32,
                                                  .output = Element::f32,
                                                  .alpha = 2.0f});

  const DeviceArray<float> x(device, "x", kRows * kInputs), sum(device, "sum", kRows * kInputs),
      w(device, "w", kOutputs * kInputs), y0(device, "y0", kRows * kOutputs), y(device, "y", kRows * kOutputs);
  const DeviceArray<uint8_t> scratch(device, "scratch", matmul->workspace_bytes());
  const std::vector<float> x_values = numbers(kRows * kInputs, 5), w_values = numbers(kOutputs * kInputs, 7),
                           y0_values = numbers(kRows * kOutputs, 11);
  x.write(x_values);
  w.write(w_values);
  y0.write(y0_values);

  GraphBuilder g(device, "product_between_kernels");
  for (const DeviceBuffer* input : {&x, &w, &y0}) g.declare(*input, {.live_in = true}, "input");
  g.copy("copy", sum, x, x.bytes());
  g.launch("double", scale, {.x = x, .y = sum, .a = 1.0f});  // sum = x + x
  const NodeId product = g.product("product", matmul, {.a = sum, .b = w.weight(), .y = y, .workspace = scratch});
  g.launch("add", add, {.x = y0, .y = y, .a = 1.0f});  // y += y0
  ExplicitGraph exec(std::move(g).finish());
  std::fputs(to_text(exec.plan()).c_str(), stdout);
  std::printf("the product stands in the graph as: %s\n", std::string(to_string(exec.library_form(product))).c_str());

  exec.upload(stream);
  exec.launch(stream);
  const std::vector<float> result = y.read(stream);
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
