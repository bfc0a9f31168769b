// Copies and fills of rows with a pitch, as nodes and on streams: what they touch, what they leave, and which patches
// CUDA takes.
#include "tests/cpu_driver/graph_fixture.h"

namespace nodewright {
namespace {

constexpr size_t kPitch = 32, kRows = 4;  // bytes a row, rows of each buffer

class RowCopiesTest : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    std::vector<unsigned char> bytes(kPitch * kRows);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i);
    from_ = upload(bytes);
    to_ = upload(std::vector<unsigned char>(kPitch * kRows, 0xee));
  }

  // 3 rows of 8 bytes from column 4 of row 1 to column 16 of row 0.
  CUgraphNodeParams row_copy() {
    CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_MEMCPY);
    auto& c = params.memcpy.copyParams;
    c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    c.srcDevice = reinterpret_cast<CUdeviceptr>(from_);
    c.dstDevice = reinterpret_cast<CUdeviceptr>(to_);
    c.srcXInBytes = 4;
    c.srcY = 1;
    c.dstXInBytes = 16;
    c.srcPitch = c.dstPitch = kPitch;
    c.WidthInBytes = 8;
    c.Height = 3;
    c.Depth = 1;
    return params;
  }
  // 2 rows of 3 two-byte elements.
  CUgraphNodeParams row_fill() {
    CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_MEMSET);
    params.memset.dst = reinterpret_cast<CUdeviceptr>(to_ + 4);
    params.memset.pitch = kPitch;
    params.memset.value = 0x1234;
    params.memset.elementSize = 2;
    params.memset.width = 3;
    params.memset.height = 2;
    return params;
  }
  CUDA_MEMSET_NODE_PARAMS held_fill(CUgraphNode node) {
    CUDA_MEMSET_NODE_PARAMS held{};
    EXPECT_OK(api().cuGraphMemsetNodeGetParams(node, &held));
    return held;
  }

  unsigned char *from_ = nullptr, *to_ = nullptr;
};

TEST_F(RowCopiesTest, ARowCopyMovesItsRectangleAndNothingElse) {
  const CUgraphNode node = add_node(graph_, row_copy());
  ASSERT_OK(add_result_);
  const CUgraphExec exec = instantiate(graph_);
  ASSERT_OK(api().cuGraphLaunch(exec, stream_));
  ASSERT_OK(synchronize());
  const auto bytes = download(to_, kPitch * kRows);
  for (size_t y = 0; y < kRows; ++y)
    for (size_t x = 0; x < kPitch; ++x) {
      const bool inside = y < 3 && x >= 16 && x < 24;
      EXPECT_EQ(inside ? (y + 1) * kPitch + (x - 16) + 4 : 0xeeu, bytes[y * kPitch + x]) << y << " " << x;
    }
  CUDA_MEMCPY3D held{};
  ASSERT_OK(api().cuGraphMemcpyNodeGetParams(node, &held));
  EXPECT_EQ(3u, held.Height);
  EXPECT_EQ(16u, held.dstXInBytes);
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(RowCopiesTest, ARowFillWritesItsElementsAndNothingElse) {
  add_node(graph_, row_fill());
  ASSERT_OK(add_result_);
  const CUgraphExec exec = instantiate(graph_);
  ASSERT_OK(api().cuGraphLaunch(exec, stream_));
  ASSERT_OK(synchronize());
  const auto bytes = download(to_, kPitch * kRows);
  for (size_t y = 0; y < kRows; ++y)
    for (size_t x = 0; x < kPitch; ++x) {
      const bool inside = y < 2 && x >= 4 && x < 10;
      EXPECT_EQ(inside ? (x % 2 == 0 ? 0x34 : 0x12) : 0xee, bytes[y * kPitch + x]) << y << " " << x;
    }
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(RowCopiesTest, RowsBeyondTheAllocationOrThePitchAreRefused) {
  const auto refused = [&](const char* report, auto change) {
    CUgraphNodeParams params = row_copy();
    change(params.memcpy.copyParams);
    add_node(graph_, params);
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_) << report;
    expect_reported(report);
  };
  refused("the copy's source of ", [](CUDA_MEMCPY3D& c) { c.Height = 4; });
  refused("the copy's target of ", [](CUDA_MEMCPY3D& c) { c.dstY = 2; });
  refused("the copy's target of ", [](CUDA_MEMCPY3D& c) { c.dstPitch = 4096; });
  refused("the copy's source pitch of 11 bytes is less than its first column plus its width, 12",
          [](CUDA_MEMCPY3D& c) { c.srcPitch = 11; });
  refused("the copy's target height", [](CUDA_MEMCPY3D& c) { c.dstHeight = 2; });
  const auto bad_fill = [&](const char* report, auto change) {
    CUgraphNodeParams params = row_fill();
    change(params.memset);
    add_node(graph_, params);
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_) << report;
    expect_reported(report);
  };
  bad_fill("the fill of ", [](auto& f) { f.height = 5; });
  bad_fill("the fill's pitch of 4 bytes is less than its width of 6", [](auto& f) { f.pitch = 4; });
  bad_fill("not a multiple of its element size", [](auto& f) { f.pitch = 7; });
  bad_fill("not aligned", [](auto& f) { f.dst += 1; });
  bad_fill("does not fit its element size", [](auto& f) { f.value = 0x12345; });
  bad_fill("beyond the last address", [](auto& f) { f.pitch = size_t{1} << 63, f.height = 3; });
  bad_fill("beyond the last address", [](auto& f) { f.width = (size_t{1} << 63) + 3, f.height = 1; });
}

