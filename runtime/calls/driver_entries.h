// The driver entries Nodewright calls: the one list from which the table, the interposer, the trace and the CPU
// driver's export check are made. Names are the driver's; cuda.h maps them to the versions of CUDA 13.
#pragma once

#include <cuda.h>

// clang-format off
#define NODEWRIGHT_DRIVER_ENTRIES(X)                                                                                 \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString)                                              \
  X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName) X(cuDeviceGetAttribute) X(cuDeviceTotalMem)                  \
  X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease)                                                           \
  X(cuCtxSetCurrent) X(cuCtxGetCurrent) X(cuCtxGetDevice) X(cuCtxSynchronize) X(cuCtxGetStreamPriorityRange)         \
  X(cuDeviceCanAccessPeer) X(cuDeviceGetP2PAttribute) X(cuCtxEnablePeerAccess) X(cuCtxDisablePeerAccess)             \
  X(cuMemGetInfo) X(cuMemAlloc) X(cuMemFree) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemHostGetDevicePointer)         \
  X(cuMemHostRegister) X(cuMemHostUnregister) X(cuMemAllocAsync) X(cuMemFreeAsync) X(cuPointerGetAttributes)         \
  X(cuArrayCreate) X(cuArray3DCreate) X(cuArrayDestroy) X(cuArray3DGetDescriptor)                                    \
  X(cuMemcpyHtoD) X(cuMemcpyDtoH) X(cuMemcpyDtoD)                                                                    \
  X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuMemcpy2DAsync) X(cuMemcpy3DAsync)               \
  X(cuMemcpyPeerAsync)                                                                                               \
  X(cuMemsetD8) X(cuMemsetD8Async) X(cuMemsetD16Async) X(cuMemsetD32Async)                                           \
  X(cuMemsetD2D8Async) X(cuMemsetD2D16Async) X(cuMemsetD2D32Async)                                                   \
  X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamQuery) X(cuStreamWaitEvent)                  \
  X(cuStreamBeginCapture) X(cuStreamBeginCaptureToGraph) X(cuStreamEndCapture) X(cuStreamIsCapturing)                \
  X(cuLaunchHostFunc) X(cuStreamBatchMemOp)                                                                          \
  X(cuImportExternalSemaphore) X(cuDestroyExternalSemaphore)                                                         \
  X(cuSignalExternalSemaphoresAsync) X(cuWaitExternalSemaphoresAsync)                                                \
  X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventRecordWithFlags)                                      \
  X(cuEventSynchronize) X(cuEventQuery) X(cuEventElapsedTime)                                                        \
  X(cuLibraryLoadData) X(cuLibraryUnload) X(cuLibraryGetKernel)                                                      \
  X(cuKernelGetFunction) X(cuKernelGetAttribute) X(cuKernelSetAttribute) X(cuKernelGetParamInfo)                     \
  X(cuKernelGetName) X(cuFuncGetName)                                                                                \
  X(cuFuncGetAttribute) X(cuFuncSetAttribute) X(cuFuncGetParamInfo)                                                  \
  X(cuLaunchKernelEx) X(cuOccupancyMaxActiveBlocksPerMultiprocessor) X(cuOccupancyMaxActiveClusters)                 \
  X(cuGraphCreate) X(cuGraphDestroy) X(cuGraphClone) X(cuGraphConditionalHandleCreate)                               \
  X(cuGraphAddNode) X(cuGraphDestroyNode) X(cuGraphAddDependencies) X(cuGraphRemoveDependencies)                     \
  X(cuGraphGetNodes) X(cuGraphGetEdges) X(cuGraphNodeGetType)                                                        \
  X(cuGraphKernelNodeGetParams) X(cuGraphKernelNodeSetParams)                                                        \
  X(cuGraphKernelNodeGetAttribute) X(cuGraphKernelNodeSetAttribute) X(cuGraphKernelNodeCopyAttributes)               \
  X(cuGraphMemcpyNodeGetParams) X(cuGraphMemsetNodeGetParams) X(cuGraphHostNodeGetParams)                            \
  X(cuGraphChildGraphNodeGetGraph) X(cuGraphEventRecordNodeGetEvent) X(cuGraphEventWaitNodeGetEvent)                 \
  X(cuGraphMemAllocNodeGetParams) X(cuGraphMemFreeNodeGetParams) X(cuGraphBatchMemOpNodeGetParams)                   \
  X(cuGraphExternalSemaphoresSignalNodeGetParams) X(cuGraphExternalSemaphoresWaitNodeGetParams)                      \
  X(cuGraphInstantiateWithParams) X(cuGraphUpload) X(cuGraphLaunch) X(cuGraphExecDestroy) X(cuGraphExecUpdate)       \
  X(cuGraphExecGetFlags)                                                                                             \
  X(cuGraphExecKernelNodeSetParams) X(cuGraphExecMemcpyNodeSetParams) X(cuGraphExecMemsetNodeSetParams)              \
  X(cuGraphExecHostNodeSetParams) X(cuGraphExecChildGraphNodeSetParams)                                              \
  X(cuGraphExecEventRecordNodeSetEvent) X(cuGraphExecEventWaitNodeSetEvent)                                          \
  X(cuGraphExecBatchMemOpNodeSetParams)                                                                              \
  X(cuGraphNodeSetEnabled) X(cuGraphNodeGetEnabled)                                                                  \
  X(cuDeviceGetDevResource) X(cuCtxGetDevResource) X(cuDevSmResourceSplitByCount) X(cuDevResourceGenerateDesc)        \
  X(cuGreenCtxCreate) X(cuGreenCtxDestroy) X(cuCtxFromGreenCtx)                                                      \
  X(cuUserObjectCreate) X(cuUserObjectRetain) X(cuUserObjectRelease)                                                 \
  X(cuGraphRetainUserObject) X(cuGraphReleaseUserObject)                                                             \
  X(cuDeviceGetGraphMemAttribute) X(cuDeviceGraphMemTrim)

