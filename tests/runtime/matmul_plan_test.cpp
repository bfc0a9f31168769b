// Products against double, on the device under test: cuBLASLt on a GPU, the reference product on both, and cuBLASLt's
// column-major calling convention on the CPU driver through a fake library.
#include "runtime/matmul_plan.h"

#include <gtest/gtest.h>

#include <span>

#include "runtime/compilers/cubin_reader.h"
#include "runtime/compilers/nvrtc.h"
#include "runtime/device_selection.h"
#include "runtime/error.h"
#include "runtime/stream.h"
#include "tests/support/error_text.h"
#include "tests/support/fake_cublaslt.h"
#include "tests/support/product_case.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/test_device.h"

namespace nodewright {
namespace {

using test::ProductCase;
using test::small_product_shapes;

// On the CPU driver every access is checked against what the reference kernel declares.
std::string checked_test_device() { return test::test_device_is_cuda() ? test::test_device() : "cpu:checked"; }

class MatmulPlanTest : public testing::Test {
 protected:
  std::vector<std::byte> run(const MatmulPlan& plan, ProductCase& product) {
    product.reset();
    plan.submit(product.operands(), stream_.get());
    stream_.synchronize();
    return product.result();
  }

  void expect_all_close(const MatmulPlanner& planner) {
    for (const MatmulShape& shape : small_product_shapes())
      for (const bool separate_c : {true, false}) {
        if (!separate_c && (shape.beta == 0.0f || shape.ldc != 0)) continue;
        const auto plan = planner.plan("product", shape, {.alignment_bytes = 4});
        ProductCase product(*plan, separate_c);
        product.expect_close(run(*plan, product), to_string(shape) + (separate_c ? "" : ", in place"));
      }
  }