TEST_F(RowCopiesTest, AStreamFillsRowsOfEachElement) {
  const auto at = [&](size_t offset) { return reinterpret_cast<CUdeviceptr>(to_ + offset); };
  ASSERT_OK(api().cuMemsetD2D8Async(at(1), kPitch, 0x11, 3, 4, stream_));
  ASSERT_OK(api().cuMemsetD2D16Async(at(6), kPitch, 0x2233, 2, 3, stream_));
  ASSERT_OK(api().cuMemsetD2D32Async(at(12), kPitch, 0x44556677, 1, 2, stream_));
  ASSERT_OK(api().cuMemsetD16Async(at(20), 0x8899, 2, stream_));
  ASSERT_OK(api().cuMemsetD2D32Async(at(28), 0, 0xaabbccdd, 1, 1, stream_)) << "of one row the pitch means nothing";
  ASSERT_OK(api().cuMemsetD2D8Async(at(0), kPitch, 0x11, 0, 4, stream_)) << "nothing to fill";
  EXPECT_EQ(0xee, download(to_, 2)[1]) << "nothing runs before a synchronising call";
  ASSERT_OK(synchronize());
  const auto bytes = download(to_, kPitch * kRows);
  for (size_t y = 0; y < kRows; ++y)
    for (size_t x = 0; x < kPitch; ++x) {
      unsigned expected = 0xee;
      if (x >= 1 && x < 4) expected = 0x11;
      if (x >= 6 && x < 10 && y < 3) expected = x % 2 == 0 ? 0x33 : 0x22;
      if (x >= 12 && x < 16 && y < 2) expected = 0x77 - 0x11 * (x - 12);
      if (x >= 20 && x < 24 && y < 1) expected = x % 2 == 0 ? 0x99 : 0x88;
      if (x >= 28 && y < 1) expected = 0xdd - 0x11 * (x - 28);
      EXPECT_EQ(expected, bytes[y * kPitch + x]) << y << " " << x;
    }
}

TEST_F(RowCopiesTest, AStreamRefusesRowsAsAGraphDoes) {
  const CUdeviceptr to = reinterpret_cast<CUdeviceptr>(to_);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuMemsetD2D8Async(to, 7, 1, 8, 2, stream_));
  expect_reported("the fill's pitch of 7 bytes is less than its width of 8");
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuMemsetD2D16Async(to, 5, 1, 2, 2, stream_));
  expect_reported("not a multiple of its element size");
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuMemsetD2D32Async(to + 2, kPitch, 1, 2, 2, stream_));
  expect_reported("not aligned");
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuMemsetD16Async(to + 1, 1, 2, stream_));
  expect_reported("not aligned");
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuMemsetD2D32Async(to, kPitch, 1, 2, kRows + 1, stream_));
  expect_reported("is not within one allocation");
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE,
            api().cuMemsetD2D8Async(to, kPitch, 1, 8, 2, reinterpret_cast<CUstream>(graph_)));
}

