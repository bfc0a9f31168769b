// Products in graphs, on the device under test: cuBLASLt itself on a GPU; on the CPU driver our reference product, and
// everything around the library with a fake in its place.
#include <gtest/gtest.h>

#include <cstdio>

#include "graph/dump/graph_dump.h"
#include "graph/graph_builder.h"
#include "graph/graph_exec.h"
#include "graph/nodes/library_nodes.h"
#include "graph/run/captured_run.h"
#include "graph/run/eager_run.h"
#include "graph/timing/timed_twin.h"
#include "kernels_src/saxpy.h"
#include "runtime/device_selection.h"
#include "tests/support/error_text.h"
#include "tests/support/fake_cublaslt.h"
#include "tests/support/product_case.h"
#include "tests/support/test_device.h"

namespace nodewright {
namespace {

using test::ProductCase;

// A view of a whole buffer, for any element.
ProductOperand operand(const DeviceBuffer& buffer, Element element) {
  ProductOperand result;
  result.address = buffer.address();
  result.bytes = buffer.bytes();
  result.element = element;
  return result;
}

class ProductNodesTest : public testing::Test {
 protected:
  static bool on_gpu() { return test::test_device_is_cuda(); }

  void SetUp() override {
    if (!on_gpu()) fake_.emplace(device_, kernels_);
  }

  // A planner of cuBLASLt, or of the fake.
  MatmulPlanner library_planner() {
    return on_gpu() ? MatmulPlanner(device_, kernels_) : MatmulPlanner(device_, kernels_, fake_->library());
  }
  // What a user of the device gets.
  MatmulPlanner own_planner() { return MatmulPlanner(device_, kernels_); }

  // A plan of one product over the buffers of `product`.
  Plan plan_of(const std::shared_ptr<const MatmulPlan>& matmul, const ProductCase& product) {
    GraphBuilder g(device_, "one");
    const MatmulShape& shape = matmul->shape();
    for (const DeviceBuffer* buffer :
         {&product.a, &product.b, &product.c, &product.bias, &product.y, &product.workspace})
      if (buffer->bytes() != 0) g.declare(range_of(*buffer, "activation"), {.live_in = true, .live_out = true});
    g.product("product", matmul,
              {.a = operand(product.a, shape.inputs),
               .b = operand(product.b, shape.inputs),
               .c = operand(product.c, shape.output),
               .bias = operand(product.bias, shape.output),
               .y = operand(product.y, shape.output),
               .workspace = view_of<uint8_t>(product.workspace)});
    return std::move(g).finish(EdgePolicy::programmatic);
  }

  template <class Run>
  std::vector<std::byte> result_of(ProductCase& product, Run&& run) {
    product.reset();
    run();
    stream_.synchronize();
    return product.result();
  }
  std::vector<std::byte> direct(const MatmulPlan& matmul, ProductCase& product) {
    return result_of(product, [&] { matmul.submit(product.operands(), stream_.get()); });
  }

  // One f32 product between two kernels: x += x0; y = x . w^T; y += y0.
  static constexpr int64_t kRows = 4, kIn = 24, kOut = 40;
  Plan sandwich(const std::shared_ptr<const MatmulPlan>& matmul, EdgePolicy policy) {
    GraphBuilder g(device_, "sandwich");
    for (const DeviceBuffer* buffer : {&x0_, &x_, &w_, &y0_, &y_})
      g.declare(range_of(*buffer, "activation"), {.live_in = true, .live_out = true});
    if (workspace_.bytes() < matmul->workspace_bytes())
      workspace_ = DeviceBuffer(device_, "workspace", matmul->workspace_bytes());
    if (workspace_.bytes() != 0) g.declare(range_of(workspace_, "workspace"));
    g.launch("before", saxpy_, {.x = view_of<float>(x0_), .y = view_of<float>(x_), .a = 1.0f});
    g.product("product", matmul,
              {.a = view_of<float>(x_),
               .b = weight_of<float>(w_),
               .y = view_of<float>(y_),
               .workspace = view_of<uint8_t>(workspace_)});
    g.launch("after", saxpy_, {.x = view_of<float>(y0_), .y = view_of<float>(y_), .a = 1.0f});
    g.launch("reuse", saxpy_, {.x = view_of<float>(x0_), .y = view_of<float>(x_), .a = 1.0f});
    return std::move(g).finish(policy);
  }
  static MatmulShape sandwich_shape() {
    return {.m = kRows, .n = kOut, .k = kIn, .transpose_b = true, .inputs = Element::f32, .output = Element::f32};
  }

