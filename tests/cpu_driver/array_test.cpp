// CUDA arrays: made, described, copied to and from, destroyed; and what no array takes.
#include "tests/cpu_driver/graph_fixture.h"

namespace nodewright {
namespace {

class ArrayTest : public GraphTest {
 protected:
  CUarray create(CUDA_ARRAY3D_DESCRIPTOR descriptor) {
    CUarray array = nullptr;
    result_ = api().cuArray3DCreate(&array, &descriptor);
    return array;
  }
  static CUDA_ARRAY3D_DESCRIPTOR of(size_t width, size_t height, size_t depth, unsigned channels) {
    return {.Width = width,
            .Height = height,
            .Depth = depth,
            .Format = CU_AD_FORMAT_HALF,
            .NumChannels = channels,
            .Flags = 0};
  }
  // A row of `bytes` bytes from an array's origin to memory.
  CUgraphNodeParams out_of(CUarray array, void* to, size_t bytes) {
    CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_MEMCPY);
    auto& c = params.memcpy.copyParams;
    c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    c.srcArray = array;
    c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    c.dstDevice = reinterpret_cast<CUdeviceptr>(to);
    c.WidthInBytes = bytes;
    c.Height = c.Depth = 1;
    return params;
  }
  CUresult result_ = CUDA_SUCCESS;
};

TEST_F(ArrayTest, TellsWhatItWasMadeWith) {
  const CUarray array = create(of(4, 3, 2, 2));
  ASSERT_OK(result_);
  CUDA_ARRAY3D_DESCRIPTOR held{};
  ASSERT_OK(api().cuArray3DGetDescriptor(&held, array));
  EXPECT_EQ(4u, held.Width);
  EXPECT_EQ(3u, held.Height);
  EXPECT_EQ(2u, held.Depth);
  EXPECT_EQ(CU_AD_FORMAT_HALF, held.Format);
  EXPECT_EQ(2u, held.NumChannels);
  const CUDA_ARRAY_DESCRIPTOR flat{.Width = 8, .Height = 0, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
  CUarray row = nullptr;
  ASSERT_OK(api().cuArrayCreate(&row, &flat));
  ASSERT_OK(api().cuArray3DGetDescriptor(&held, row));
  EXPECT_EQ(8u, held.Width);
  EXPECT_EQ(0u, held.Depth);
  ASSERT_OK(api().cuArrayDestroy(row));
  ASSERT_OK(api().cuArrayDestroy(array));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuArrayDestroy(array));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuArray3DGetDescriptor(&held, array));
}

TEST_F(ArrayTest, NoWidthAndOtherFormatsAreRefused) {
  create(of(0, 1, 1, 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, result_);
  create(of(4, 1, 1, 3));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, result_);
  create(of(4, 0, 2, 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, result_);
}

TEST_F(ArrayTest, CopiesStayWithinItInWholeElements) {
  const CUarray array = create(of(4, 1, 1, 2));  // one row of 16 bytes
  unsigned char* to = upload(std::vector<unsigned char>(64, 0));
  add_node(graph_, out_of(array, to, 16));
  EXPECT_OK(add_result_);
  add_node(graph_, out_of(array, to, 20));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_);
  add_node(graph_, out_of(array, to, 6));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_);
  ASSERT_OK(api().cuArrayDestroy(array));
  add_node(graph_, out_of(array, to, 16));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, add_result_);
}

TEST_F(ArrayTest, ALaunchReportsAnArrayThatIsGone) {
  const CUarray array = create(of(4, 1, 1, 2));
  unsigned char* to = upload(std::vector<unsigned char>(64, 0));
  add_node(graph_, out_of(array, to, 16));
  const CUgraphExec exec = instantiate(graph_);
  ASSERT_OK(api().cuArrayDestroy(array));
  ASSERT_OK(api().cuGraphLaunch(exec, stream_));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, api().cuStreamSynchronize(stream_));
}

}  // namespace
}  // namespace nodewright