// Entries that a driver may lack: the version of CUDA that has brought each, and its parameters, which the headers that
// Nodewright is built with need not declare.
#define NODEWRIGHT_OPTIONAL_ENTRIES(X)                                                                               \
  X(cuGraphGetId, 13010, (CUgraph, unsigned*))                                                                       \
  X(cuGraphExecGetId, 13010, (CUgraphExec, unsigned*))                                                               \
  X(cuGraphNodeGetLocalId, 13010, (CUgraphNode, unsigned*))                                                          \
  X(cuGraphNodeGetToolsId, 13010, (CUgraphNode, unsigned long long*))                                                \
  X(cuGraphNodeGetParams, 13020, (CUgraphNode, CUgraphNodeParams*))                                                  \
  X(cuFuncGetParamCount, 13020, (CUfunction, size_t*))                                                               \
  X(cuKernelGetParamCount, 13020, (CUkernel, size_t*))                                                               \
  X(cuStreamBeginRecaptureToGraph, 13030,                                                                            \
    (CUstream, CUstreamCaptureMode, CUgraph, nodewright::RecaptureCallback, void*))
// clang-format on

namespace nodewright {

// Types of cuStreamBeginRecaptureToGraph (CUDA 13.3), which older headers do not declare, as cuda.h of CUDA 13.5 has
// them.
#if CUDA_VERSION >= 13030
using RecaptureStatus = ::CUgraphRecaptureStatus;
using RecaptureCallback = ::CUgraphRecaptureCallback;
#else
enum RecaptureStatus : unsigned {};
using RecaptureCallback = CUresult (*)(void* data, CUgraphNode node, const CUgraphNodeParams* before,
                                       const CUgraphNodeParams* after, RecaptureStatus status);
#endif

// CU_GRAPH_RECAPTURE_...: whether an instantiated graph can take the change, or that the node cannot be recaptured.
inline constexpr auto kRecaptureEligible = static_cast<RecaptureStatus>(0);
inline constexpr auto kRecaptureIneligible = static_cast<RecaptureStatus>(1);
inline constexpr auto kRecaptureError = static_cast<RecaptureStatus>(2);
// CUDA_ERROR_GRAPH_RECAPTURE_FAILURE
inline constexpr auto kRecaptureFailure = static_cast<CUresult>(918);

}  // namespace nodewright