  OpenedDevice opened_ = open_device(on_gpu() ? test::test_device() : "cpu:checked", Observe::yes);
  Device& device_ = *opened_.device;
  KernelCache kernels_{device_};
  Stream stream_{device_, "products"};
  std::optional<test::FakeCublasLt> fake_;
  Kernel<Saxpy> saxpy_ = kernels_.kernel<Saxpy>("saxpy", saxpy_shape(kRows* kOut));
  DeviceBuffer x0_{device_, "x0", kRows*kIn * 4}, x_{device_, "x", kRows*kIn * 4}, w_{device_, "w", kOut*kIn * 4},
      y0_{device_, "y0", kRows*kOut * 4}, y_{device_, "y", kRows*kOut * 4}, workspace_{device_, "workspace", 0};
};

TEST_F(ProductNodesTest, EdgesFollowFromTheOperandsAndAreFull) {
  const Plan plan = sandwich(own_planner().plan("product", sandwich_shape()), EdgePolicy::programmatic);
  std::vector<std::string> edges;
  for (const Edge& edge : plan.edges) {
    edges.push_back(plan.nodes[edge.from].name + ">" + plan.nodes[edge.to].name);
    EXPECT_EQ(edge.type, EdgeType::full) << edges.back();
  }
  EXPECT_EQ(edges, (std::vector<std::string>{"before>product", "product>after", "product>reuse"}));
  EXPECT_EQ(describe(plan, plan.edges[0].reasons.at(0)), "RAW x[0,384)");
  EXPECT_EQ(describe(plan, plan.edges[1].reasons.at(0)), "RAW y[0,640)");
  EXPECT_EQ(describe(plan, plan.edges[2].reasons.at(0)), "WAR x[0,384)");
}

TEST_F(ProductNodesTest, DumpsNameShapeAndAlgorithm) {
  const auto matmul = own_planner().plan("product", sandwich_shape());
  const Plan plan = sandwich(matmul, EdgePolicy::full);
  const std::string what = "product 4x40x24 f32, b transposed; " + matmul->describe();
  const std::string text = to_text(plan);
  EXPECT_NE(text.find("node 1 product | " + what + " | <a=x[0,384) =b=w[0,3840) >y=y[0,640)"), std::string::npos)
      << text;
  EXPECT_NE(to_json(plan).find("\"library\": \"" + what + "\""), std::string::npos);
  EXPECT_NE(to_dot(plan).find("product 4x40x24 f32"), std::string::npos);
  EXPECT_EQ(matmul->describe().starts_with(on_gpu() ? "cuBLASLt 1" : "reference product"), true);
}

TEST_F(ProductNodesTest, TheThreeRunsGiveTheSameBitsForEveryShape) {
  for (const MatmulShape& shape : test::small_product_shapes())
    for (MatmulPlanner planner : {own_planner(), library_planner()}) {
      const auto matmul = planner.plan("product", shape, {.alignment_bytes = 4});
      const std::string what = to_string(shape) + ", " + matmul->describe();
      ProductCase product(*matmul);
      const Plan plan = plan_of(matmul, product);
      const std::vector<std::byte> eager = result_of(product, [&] { run_eager(plan, stream_); });
      product.expect_close(eager, what);
      EXPECT_EQ(eager, direct(*matmul, product)) << what;
      CapturedGraph captured(plan, stream_);
      EXPECT_EQ(result_of(product, [&] { captured.launch(stream_); }), eager) << what;
      ExplicitGraph exec(plan);
      exec.upload(stream_);
      EXPECT_EQ(read_back(exec), std::vector<std::string>{}) << what;
      EXPECT_EQ(result_of(product, [&] { exec.launch(stream_); }), eager) << what;
    }
}

TEST_F(ProductNodesTest, AProductBetweenTwoKernelsComputesTheirChain) {
  const std::vector<std::byte> x = test::noise_of(Element::f32, kRows * kIn, 5),
                               w = test::noise_of(Element::f32, kOut * kIn, 6),
                               y0 = test::noise_of(Element::f32, kRows * kOut, 7);
  for (MatmulPlanner planner : {own_planner(), library_planner()})
    for (const EdgePolicy policy : {EdgePolicy::serial, EdgePolicy::full, EdgePolicy::programmatic}) {
      ExplicitGraph exec(sandwich(planner.plan("product", sandwich_shape()), policy));
      fill_device(device_, x_.address(), std::byte{0}, x_.bytes(), "x");
      fill_device(device_, y_.address(), std::byte{0xff}, y_.bytes(), "y");
      write_device(device_, x0_.address(), x, "x0");
      write_device(device_, w_.address(), w, "w");
      write_device(device_, y0_.address(), y0, "y0");
      exec.launch(stream_);
      stream_.synchronize();
      std::vector<float> y(kRows * kOut);
      read_view<float>(device_, y, view_of<float>(y_), "y");
      for (int64_t i = 0; i < kRows; ++i)
        for (int64_t j = 0; j < kOut; ++j) {
          const auto at = [](const std::vector<std::byte>& from, int64_t index) {
            return test::value_of(Element::f32, from.data() + 4 * index);
          };
          double expected = at(y0, i * kOut + j);
          for (int64_t p = 0; p < kIn; ++p) expected += at(x, i * kIn + p) * at(w, j * kIn + p);
          // 25 roundings to fp32 of sums below 25.
          ASSERT_NEAR(y[static_cast<size_t>(i * kOut + j)], expected, 25 * 25 * 0x1p-24);
        }
    }
}

TEST_F(ProductNodesTest, AProductOfOneKernelIsAKernelNodeAndSaysSo) {
  const auto matmul = library_planner().plan("product", sandwich_shape());
  ExplicitGraph exec(sandwich(matmul, EdgePolicy::full));
  const LibraryForm form = exec.library_form({1, exec.plan().id});
  EXPECT_EQ(exec.stats().library_kernels, form == LibraryForm::kernel ? 1u : 0u);
  EXPECT_EQ(exec.stats().library_graphs, form == LibraryForm::graph ? 1u : 0u);
  CUgraphNodeType type{};
  ASSERT_EQ(opened_.driver->cuGraphNodeGetType(exec.node(1), &type), CUDA_SUCCESS);
  EXPECT_EQ(type, form == LibraryForm::kernel ? CU_GRAPH_NODE_TYPE_KERNEL : CU_GRAPH_NODE_TYPE_GRAPH);
  if (!on_gpu()) {
    EXPECT_EQ(form, LibraryForm::kernel);
  }
}

TEST_F(ProductNodesTest, ATimedTwinBracketsAProductAndComputesTheSame) {
  for (MatmulPlanner planner : {own_planner(), library_planner()}) {
    const auto matmul = planner.plan("product", {.m = 8, .n = 64, .k = 64, .transpose_b = true});
    ProductCase product(*matmul);
    const TimedTwin twin = timed_twin(plan_of(matmul, product), kernels_);
    EXPECT_TRUE(twin.nodes.at(0).bracketed);
    ExplicitGraph exec(twin.plan);
    EXPECT_EQ(result_of(product, [&] { exec.launch(stream_); }), direct(*matmul, product));
  }
}

TEST_F(ProductNodesTest, ALoaderCallsTheLibraryOnceForEachProductAndRunsNothing) {
  LibraryLoader loader;
  const auto one = library_planner().plan("product", {.m = 4, .n = 8, .k = 16, .transpose_b = true});
  const auto other = library_planner().plan("product", {.m = 8, .n = 8, .k = 16, .transpose_b = true});
  ProductCase first(*one), second(*other);
  first.reset();
  const std::vector<std::byte> before = first.result();
  for (const Plan& plan : {plan_of(one, first), plan_of(one, first), plan_of(other, second)}) loader.load(plan);
  EXPECT_EQ(loader.loaded(), 2u);
  EXPECT_EQ(first.result(), before) << "it was captured, not run";
  if (!on_gpu()) {
    EXPECT_EQ(fake_->products, 2);
  }
}

// As it stands in its header: no memory, no work, no wait, nothing on disk.
TEST_F(ProductNodesTest, BuildingAGraphOnlyCapturesItsProducts) {
  const auto matmul = library_planner().plan("product", {.m = 8, .n = 64, .k = 64, .transpose_b = true});
  ProductCase product(*matmul);
  const Plan plan = plan_of(matmul, product);
  const std::vector<std::byte> before = product.result();
  Interposer& interposer = *opened_.interposer;
  const auto calls = [&] {
    uint64_t count = 0;
    for (const DriverEntry entry : {DriverEntry::cuMemAlloc, DriverEntry::cuGraphLaunch,
                                    DriverEntry::cuStreamSynchronize, DriverEntry::cuCtxSynchronize})
      count += interposer.calls(entry);
    return count;
  };
  const uint64_t so_far = calls();
  ExplicitGraph exec(plan);
  EXPECT_EQ(calls(), so_far);
  EXPECT_EQ(product.result(), before);
}

TEST_F(ProductNodesTest, RefusesOperandsThatDoNotFitThePlan) {
  const auto matmul = own_planner().plan("matmul", sandwich_shape());
  const auto refusal = [&](auto&& change) {
    GraphBuilder g(device_, "refused");
    for (const DeviceBuffer* buffer : {&x_, &w_, &y_})
      g.declare(range_of(*buffer, "activation"), {.live_in = true, .live_out = true});
    if (workspace_.bytes() < matmul->workspace_bytes())
      workspace_ = DeviceBuffer(device_, "workspace", matmul->workspace_bytes());
    if (workspace_.bytes() != 0) g.declare(range_of(workspace_, "workspace"));
    ProductOperands operands{.a = view_of<float>(x_),
                             .b = weight_of<float>(w_),
                             .y = view_of<float>(y_),
                             .workspace = view_of<uint8_t>(workspace_)};
    auto plan = matmul;
    change(operands, plan);
    const std::string error = error_of([&] { g.product("p", plan, operands); });
    EXPECT_EQ(g.node_count(), error == "" ? 1u : 0u);
    return error;
  };
  using Operands = ProductOperands&;
  using PlanPointer = std::shared_ptr<const MatmulPlan>&;
  EXPECT_EQ(refusal([](Operands, PlanPointer) {}), "");
  EXPECT_NE(refusal([](Operands, PlanPointer plan) { plan = nullptr; }).find("it has no product"), std::string::npos);
  EXPECT_NE(refusal([&](Operands o, PlanPointer) {
              o.a = view_of<float>(x_).subview(0, 95);
            }).find("operand 'a' has 380 bytes, and 4x40x24 f32, b transposed needs 384"),
            std::string::npos);
  EXPECT_NE(refusal([](Operands o, PlanPointer) { o.b = {}; }).find("operand 'b' has 0 bytes"), std::string::npos);
  EXPECT_NE(refusal([&](Operands o, PlanPointer) { o.a = view_of<bf16>(x_); }).find("operand 'a' holds bf16"),
            std::string::npos);
  EXPECT_NE(refusal([&](Operands o, PlanPointer) { o.y = weight_of<float>(y_); }).find("given as a weight"),
            std::string::npos);
  EXPECT_NE(refusal([&](Operands o, PlanPointer) { o.bias = view_of<float>(y_); }).find("operand 'bias' is given"),
            std::string::npos);
  EXPECT_NE(refusal([&](Operands o, PlanPointer) { o.y = view_of<float>(x_); }).find("operand 'y' has 384 bytes"),
            std::string::npos);
  EXPECT_NE(refusal([&](Operands o, PlanPointer) { o.a = view_of<float>(y_); }).find("field 'a'"), std::string::npos);
}

TEST_F(ProductNodesTest, AWeightOfAProductIsWrittenByNoNode) {
  const auto matmul = own_planner().plan("matmul", sandwich_shape());
  GraphBuilder g(device_, "frozen");
  for (const DeviceBuffer* buffer : {&x_, &w_, &y_})
    g.declare(range_of(*buffer, "activation"), {.live_in = true, .live_out = true});
  workspace_ = DeviceBuffer(device_, "workspace", matmul->workspace_bytes());
  if (workspace_.bytes() != 0) g.declare(range_of(workspace_, "workspace"));
  g.product("p", matmul,
            {.a = view_of<float>(x_),
             .b = weight_of<float>(w_),
             .y = view_of<float>(y_),
             .workspace = view_of<uint8_t>(workspace_)});
  EXPECT_NE(error_of([&] { g.fill("clear", view_of<float>(w_), 0.0f); }).find("which node 'p' declares frozen"),
            std::string::npos);
}

// Both ways into the graph, against a direct call. On a GPU the sizes of real layers; on the CPU driver an edge of each
// is cut to what the fake multiplies quickly.
TEST_F(ProductNodesTest, ProductsOfManyShapesHaveTheBitsOfADirectCallInEitherForm) {
  struct Row {
    int64_t m, n, k;
    const char* also;
  };
  constexpr Row kRows[] = {
      {1, 2048, 2048, ""},      {1, 3072, 2048, ""},      {1, 16384, 2048, ""},
      {1, 2048, 8192, ""},      {2, 2048, 2048, ""},      {4, 8192, 2048, ""},
      {8, 2048, 8192, ""},      {16, 64, 64, ""},         {16, 2048, 2048, ""},
      {16, 3072, 2048, "c"},    {32, 2048, 2048, "f32"},  {32, 2048, 2048, "f32 c"},
      {33, 1024, 1024, ""},     {64, 128, 8192, ""},      {64, 16384, 2048, ""},
      {64, 8192, 3072, "bias"}, {128, 512, 512, "bias"},  {128, 4096, 4096, "nn"},
      {256, 64, 64, ""},        {256, 2048, 8192, "c"},   {256, 8192, 2048, ""},
      {7, 1000, 336, ""},       {3, 65, 66, ""},          {255, 127, 129, "c bias"},
      {5, 333, 77, "fp16"},     {48, 2048, 2048, "fp16"}, {16, 1024, 1024, "c bias"},
      {512, 2048, 2048, ""},
  };
  MatmulPlanner planner = library_planner();
  size_t kernels = 0;
  for (const Row& row : kRows) {
    const std::string also = row.also;
    const auto has = [&](const char* word) { return also.find(word) != std::string::npos; };
    const auto cut = [](int64_t edge, int64_t limit) { return on_gpu() ? edge : std::min(edge, limit); };
    MatmulShape shape{.m = cut(row.m, 8), .n = cut(row.n, 40), .k = cut(row.k, 48), .transpose_b = !has("nn")};
    if (has("fp16")) shape.inputs = shape.output = Element::fp16;
    if (has("f32")) shape.output = Element::f32;
    if (has("c")) shape.beta = 0.5f;
    shape.bias = has("bias");
    const auto matmul = planner.plan("product", shape);
    ProductCase product(*matmul);
    const std::vector<std::byte> expected = direct(*matmul, product);
    for (const LibraryForm preferred : {LibraryForm::kernel, LibraryForm::graph}) {
      ExplicitGraph exec(plan_of(matmul, product), nullptr, preferred);
      const LibraryForm form = exec.library_form({0, exec.plan().id});
      const bool equal = result_of(product, [&] { exec.launch(stream_); }) == expected;
      kernels += form == LibraryForm::kernel;
      std::printf("%-44s %-72s %-10s %s\n", to_string(shape).c_str(), matmul->describe().c_str(),
                  equal ? "bit-equal" : "DIFFERS", std::string(to_string(form)).c_str());
      EXPECT_TRUE(equal) << to_string(shape);
      EXPECT_EQ(read_back(exec), std::vector<std::string>{});
    }
  }
  EXPECT_GE(kernels, 20u) << "most algorithms are one kernel";
}

// Shapes and types that no other test uses: the library has not loaded their kernels yet.
TEST_F(ProductNodesTest, AFirstUseOfTheLibraryMayBeUnderCapture) {
  const auto planner = library_planner();
  MatmulShape shape{.m = 24, .n = 72, .k = 56, .transpose_a = true, .inputs = Element::fp16, .output = Element::f32};
  const auto captured_first = planner.plan("captured first", shape);
  {
    ProductCase product(*captured_first);
    CapturedGraph captured(plan_of(captured_first, product), stream_);
    const auto bits = result_of(product, [&] { captured.launch(stream_); });
    EXPECT_EQ(bits, direct(*captured_first, product));
  }
  shape.transpose_b = true;
  const auto built_first = planner.plan("built first", shape);
  ProductCase product(*built_first);
  ExplicitGraph exec(plan_of(built_first, product));
  const auto bits = result_of(product, [&] { exec.launch(stream_); });
  EXPECT_EQ(bits, direct(*built_first, product));
}

class FakeProductNodesOnCpuDriver : public ProductNodesTest {};

TEST_F(FakeProductNodesOnCpuDriver, SharedWorkspaceOrdersProducts) {
  const auto matmul = library_planner().plan("product", sandwich_shape());
  workspace_ = DeviceBuffer(device_, "workspace", matmul->workspace_bytes());
  const DeviceBuffer other(device_, "other", y_.bytes());
  GraphBuilder g(device_, "shared");
  for (const DeviceBuffer* buffer : std::initializer_list<const DeviceBuffer*>{&x_, &w_, &y_, &other})
    g.declare(range_of(*buffer, "activation"), {.live_in = true, .live_out = true});
  g.declare(range_of(workspace_, "workspace"));
  ProductOperands operands{.a = view_of<float>(x_),
                           .b = weight_of<float>(w_),
                           .y = view_of<float>(y_),
                           .workspace = view_of<uint8_t>(workspace_)};
  g.product("first", matmul, operands);
  operands.y = view_of<float>(other);
  g.product("second", matmul, operands);
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  ASSERT_EQ(plan.edges.size(), 1u);
  EXPECT_EQ(describe(plan, plan.edges[0].reasons.at(0)), "WAW workspace[0,64)");
}

TEST_F(FakeProductNodesOnCpuDriver, ProductsRunInsideChildrenAndBodies) {
  for (const int kernels : {1, 2}) {
    fake_->kernels_per_product = kernels;
    const auto matmul =
        library_planner().plan("product", {.m = 8, .n = 16, .k = 16, .transpose_b = true, .alpha = 1.0f + kernels});
    ProductCase product(*matmul);
    const std::vector<std::byte> expected = direct(*matmul, product);
    const auto declare_all = [&](GraphBuilder& g) {
      for (const DeviceBuffer* buffer : {&product.a, &product.b, &product.y, &product.workspace})
        g.declare(range_of(*buffer, "activation"), {.live_in = true, .live_out = true});
    };
    const auto add = [&](GraphBuilder& g) {
      g.product("inner", matmul,
                {.a = view_of<bf16>(product.a),
                 .b = view_of<bf16>(product.b),
                 .y = view_of<bf16>(product.y),
                 .workspace = view_of<uint8_t>(product.workspace)});
    };
    for (const ChildOwnership ownership : {ChildOwnership::moved, ChildOwnership::cloned}) {
      GraphBuilder inner(device_, "inside");
      declare_all(inner);
      add(inner);
      GraphBuilder g(device_, "outer");
      declare_all(g);
      g.child("child", std::move(inner).finish(EdgePolicy::full), ownership);
      ExplicitGraph exec(std::move(g).finish(EdgePolicy::full));
      EXPECT_EQ(result_of(product, [&] { exec.launch(stream_); }), expected);
      EXPECT_EQ(read_back(exec), std::vector<std::string>{});
    }
    GraphBuilder g(device_, "conditional");
    declare_all(g);
    g.if_else("if", g.condition("yes", 1), add);
    ExplicitGraph exec(std::move(g).finish(EdgePolicy::full));
    EXPECT_EQ(result_of(product, [&] { exec.launch(stream_); }), expected);
    EXPECT_EQ(read_back(exec), std::vector<std::string>{});
  }
}

}  // namespace
}  // namespace nodewright
