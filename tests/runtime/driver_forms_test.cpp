// The form of every entry that the driver hands out is the form that its callers pass arguments in. cuGetProcAddress
// gives the newest form up to the version asked for; cuda.h declares one; where they differ, arguments are garbage.
// cuCtxSynchronize and cuCtxGetDevice were such cases: CUDA 13.0 has forms with a context, and cuda.h still declares
// those without.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <regex>
#include <string>
#include <type_traits>
#include <utility>

#include "runtime/driver.h"

#if __has_include(<cudaTypedefs.h>)
#include <cudaTypedefs.h>
#endif

namespace nodewright {
namespace {

// Entry and the CUDA version that the form came with which cuda.h declares, as cudaTypedefs.h of CUDA 13.0 has them.
// clang-format off
#define FORMS(X) \
  X(cuInit, 2000) X(cuDriverGetVersion, 2020) X(cuGetErrorName, 6000) X(cuGetErrorString, 6000)                 \
  X(cuDeviceGet, 2000) X(cuDeviceGetCount, 2000) X(cuDeviceGetName, 2000) X(cuDeviceGetAttribute, 2000)         \
  X(cuDeviceTotalMem, 3020) X(cuDevicePrimaryCtxRetain, 7000) X(cuDevicePrimaryCtxRelease, 11000)               \
  X(cuCtxSetCurrent, 4000) X(cuCtxGetCurrent, 4000) X(cuCtxGetDevice, 2000) X(cuCtxSynchronize, 2000)           \
  X(cuCtxGetStreamPriorityRange, 5050)                                                                          \
  X(cuDeviceCanAccessPeer, 4000) X(cuDeviceGetP2PAttribute, 8000) X(cuCtxEnablePeerAccess, 4000)                \
  X(cuCtxDisablePeerAccess, 4000) X(cuMemGetInfo, 3020)                                                         \
  X(cuMemAlloc, 3020) X(cuMemFree, 3020) X(cuMemHostAlloc, 2020) X(cuMemFreeHost, 2000)                         \
  X(cuMemHostGetDevicePointer, 3020) X(cuMemHostRegister, 6050) X(cuMemHostUnregister, 4000)                    \
  X(cuMemAllocAsync, 11020) X(cuMemFreeAsync, 11020) X(cuPointerGetAttributes, 7000)                            \
  X(cuArrayCreate, 3020) X(cuArray3DCreate, 3020) X(cuArrayDestroy, 2000) X(cuArray3DGetDescriptor, 3020)       \
  X(cuMemcpyHtoD, 3020) X(cuMemcpyDtoH, 3020) X(cuMemcpyDtoD, 3020)                                             \
  X(cuMemcpyHtoDAsync, 3020) X(cuMemcpyDtoHAsync, 3020) X(cuMemcpyDtoDAsync, 3020) X(cuMemcpy2DAsync, 3020)     \
  X(cuMemcpy3DAsync, 3020)                                                                                      \
  X(cuMemcpyPeerAsync, 4000)                                                                                    \
  X(cuMemsetD8, 3020) X(cuMemsetD8Async, 3020) X(cuMemsetD16Async, 3020) X(cuMemsetD32Async, 3020)              \
  X(cuMemsetD2D8Async, 3020) X(cuMemsetD2D16Async, 3020) X(cuMemsetD2D32Async, 3020)                            \
  X(cuStreamCreate, 2000) X(cuStreamDestroy, 4000) X(cuStreamSynchronize, 2000) X(cuStreamQuery, 2000)          \
  X(cuStreamWaitEvent, 3020)                                                                                    \
  X(cuStreamBeginCapture, 10010) X(cuStreamBeginCaptureToGraph, 12030) X(cuStreamEndCapture, 10000)             \
  X(cuStreamIsCapturing, 10000) X(cuLaunchHostFunc, 10000) X(cuStreamBatchMemOp, 11070)                         \
  X(cuImportExternalSemaphore, 10000) X(cuDestroyExternalSemaphore, 10000)                                      \
  X(cuSignalExternalSemaphoresAsync, 10000) X(cuWaitExternalSemaphoresAsync, 10000) X(cuEventCreate, 2000) X(cuEventDestroy, 4000)       \
  X(cuEventRecord, 2000) X(cuEventRecordWithFlags, 11010) X(cuEventSynchronize, 2000) X(cuEventQuery, 2000)     \
  X(cuEventElapsedTime, 12080) X(cuLibraryLoadData, 12000) X(cuLibraryUnload, 12000)                            \
  X(cuLibraryGetKernel, 12000) X(cuKernelGetFunction, 12000) X(cuKernelGetAttribute, 12000)                     \
  X(cuKernelSetAttribute, 12000) X(cuKernelGetParamInfo, 12040) X(cuKernelGetName, 12030) X(cuFuncGetName, 12030) X(cuFuncGetAttribute, 2020)                     \
  X(cuFuncSetAttribute, 9000) X(cuFuncGetParamInfo, 12040) X(cuLaunchKernelEx, 11060)                            \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050) X(cuOccupancyMaxActiveClusters, 11070)                   \
  X(cuGraphCreate, 10000) X(cuGraphDestroy, 10000) X(cuGraphClone, 10000)                                       \
  X(cuGraphConditionalHandleCreate, 12030) X(cuGraphAddNode, 12030) X(cuGraphDestroyNode, 10000)                \
  X(cuGraphAddDependencies, 12030) X(cuGraphRemoveDependencies, 12030) X(cuGraphGetNodes, 10000)                \
  X(cuGraphGetEdges, 12030) X(cuGraphNodeGetType, 10000) X(cuGraphKernelNodeGetParams, 12000)                   \
  X(cuGraphKernelNodeSetParams, 12000) X(cuGraphKernelNodeGetAttribute, 11000)                                  \
  X(cuGraphKernelNodeSetAttribute, 11000) X(cuGraphKernelNodeCopyAttributes, 11000)                             \
  X(cuGraphMemcpyNodeGetParams, 10000) X(cuGraphMemsetNodeGetParams, 10000) X(cuGraphHostNodeGetParams, 10000)  \
  X(cuGraphChildGraphNodeGetGraph, 10000) X(cuGraphEventRecordNodeGetEvent, 11010)                              \
  X(cuGraphEventWaitNodeGetEvent, 11010) X(cuGraphMemAllocNodeGetParams, 11040)                                 \
  X(cuGraphMemFreeNodeGetParams, 11040) X(cuGraphBatchMemOpNodeGetParams, 11070)                                \
  X(cuGraphExternalSemaphoresSignalNodeGetParams, 11020)                                                        \
  X(cuGraphExternalSemaphoresWaitNodeGetParams, 11020) X(cuGraphInstantiateWithParams, 12000) X(cuGraphUpload, 11010)         \
  X(cuGraphLaunch, 10000) X(cuGraphExecDestroy, 10000) X(cuGraphExecUpdate, 12000)                              \
  X(cuGraphExecGetFlags, 12000)                                                                                 \
  X(cuGraphExecKernelNodeSetParams, 12000) X(cuGraphExecMemcpyNodeSetParams, 10020)                             \
  X(cuGraphExecMemsetNodeSetParams, 10020) X(cuGraphExecHostNodeSetParams, 10020)                               \
  X(cuGraphExecChildGraphNodeSetParams, 11010) X(cuGraphExecEventRecordNodeSetEvent, 11010)                     \
  X(cuGraphExecEventWaitNodeSetEvent, 11010) X(cuGraphExecBatchMemOpNodeSetParams, 11070)                       \
  X(cuGraphNodeSetEnabled, 11060) X(cuGraphNodeGetEnabled, 11060)    \
  X(cuDeviceGetDevResource, 12040) X(cuCtxGetDevResource, 12040) X(cuDevSmResourceSplitByCount, 12040)          \
  X(cuDevResourceGenerateDesc, 12040) X(cuGreenCtxCreate, 12040) X(cuGreenCtxDestroy, 12040)                    \
  X(cuCtxFromGreenCtx, 12040)                                                                                   \
  X(cuUserObjectCreate, 11030) X(cuUserObjectRetain, 11030) X(cuUserObjectRelease, 11030)                       \
  X(cuGraphRetainUserObject, 11030) X(cuGraphReleaseUserObject, 11030)                                          \
  X(cuDeviceGetGraphMemAttribute, 11040) X(cuDeviceGraphMemTrim, 11040)
// clang-format on

#define ONE(entry, ...) +1
constexpr size_t kOptionalEntries = 0 NODEWRIGHT_OPTIONAL_ENTRIES(ONE);
#undef ONE
constexpr size_t kRequiredEntries = static_cast<size_t>(DriverEntry::kCount) - kOptionalEntries;

TEST(DriverForms, CoverEveryEntry) {
#define ROW(entry, version) {#entry, version},
  constexpr struct {
    const char* entry;
    int version;
  } kForms[] = {FORMS(ROW)};
#undef ROW
  ASSERT_EQ(std::size(kForms), kRequiredEntries);
  for (size_t i = 0; i < std::size(kForms); ++i) {
    EXPECT_EQ(kForms[i].entry, entry_name(static_cast<DriverEntry>(i)));
    EXPECT_LE(kForms[i].version, version_of_form(kForms[i].entry)) << kForms[i].entry;
  }
}

// A newer form than the one declared, up to the version that is asked for, is what the driver would give.
// Reads the header that the build saw, which a GPU machine need not have.
TEST(DriverFormsOnCpuDriver, NoNewerFormIsAskedFor) {
  std::ifstream file(NODEWRIGHT_CUDA_INCLUDE_DIR "/cudaTypedefs.h");
  ASSERT_TRUE(file) << "no cudaTypedefs.h beside cuda.h";
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  size_t found = 0;
#define ROW(entry, version) {#entry, version},
  for (const auto& [entry, version] : std::initializer_list<std::pair<std::string, int>>{FORMS(ROW)}) {
#undef ROW
    const std::regex forms("PFN_" + entry + "_v([0-9]+)\\)");
    int given = 0;
    for (std::sregex_iterator form(text.begin(), text.end(), forms), end; form != end; ++form)
      if (const int v = std::stoi((*form)[1]); v <= version_of_form(entry)) given = std::max(given, v);
    EXPECT_EQ(given, version) << entry;
    ++found;
  }
  EXPECT_EQ(found, kRequiredEntries);
}

#if __has_include(<cudaTypedefs.h>)
// #entry's own name is the argument of an inner macro: PFN_cuMemAlloc_v3020, not PFN_cuMemAlloc_v2_v3020.
#define SAME_FORM(entry, version) static_assert(std::is_same_v<decltype(&::entry), PFN_##entry##_v##version>, #entry);
FORMS(SAME_FORM)
#undef SAME_FORM
#endif

}  // namespace
}  // namespace nodewright