  // The message of the Error that `f` throws.
  OpenedDevice opened_ = open_device(checked_test_device());
  Device& device_ = *opened_.device;
  KernelCache kernels_{device_};
  Stream stream_{device_, "products"};
};

TEST_F(MatmulPlanTest, TheDevicesOwnBackendIsWithinRoundingOfDouble) {
  const MatmulPlanner planner(device_, kernels_);
  EXPECT_EQ(planner.backend(), test::test_device_is_cuda() ? MatmulBackend::cublaslt : MatmulBackend::reference);
  expect_all_close(planner);
}

TEST_F(MatmulPlanTest, TheReferenceProductIsWithinRoundingOfDouble) {
  expect_all_close(MatmulPlanner(device_, kernels_, MatmulBackend::reference));
}

TEST_F(MatmulPlanTest, SpansEndWithTheLastElement) {
  const MatmulPlanner planner(device_, kernels_, MatmulBackend::reference);
  const MatmulShape shape{.m = 3,
                          .n = 5,
                          .k = 7,
                          .transpose_b = true,
                          .output = Element::f32,
                          .lda = 10,
                          .ldy = 6,
                          .beta = 1.0f,
                          .bias = true};
  const auto plan = planner.plan("product", shape);
  EXPECT_EQ(plan->shape().ldb, 7);
  EXPECT_EQ(plan->shape().ldc, 6);
  const MatmulSpans spans = plan->spans();
  EXPECT_EQ(spans.a, 2u * (2 * 10 + 7));
  EXPECT_EQ(spans.b, 2u * 5 * 7);
  EXPECT_EQ(spans.c, 4u * (2 * 6 + 5));
  EXPECT_EQ(spans.y, 4u * (2 * 6 + 5));
  EXPECT_EQ(spans.bias, 4u * 5);
  EXPECT_EQ(spans.workspace, 0u);
  EXPECT_EQ(plan->flops(), 2u * 3 * 5 * 7);
}

TEST_F(MatmulPlanTest, APinnedAlgorithmGivesTheSameBits) {
  const MatmulPlanner planner(device_, kernels_);
  const MatmulShape shape{.m = 4, .n = 256, .k = 512, .transpose_b = true};
  const auto chosen = planner.plan("chosen", shape);
  MatmulOptions options;
  options.algorithm = chosen->algorithm();
  const auto pinned = planner.plan("pinned", shape, options);
  EXPECT_EQ(pinned->describe(), chosen->describe());
  EXPECT_EQ(pinned->workspace_bytes(), chosen->workspace_bytes());
  ProductCase product(*chosen);
  EXPECT_EQ(run(*pinned, product), run(*chosen, product));
}

TEST_F(MatmulPlanTest, RefusesSizesThatMakeNoProduct) {
  const MatmulPlanner planner(device_, kernels_, MatmulBackend::reference);
  const auto refusal = [&](const MatmulShape& shape, const MatmulOptions& options = {}) {
    return error_of([&] { planner.plan("wide", shape, options); });
  };
  EXPECT_NE(refusal({.m = 0, .n = 4, .k = 4}).find("cannot plan product 'wide': 0x4x4 bf16: an edge of 0"),
            std::string::npos);
  EXPECT_NE(refusal({.m = 4, .n = 4, .k = int64_t{1} << 31}).find("less than 2^31"), std::string::npos);
  EXPECT_NE(refusal({.m = 4, .n = 4, .k = 8, .lda = 7}).find("lda = 7 for rows of 8 elements"), std::string::npos);
  EXPECT_NE(refusal({.m = 4, .n = 8, .k = 4, .ldy = 6}).find("ldy = 6 for rows of 8 elements"), std::string::npos);
  EXPECT_NE(refusal({.m = 4, .n = 4, .k = 4, .inputs = Element::f32}).find("inputs f32 and output bf16"),
            std::string::npos);
  EXPECT_NE(refusal({.m = 4, .n = 4, .k = 4}, {.alignment_bytes = 24}).find("alignment of 24"), std::string::npos);
  EXPECT_NE(refusal({.m = 4, .n = 4, .k = 4}, {.alignment_bytes = 1}).find("elements of 2"), std::string::npos);
}

TEST_F(MatmulPlanTest, RefusesOperandsThatAreMissingOrNotAligned) {
  const MatmulPlanner planner(device_, kernels_, MatmulBackend::reference);
  const auto plan = planner.plan("p", {.m = 4, .n = 4, .k = 4, .bias = true});
  const MatmulOperands good{.a = 0x100, .b = 0x200, .bias = 0x300, .y = 0x400};
  const auto refusal = [&](auto&& change) {
    MatmulOperands operands = good;
    change(operands);
    return error_of([&] { plan->reference_arguments(operands); });
  };
  EXPECT_EQ(refusal([](MatmulOperands&) {}), "");
  EXPECT_NE(refusal([](MatmulOperands& o) { o.a = 0; }).find("operand a of 32 bytes at address 0"), std::string::npos);
  EXPECT_NE(refusal([](MatmulOperands& o) { o.bias = 0; }).find("operand bias of 8 bytes"), std::string::npos);
  EXPECT_NE(refusal([](MatmulOperands& o) { o.y = 0x402; }).find("aligned to 16 bytes"), std::string::npos);
  const auto apart = planner.plan("p", {.m = 4, .n = 4, .k = 4, .ldc = 4, .ldy = 8, .beta = 1.0f});
  EXPECT_NE(error_of([&] { apart->reference_arguments(good); }).find("rows are 8 elements apart, with ldc 4"),
            std::string::npos);
}

// Every binary16 there is, times 1 and times 1/2: subnormals, ties, infinities.
TEST_F(MatmulPlanTest, TheReferenceProductRoundsHalvesToNearestEven) {
  constexpr int64_t kValues = 1 << 16;
  const MatmulPlanner planner(device_, kernels_, MatmulBackend::reference);
  std::vector<uint16_t> every(kValues);
  for (size_t i = 0; i < every.size(); ++i) every[i] = static_cast<uint16_t>(i);
  for (const float alpha : {1.0f, 0.5f}) {
    const auto plan = planner.plan(
        "halves", {.m = kValues, .n = 1, .k = 1, .inputs = Element::fp16, .output = Element::fp16, .alpha = alpha});
    ProductCase product(*plan);
    const uint16_t one = 0x3c00;
    write_device(device_, product.a.address(), std::as_bytes(std::span(every)), "a");
    write_device(device_, product.b.address(), std::as_bytes(std::span(&one, 1)), "b");
    const std::vector<std::byte> y = run(*plan, product);
    for (size_t i = 0; i < every.size(); ++i) {
      const double value = test::value_of(Element::fp16, std::as_bytes(std::span(&every[i], 1)).data());
      const double got = test::value_of(Element::fp16, y.data() + 2 * i);
      const double scaled = value * static_cast<double>(alpha);
      const double expected = std::abs(scaled) < 0x1p-14 ? std::nearbyint(scaled * 0x1p24) * 0x1p-24 : scaled;
      ASSERT_TRUE(std::isnan(value) ? std::isnan(got) : got == expected) << value << " * " << alpha << " gave " << got;
    }
  }
}

TEST(ReferenceProductSource, CompilesForBothTargetsInEveryElementType) {
  const auto nvrtc = Nvrtc::load();
  for (const int cc_major : {8, 9})
    for (const int64_t element : {0, 1, 2}) {
      const KernelProgram program =
          program_of({"reference_product", {{"kInput", element}, {"kOutput", element}}}, {}, "cpu_driver/");
      NvrtcSource source{std::string(program.source.path), program.prelude + std::string(program.source.text), {}};
      for (const EmbeddedSource& header : program.headers)
        source.headers.push_back({std::string(header.path), std::string(header.text)});
      const NvrtcResult built = nvrtc->compile(source, nvrtc_options(cc_major, 0, Spills::refused));
      const std::vector<CubinKernel> kernels = read_cubin(built.cubin, "reference_product");
      ASSERT_EQ(kernels.size(), 1u);
      EXPECT_EQ(kernels[0].waits, cc_major >= 9 ? 1 : 0);
      EXPECT_EQ(kernels[0].parameters.at(0).bytes, sizeof(ReferenceProduct));
    }
}

TEST(MatmulLibrary, NamesThePlacesItLookedAt) {
  const EnvironmentValue elsewhere("NODEWRIGHT_CUBLASLT", "/no/such/libcublasLt.so");
  try {
    MatmulLibrary::load();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/no/such/libcublasLt.so"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("NODEWRIGHT_CUBLASLT"), std::string::npos) << error.what();
  }
}

TEST(MatmulLibrary, RefusesALibraryWithoutItsEntries) {
  const EnvironmentValue elsewhere("NODEWRIGHT_CUBLASLT", "libc.so.6");
  try {
    MatmulLibrary::load();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("libc.so.6 lacks cublasLtGetVersion"), std::string::npos) << error.what();
  }
}

class MatmulPlanFakeOnCpuDriver : public MatmulPlanTest {
 protected:
  test::FakeCublasLt fake_{device_, kernels_};
};

TEST_F(MatmulPlanFakeOnCpuDriver, TranslatesRowMajorShapesForAColumnMajorLibrary) {
  expect_all_close(MatmulPlanner(device_, kernels_, fake_.library()));
  EXPECT_GT(fake_.products, 0);
  EXPECT_EQ(fake_.layouts, 0);
}

TEST_F(MatmulPlanFakeOnCpuDriver, UsesABorrowedHandleAndLeavesItToItsOwner) {
  int theirs = 0;
  {
    const auto library = fake_.library();
    library->borrow(device_, &theirs);
    expect_all_close(MatmulPlanner(device_, kernels_, library));
    EXPECT_EQ(library->handle(device_), &theirs);
    EXPECT_EQ(fake_.used, &theirs);
    EXPECT_NE(error_of([&] { library->borrow(device_, &theirs); }).find("has a handle already"), std::string::npos);
  }
  EXPECT_EQ(fake_.handles, 0) << "neither made nor destroyed";
  const auto library = fake_.library();
  EXPECT_NE(error_of([&] { library->borrow(device_, nullptr); }).find("the handle is null"), std::string::npos);
  library->handle(device_);
  EXPECT_EQ(fake_.handles, 1);
  EXPECT_NE(error_of([&] { library->borrow(device_, &theirs); }).find("has a handle already"), std::string::npos);
}

TEST_F(MatmulPlanFakeOnCpuDriver, TakesTheCandidateThatIsAskedFor) {
  const MatmulPlanner planner(device_, kernels_, fake_.library());
  const MatmulShape shape{.m = 4, .n = 4, .k = 4};
  EXPECT_EQ(planner.plan("p", shape, {.candidate = 2})->algorithm().words[1], 2u);
  EXPECT_EQ(planner.plan("p", shape, {.candidate = 2})->describe(),
            "cuBLASLt 990000, algorithm 2, tile 0, stages 0, split-K 0, cluster 2");
  EXPECT_NE(error_of([&] { planner.plan("p", shape, {.candidate = 3}); }).find("candidate 3 of 3 proposed"),
            std::string::npos);
  EXPECT_NE(error_of([&] { planner.plan("p", shape, {.candidate = -1}); }).find("candidate -1"), std::string::npos);
}

TEST_F(MatmulPlanFakeOnCpuDriver, TakesTheProposalOfTheNumbersThatAreAskedFor) {
  const MatmulPlanner planner(device_, kernels_, fake_.library());
  const MatmulShape shape{.m = 4, .n = 4, .k = 4};
  const std::vector<MatmulConfig> proposals = planner.proposals(*planner.plan("p", shape));
  ASSERT_EQ(proposals.size(), 3u);
  for (uint64_t i = 0; i < proposals.size(); ++i) {
    const auto plan = planner.plan("p", shape, {.config = proposals[i]});
    EXPECT_EQ(plan->algorithm().words[1], i);
    EXPECT_EQ(plan->config(), proposals[i]);
  }
  const std::string refusal =
      error_of([&] { planner.plan("p", shape, {.config = MatmulConfig{.algorithm = 2, .split_k = 4, .cluster = 2}}); });
  EXPECT_NE(
      refusal.find("algorithm 2, tile 0, stages 0, split-K 4, cluster 2 is none of 3 proposed by cuBLASLt 990000"),
      std::string::npos)
      << refusal;
  const MatmulPlanner reference(device_, kernels_, MatmulBackend::reference);
  EXPECT_TRUE(reference.proposals(*reference.plan("p", shape)).empty());
}

TEST_F(MatmulPlanFakeOnCpuDriver, RefusesAnAlgorithmOfAnotherLibrary) {
  const MatmulPlanner planner(device_, kernels_, fake_.library());
  MatmulOptions options;
  options.algorithm = cublaslt::Algorithm{{1, 2, 3}};
  const std::string refusal = error_of([&] { planner.plan("p", {.m = 4, .n = 4, .k = 4}, options); });
  EXPECT_NE(refusal.find("cannot pin the algorithm of product 'p'"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("cublasLtMatmulAlgoCheck: FAKE_STATUS, cuBLASLt 990000"), std::string::npos) << refusal;
}

TEST_F(MatmulPlanFakeOnCpuDriver, RefusesAPinnedAlgorithmThatNeedsMoreWorkspaceThanThereMayBe) {
  const MatmulPlanner planner(device_, kernels_, fake_.library());
  const auto proposed = planner.plan("p", {.m = 8, .n = 4, .k = 4});
  const MatmulShape shape{.m = 4, .n = 4, .k = 4};
  EXPECT_EQ(planner.plan("p", shape, {.workspace_limit_bytes = 64, .algorithm = proposed->algorithm()})->algorithm(),
            proposed->algorithm());
  const std::string refusal =
      error_of([&] { planner.plan("p", shape, {.workspace_limit_bytes = 63, .algorithm = proposed->algorithm()}); });
  EXPECT_NE(refusal.find("cannot pin the algorithm of product 'p'"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("it needs 64"), std::string::npos) << refusal;
}

TEST_F(MatmulPlanFakeOnCpuDriver, CublasLtIsRefusedByTheCpuDriver) {
  EXPECT_NE(error_of([&] { MatmulPlanner(device_, kernels_, MatmulBackend::cublaslt); }).find("CPU driver"),
            std::string::npos);
}

}  // namespace
}  // namespace nodewright