TEST_F(RowCopiesTest, ACapturedFillOfRowsIsANodeOfRows) {
  ASSERT_OK(api().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_OK(api().cuMemsetD2D16Async(reinterpret_cast<CUdeviceptr>(to_ + 4), kPitch, 0x1234, 3, 2, stream_));
  CUgraph captured = nullptr;
  ASSERT_OK(api().cuStreamEndCapture(stream_, &captured));
  CUgraphNode node = nullptr;
  size_t count = 1;
  ASSERT_OK(api().cuGraphGetNodes(captured, &node, &count));
  const CUDA_MEMSET_NODE_PARAMS held = held_fill(node);
  EXPECT_EQ(2u, held.height);
  EXPECT_EQ(3u, held.width);
  EXPECT_EQ(2u, held.elementSize);
  EXPECT_EQ(kPitch, held.pitch);
  EXPECT_EQ(0x1234u, held.value);
  ASSERT_OK(api().cuGraphDestroy(captured));
}

TEST_F(RowCopiesTest, AnUpdateChangesAddressAndValueOfAFillOfRowsAlone) {
  const auto graph_of = [&](auto change) {
    CUgraph graph = nullptr;
    EXPECT_OK(api().cuGraphCreate(&graph, 0));
    CUgraphNodeParams params = row_fill();
    change(params.memset);
    add_node(graph, params);
    EXPECT_OK(add_result_);
    return graph;
  };
  const CUgraph first = graph_of([](auto&) {});
  const CUgraphExec exec = instantiate(first);
  const auto update = [&](auto change) {
    const CUgraph next = graph_of(change);
    CUgraphExecUpdateResultInfo info{};
    const CUresult result = api().cuGraphExecUpdate(exec, next, &info);
    EXPECT_OK(api().cuGraphDestroy(next));
    EXPECT_EQ(result == CUDA_SUCCESS ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED,
              info.result);
    return result;
  };
  EXPECT_OK(update([](auto& f) { f.dst += kPitch, f.value = 0x7777; }));
  EXPECT_EQ(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, update([](auto& f) { f.height = 3; }));
  EXPECT_EQ(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, update([](auto& f) { f.height = 1; }));
  EXPECT_EQ(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, update([](auto& f) { f.width = 2; }));
  EXPECT_EQ(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, update([](auto& f) { f.pitch = kPitch / 2; }));
  ASSERT_OK(api().cuGraphLaunch(exec, stream_));
  ASSERT_OK(synchronize());
  EXPECT_EQ(0x77, download(to_, kPitch * kRows)[2 * kPitch + 9]);
  ASSERT_OK(api().cuGraphExecDestroy(exec));
  ASSERT_OK(api().cuGraphDestroy(first));
}

TEST_F(RowCopiesTest, ACopyOfRowsTakesNoOtherParametersInAnExec) {
  const CUgraphNode rows = add_node(graph_, row_copy());
  CUgraphNodeParams one_row = row_copy();
  one_row.memcpy.copyParams.Height = 1;
  const CUgraphNode flat = add_node(graph_, one_row, {rows});
  const CUgraphExec exec = instantiate(graph_);
  const CUDA_MEMCPY3D row = one_row.memcpy.copyParams, several = row_copy().memcpy.copyParams;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphExecMemcpyNodeSetParams(exec, rows, &several, context_));
  expect_reported("only one-dimensional copy nodes");
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphExecMemcpyNodeSetParams(exec, rows, &row, context_));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphExecMemcpyNodeSetParams(exec, flat, &several, context_));
  EXPECT_OK(api().cuGraphExecMemcpyNodeSetParams(exec, flat, &row, context_));
  CUDA_MEMCPY3D nothing = row;
  nothing.WidthInBytes = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphExecMemcpyNodeSetParams(exec, flat, &nothing, context_));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphExecMemcpyNodeSetParams(exec, flat, &row, nullptr)) << "context";
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(RowCopiesTest, AFillOfRowsTakesAnotherAddressAndValueInAnExec) {
  const CUgraphNode node = add_node(graph_, row_fill());
  const CUgraphExec exec = instantiate(graph_);
  CUDA_MEMSET_NODE_PARAMS fill = held_fill(node);
  fill.dst += kPitch;
  fill.value = 0x7777;
  EXPECT_OK(api().cuGraphExecMemsetNodeSetParams(exec, node, &fill, context_));
  const auto refused = [&](auto change) {
    CUDA_MEMSET_NODE_PARAMS changed = fill;
    change(changed);
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphExecMemsetNodeSetParams(exec, node, &changed, context_));
  };
  refused([](auto& f) { f.height = 1; });
  refused([](auto& f) { f.width = 2; });
  refused([](auto& f) { f.pitch = kPitch / 2; });
  refused([](auto& f) { f.elementSize = 1, f.value = 1; });
  refused([](auto& f) { f.width = 0; });
  refused([](auto& f) { f.dst += 4 * kPitch; });
  ASSERT_OK(api().cuGraphLaunch(exec, stream_));
  ASSERT_OK(synchronize());
  const auto bytes = download(to_, kPitch * kRows);
  EXPECT_EQ(0xee, bytes[4]);
  EXPECT_EQ(0x77, bytes[kPitch + 4]);
  EXPECT_EQ(0x77, bytes[2 * kPitch + 9]);
  EXPECT_EQ(0xee, bytes[2 * kPitch + 10]);
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

}  // namespace
}  // namespace nodewright
