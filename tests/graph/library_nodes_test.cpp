// Products in graphs, on the device under test: cuBLASLt itself on a GPU; on the CPU driver our reference product, and
// everything around the library with a fake in its place.
#include "graph/library_nodes.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "graph/captured_run.h"
#include "graph/eager_run.h"
#include "graph/graph_builder.h"
#include "graph/graph_dump.h"
#include "graph/graph_exec.h"
#include "graph/product_node.h"
#include "graph/timed_twin.h"
#include "kernels_src/saxpy.h"
#include "runtime/device_selection.h"
#include "tests/support/error_text.h"
#include "tests/support/fake_cublaslt.h"
#include "tests/support/product_case.h"
#include "tests/support/scratch_folder.h"
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

  // Of cuBLASLt, or of the fake.
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

  // Replaces every 4 bytes that hold `from` as a float.
  static AlterArguments replacing(float from, float to, int& replaced) {
    return [from, to, &replaced](std::span<std::byte> bytes) {
      for (size_t i = 0; i + 4 <= bytes.size(); i += 4)
        if (std::memcmp(bytes.data() + i, &from, 4) == 0) {
          std::memcpy(bytes.data() + i, &to, 4);
          ++replaced;
        }
    };
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
  ScratchFolder folder_;
  EnvironmentValue cache_{"NODEWRIGHT_CACHE", folder_.path().string()};  // of the answers, not of the kernels above
  std::optional<test::FakeCublasLt> fake_;
  Kernel<Saxpy> saxpy_ = typed_kernel<Saxpy>(kernels_, {"saxpy", {}}, saxpy_shape(kRows* kOut));
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
  EXPECT_NE(to_json(plan).find("\"product\": \"" + what + "\""), std::string::npos);
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
      const CapturedGraph captured(plan, stream_);
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

TEST_F(ProductNodesTest, AnImportedProductIsOneKernelNodeAndSaysSo) {
  const auto matmul = library_planner().plan("product", sandwich_shape());
  ExplicitGraph exec(sandwich(matmul, EdgePolicy::full));
  const NodeId product{1, plan_token("sandwich")};
  EXPECT_EQ(exec.stats().imported_products + exec.stats().child_products, 1u);
  const ProductForm& form = exec.product_form(product);
  CUgraphNodeType type{};
  ASSERT_EQ(opened_.driver->cuGraphNodeGetType(exec.node(1), &type), CUDA_SUCCESS);
  EXPECT_EQ(type, form.imported ? CU_GRAPH_NODE_TYPE_KERNEL : CU_GRAPH_NODE_TYPE_GRAPH) << to_string(form);
  if (!on_gpu()) {
    EXPECT_EQ(to_string(form), "imported");
  }
  const ExplicitGraph own(sandwich(own_planner().plan("product", sandwich_shape()), EdgePolicy::full));
  EXPECT_EQ(own.product_form(product).reference, !on_gpu());
  EXPECT_NE(error_of([&] { exec.product_form({0, plan_token("sandwich")}); }).find("no product"), std::string::npos);
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

// Planted: alpha is 1.25, and the imported kernel is given 1.5.
TEST_F(ProductNodesTest, ALoaderCallsTheLibraryOnceForEachProductAndRunsNothing) {
  ProductLoader loader;
  const auto one = library_planner().plan("product", {.m = 4, .n = 8, .k = 16, .transpose_b = true});
  const auto other = library_planner().plan("product", {.m = 8, .n = 8, .k = 16, .transpose_b = true});
  ProductCase first(*one), second(*other);
  loader.load(plan_of(one, first));  // the first time the answer is found out, by running the product elsewhere
  first.reset();
  const std::vector<std::byte> before = first.result();
  const auto calls = [&] { return on_gpu() ? 0 : fake_->products; };
  const int so_far = calls();
  loader.load(plan_of(one, first));
  EXPECT_EQ(loader.loaded(), 1u);
  EXPECT_EQ(calls(), so_far);
  ProductLoader again;
  again.load(plan_of(one, first));
  EXPECT_EQ(calls(), on_gpu() ? 0 : so_far + 1);
  EXPECT_EQ(first.result(), before) << "it was captured, not run";
  again.load(plan_of(other, second));
  again.load(plan_of(own_planner().plan("product", one->shape()), first));
  EXPECT_EQ(again.loaded(), on_gpu() ? 3u : 2u) << "a product of our own needs no library";
}

TEST_F(ProductNodesTest, AnAlteredArgumentIsFoundAndTheProductBecomesAChildGraph) {
  const MatmulShape shape{.m = 16, .n = 256, .k = 128, .transpose_b = true, .alpha = 1.25f};
  const auto matmul = library_planner().plan("product", shape);
  ASSERT_EQ(to_string(compare_import(*matmul).form), "imported");
  int replaced = 0;
  ProductForms forms(folder_.path() / "altered", replacing(1.25f, 1.5f, replaced));
  ProductCase product(*matmul);
  const Plan plan = plan_of(matmul, product);
  CUgraph graph = nullptr;
  const Driver& driver = *opened_.driver;
  ASSERT_EQ(driver.cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  const GraphHandle owned(driver, graph);
  const BuiltProduct added =
      ProductNodes(std::move(forms)).add(plan, plan.nodes[0], {.graph = graph, .before = {}, .types = {}});
  EXPECT_GT(replaced, 0) << "alpha is not among the kernel's arguments";
  EXPECT_EQ(to_string(added.form), "child graph, because its imported kernel gives other bits than a direct call");
  CUgraphNodeType type{};
  ASSERT_EQ(driver.cuGraphNodeGetType(added.node, &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_GRAPH);
  const GraphExecHandle exec = instantiate(driver, graph, "altered", [](CUgraphNode) { return "?"; });
  EXPECT_EQ(result_of(product, [&] { driver.cuGraphLaunch(exec.get(), stream_.get()); }), direct(*matmul, product));
}

TEST_F(ProductNodesTest, AnswersAreRememberedAndDamagedOnesFoundOutAgain) {
  const auto matmul = library_planner().plan("product", {.m = 8, .n = 64, .k = 64, .transpose_b = true});
  const std::filesystem::path folder = folder_.path() / "answers";
  ProductForms first(folder);
  const ProductForm form = first.of(*matmul);
  EXPECT_EQ(first.of(*matmul), form);
  EXPECT_EQ(first.stats().compared, 1u);
  EXPECT_EQ(first.stats().disk_problem, "");

  ProductForms second(folder);
  EXPECT_EQ(second.of(*matmul), form);
  EXPECT_EQ(second.stats().compared, 0u);
  EXPECT_EQ(second.stats().read, 1u);

  const std::string whole = read_text(first.file_of(*matmul));
  for (const std::string& damaged : {whole.substr(0, whole.size() - 1), whole + "x", std::string()}) {
    write_text(first.file_of(*matmul), damaged);
    ProductForms again(folder);
    EXPECT_EQ(again.of(*matmul), form);
    EXPECT_EQ(again.stats().rejected, 1u);
    EXPECT_EQ(again.stats().compared, 1u);
    EXPECT_EQ(read_text(first.file_of(*matmul)), whole);
  }
}

TEST_F(ProductNodesTest, AnotherShapeOrScaleIsAnotherAnswer) {
  MatmulPlanner planner = library_planner();
  const MatmulShape shape{.m = 8, .n = 64, .k = 64, .transpose_b = true};
  ProductForms forms(folder_.path());
  const auto file = forms.file_of(*planner.plan("product", shape));
  for (auto change : std::initializer_list<void (*)(MatmulShape&)>{
           [](MatmulShape& s) { s.m = 9; }, [](MatmulShape& s) { s.ldy = 72; }, [](MatmulShape& s) { s.alpha = 2; },
           [](MatmulShape& s) { s.bias = true; }, [](MatmulShape& s) { s.output = Element::f32; }}) {
    MatmulShape other = shape;
    change(other);
    EXPECT_NE(forms.file_of(*planner.plan("product", other)), file) << to_string(other);
  }
  EXPECT_EQ(forms.file_of(*planner.plan("another name", shape)), file);
}

TEST_F(ProductNodesTest, AFolderThatCannotBeWrittenOnlyCostsTime) {
  const auto matmul = library_planner().plan("product", {.m = 8, .n = 64, .k = 64, .transpose_b = true});
  ProductForms forms("/proc/no/such/folder");
  EXPECT_NE(forms.stats().disk_problem, "");
  const ProductForm form = forms.of(*matmul);
  EXPECT_EQ(forms.of(*matmul), form);
  EXPECT_EQ(forms.stats().compared, 1u);
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

// On a GPU the sizes of real layers; on the CPU driver an edge of each is cut to what the fake multiplies quickly.
TEST_F(ProductNodesTest, ProductsOfManyShapesAreImportedBitEqualOrSayWhyNot) {
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
  int imported = 0, child = 0;
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
    ExplicitGraph exec(plan_of(matmul, product));
    const ProductForm& form = exec.product_form({0, plan_token("one")});
    const std::vector<std::byte> expected = direct(*matmul, product);
    const bool equal = result_of(product, [&] { exec.launch(stream_); }) == expected;
    (form.imported ? imported : child) += 1;
    std::printf("%-44s %-72s %-10s %s\n", to_string(shape).c_str(), matmul->describe().c_str(),
                equal ? "bit-equal" : "DIFFERS", to_string(form).c_str());
    EXPECT_TRUE(equal) << to_string(shape);
    EXPECT_EQ(read_back(exec), std::vector<std::string>{});
  }
  std::printf("%d imported, %d as child graphs\n", imported, child);
  EXPECT_EQ(imported + child, static_cast<int>(std::size(kRows)));
  EXPECT_GE(imported, 20);
}

// Shapes and types that no other test uses: the library has not loaded their kernels yet.
TEST_F(ProductNodesTest, AFirstUseOfTheLibraryMayBeUnderCapture) {
  const auto planner = library_planner();
  MatmulShape shape{.m = 24, .n = 72, .k = 56, .transpose_a = true, .inputs = Element::fp16, .output = Element::f32};
  const auto captured_first = planner.plan("captured first", shape);
  {
    ProductCase product(*captured_first);
    const CapturedGraph captured(plan_of(captured_first, product), stream_);
    const auto bits = result_of(product, [&] { captured.launch(stream_); });
    EXPECT_EQ(bits, direct(*captured_first, product));
  }
  shape.transpose_b = true;
  const auto recorded_first = planner.plan("recorded first", shape);
  ProductCase product(*recorded_first);
  const RecordedProduct recorded(*recorded_first, product.operands(), "recorded first", stream_);
  const Driver& driver = *opened_.driver;
  CUgraph graph = nullptr;
  ASSERT_EQ(driver.cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  const GraphHandle owned(driver, graph);
  recorded.add_child({.graph = graph, .before = {}, .types = {}});
  const GraphExecHandle exec = instantiate(driver, graph, "recorded", [](CUgraphNode) { return "?"; });
  const auto bits = result_of(product, [&] { driver.cuGraphLaunch(exec.get(), stream_.get()); });
  EXPECT_EQ(bits, direct(*recorded_first, product));
}

// As the layers of a network: one product, other matrices.
TEST_F(ProductNodesTest, OfOneProductTwoNodesAreCapturedAndTheOthersAreWhatACaptureWouldGive) {
  constexpr size_t kNodes = 6;
  for (const MatmulShape& shape :
       {MatmulShape{.m = 16, .n = 256, .k = 128, .transpose_b = true},
        MatmulShape{.m = 40, .n = 64, .k = 96, .transpose_b = true, .output = Element::f32, .beta = 1.0f},
        MatmulShape{.m = 8, .n = 128, .k = 64, .transpose_b = true, .bias = true}}) {
    const auto matmul = library_planner().plan("product", shape);
    std::vector<std::unique_ptr<ProductCase>> cases;
    for (unsigned i = 0; i < kNodes; ++i) cases.push_back(std::make_unique<ProductCase>(*matmul, false, 10 * i));
    const Driver& driver = *opened_.driver;
    CUgraph graph = nullptr;
    ASSERT_EQ(driver.cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    const GraphHandle owned(driver, graph);
    ProductNodes products;
    std::vector<CUgraphNode> before;
    for (const auto& product : cases) {
      const std::vector<CUgraphEdgeData> full(before.size());
      const Plan plan = plan_of(matmul, *product);
      const BuiltProduct added = products.add(plan, plan.nodes[0], {.graph = graph, .before = before, .types = full});
      before = {added.node};
      if (!added.form.imported) continue;
      EXPECT_EQ(added.kernel, RecordedProduct(*matmul, product->operands(), "anew", stream_).launch());
      EXPECT_EQ(added.kernel, kernel_launch(driver, added.node, "added"));
    }
    std::printf("%s: %d of %d nodes captured\n", to_string(shape).c_str(), static_cast<int>(products.recorded()),
                static_cast<int>(kNodes));
    if (!on_gpu()) {
      EXPECT_EQ(products.recorded(), 2u);
    }
    for (const auto& product : cases) product->reset();
    const GraphExecHandle exec = instantiate(driver, graph, "layers", [](CUgraphNode) { return "?"; });
    driver.cuGraphLaunch(exec.get(), stream_.get());
    stream_.synchronize();
    std::vector<std::vector<std::byte>> results;
    for (const auto& product : cases) results.push_back(product->result());
    for (size_t i = 0; i < kNodes; ++i) EXPECT_EQ(results[i], direct(*matmul, *cases[i])) << to_string(shape) << i;
  }
}

TEST_F(ProductNodesTest, ARecordingMovesToOtherOperandsOnlyWhereThatIsKnownToBeAllThatChanges) {
  const auto matmul = library_planner().plan("product", {.m = 16, .n = 64, .k = 128, .transpose_b = true});
  const ProductCase first(*matmul), second(*matmul), third(*matmul);
  const auto record = [&](const MatmulOperands& operands) { return RecordedProduct(*matmul, operands, "r", stream_); };
  const MatmulOperands one = first.operands(), two = second.operands(), three = third.operands();
  RecordedProduct alone = record(one);
  EXPECT_TRUE(alone.move_to(one));
  EXPECT_FALSE(alone.move_to(two)) << "compared with nothing";

  MatmulOperands other_weights = one;
  other_weights.b = two.b;
  RecordedProduct weights = record(one);
  weights.compare(record(other_weights));
  if (on_gpu() && !weights.move_to(other_weights))
    GTEST_SKIP() << "this algorithm's arguments hold more than addresses";
  EXPECT_TRUE(weights.move_to(other_weights));
  EXPECT_EQ(weights.launch(), record(other_weights).launch());
  other_weights.b = three.b;
  EXPECT_TRUE(weights.move_to(other_weights));
  EXPECT_EQ(weights.launch(), record(other_weights).launch());
  EXPECT_FALSE(weights.move_to(three)) << "a and y were the same in both recordings";
  EXPECT_EQ(weights.launch(), record(other_weights).launch()) << "and nothing has changed";
  other_weights.b += 16;
  EXPECT_FALSE(weights.move_to(other_weights)) << "another alignment";
  other_weights.b = 0;
  EXPECT_FALSE(weights.move_to(other_weights));

  RecordedProduct all = record(one);
  all.compare(record(two));
  EXPECT_TRUE(all.move_to(three));
  EXPECT_EQ(all.launch(), record(three).launch());

  RecordedProduct altered = record(two);  // planted: a difference that no operand explains
  altered.arguments()[altered.arguments().size() - 1] ^= std::byte{1};
  RecordedProduct unexplained = record(one);
  unexplained.compare(altered);
  EXPECT_FALSE(unexplained.move_to(three));

  const auto larger = library_planner().plan("product", {.m = 24, .n = 64, .k = 128, .transpose_b = true});
  const ProductCase of_larger(*larger);
  RecordedProduct other_shape = record(one);
  other_shape.compare(RecordedProduct(*larger, of_larger.operands(), "larger", stream_));
  EXPECT_FALSE(other_shape.move_to(two));
}

TEST_F(ProductNodesTest, AFailureOfAnyCallOfABuildLeavesNothingBehind) {
  const auto matmul = library_planner().plan("product", {.m = 8, .n = 64, .k = 64, .transpose_b = true});
  ProductCase product(*matmul);
  const Plan plan = plan_of(matmul, product);
  Interposer& interposer = *opened_.interposer;
  for (const bool remembered : {false, true}) {
    const EnvironmentValue cache("NODEWRIGHT_CACHE", (folder_.path() / (remembered ? "kept" : "none")).string());
    if (remembered) ProductForms().of(*matmul);
    const uint64_t buffers = interposer.live_count(HandleKind::device_memory);
    const uint64_t streams = interposer.live_count(HandleKind::stream);
    uint64_t call = 0;
    for (;; ++call) {
      ASSERT_LT(call, 200u);
      if (!remembered) std::filesystem::remove_all(folder_.path() / "none");
      const uint64_t injected = interposer.failures_injected();
      interposer.fail_call(call, CUDA_ERROR_OUT_OF_MEMORY);
      try {
        ExplicitGraph exec(plan);
        interposer.fail_none();
      } catch (const Error&) {
      }
      interposer.fail_none();
      if (interposer.failures_injected() == injected) break;  // the build makes fewer calls
      EXPECT_EQ(interposer.live_count(HandleKind::graph), 0u) << call;
      EXPECT_EQ(interposer.live_count(HandleKind::graph_exec), 0u) << call;
      EXPECT_EQ(interposer.live_count(HandleKind::device_memory), buffers) << call;
      EXPECT_EQ(interposer.live_count(HandleKind::stream), streams) << call;
    }
    EXPECT_GT(call, 10u);
    ExplicitGraph exec(plan);
    EXPECT_EQ(result_of(product, [&] { exec.launch(stream_); }), direct(*matmul, product));
  }
}

class FakeProductNodesOnCpuDriver : public ProductNodesTest {};

TEST_F(FakeProductNodesOnCpuDriver, AnAlgorithmOfTwoKernelsBecomesAChildGraph) {
  fake_->kernels_per_product = 2;
  const auto matmul = library_planner().plan("product", {.m = 8, .n = 16, .k = 16, .transpose_b = true});
  ProductCase product(*matmul);
  ExplicitGraph exec(plan_of(matmul, product));
  EXPECT_EQ(exec.stats().child_products, 1u);
  EXPECT_EQ(to_string(exec.product_form({0, plan_token("one")})), "child graph, because its algorithm is 2 nodes");
  EXPECT_EQ(read_back(exec), std::vector<std::string>{});
  EXPECT_EQ(result_of(product, [&] { exec.launch(stream_); }), direct(*matmul, product));
}

TEST_F(FakeProductNodesOnCpuDriver, AnAlgorithmThatDoesNotRepeatItselfBecomesAChildGraph) {
  fake_->repeatable = false;
  const auto matmul = library_planner().plan("product", {.m = 8, .n = 16, .k = 16, .transpose_b = true});
  EXPECT_EQ(to_string(compare_import(*matmul).form), "child graph, because two direct calls give different bits");
}

TEST_F(FakeProductNodesOnCpuDriver, ARefusalOfTheDriverIsNotRemembered) {
  const auto matmul = library_planner().plan("product", {.m = 8, .n = 16, .k = 16, .transpose_b = true});
  int refused = 0;
  for (uint64_t call = 0; call < 100; ++call) {  // the adding of the imported node is among them
    ProductForms forms(folder_.path() / std::to_string(call));
    ProductForm form{.imported = false, .reason = "an error"};
    opened_.interposer->fail_call(call, CUDA_ERROR_OUT_OF_MEMORY);
    try {
      form = forms.of(*matmul);
    } catch (const Error&) {
    }
    opened_.interposer->fail_none();
    refused += form.reason.starts_with("the driver refuses its kernel as a node: ");
    EXPECT_EQ(std::filesystem::exists(forms.file_of(*matmul)), form.imported) << call << ": " << form.reason;
  }
  EXPECT_GT(refused, 0);
}

TEST_F(FakeProductNodesOnCpuDriver, AnAnswerOfAnotherLibraryVersionCountsAsNone) {
  const auto folder = folder_.path() / "answers";
  const MatmulShape shape{.m = 8, .n = 16, .k = 16, .transpose_b = true};
  ProductForms(folder).of(*library_planner().plan("product", shape));
  fake_->version += 1;
  ProductForms later(folder);
  later.of(*library_planner().plan("product", shape));
  EXPECT_EQ(later.stats().compared, 1u);
  EXPECT_EQ(later.stats().read, 0u);
  ProductForms candidate(folder);
  candidate.of(*library_planner().plan("product", shape, {.candidate = 1}));
  EXPECT_EQ(candidate.stats().compared, 1u);
}

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

// Planted: the handle of another product, whose y lies elsewhere.
TEST_F(FakeProductNodesOnCpuDriver, ReadingBackFindsAnotherProductInTheDriver) {
  for (MatmulPlanner planner : {own_planner(), library_planner()}) {
    const auto matmul = planner.plan("product", {.m = 8, .n = 16, .k = 16, .transpose_b = true});
    ProductCase one(*matmul), two(*matmul);
    const Plan plan = plan_of(matmul, one);
    const ExplicitGraph mine(plan), other(plan_of(matmul, two));
    const BuiltProduct built = mine.built_plans()[0]->products.at(0);
    const auto differences = [&](auto&& change) {
      BuiltProduct changed = built;
      change(changed);
      return product_differences(plan, plan.nodes[0], changed).size();
    };
    EXPECT_EQ(differences([](BuiltProduct&) {}), 0u);
    EXPECT_EQ(differences([&](BuiltProduct& b) { b.node = other.node(0); }), 1u);
    EXPECT_EQ(differences([](BuiltProduct& b) { b.form = {.imported = false, .reason = "x"}; }), 1u);
  }
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
