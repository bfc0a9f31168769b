// The driver entries Nodewright calls: the one list from which the table, the interposer, the trace and the CPU
// driver's export check are made. Names are the driver's; cuda.h maps them to the versions of CUDA 13.
#pragma once

#define NODEWRIGHT_DRIVER_ENTRIES(X)                                                                                  \
  X(cuInit)                                                                                                           \
  X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString) X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName)   \
      X(cuDeviceGetAttribute) X(cuDeviceTotalMem) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease)            \
          X(cuCtxSetCurrent) X(cuCtxGetCurrent) X(cuCtxSynchronize) X(cuMemGetInfo) X(cuMemAlloc) X(cuMemFree) X(     \
              cuMemHostAlloc) X(cuMemFreeHost) X(cuMemHostGetDevicePointer) X(cuMemcpyHtoD) X(cuMemcpyDtoH)           \
              X(cuMemcpyDtoD) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuMemcpy2DAsync) X(    \
                  cuMemsetD8) X(cuMemsetD8Async) X(cuMemsetD32Async) X(cuStreamCreate) X(cuStreamDestroy)             \
                  X(cuStreamSynchronize) X(cuStreamQuery) X(cuStreamWaitEvent) X(cuStreamBeginCapture) X(             \
                      cuStreamBeginCaptureToGraph) X(cuStreamEndCapture) X(cuStreamIsCapturing) X(cuLaunchHostFunc)   \
                      X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventSynchronize) X(cuEventQuery)       \
                          X(cuEventElapsedTime) X(cuLibraryLoadData) X(cuLibraryUnload) X(cuLibraryGetKernel) X(      \
                              cuKernelGetFunction) X(cuKernelGetAttribute) X(cuKernelSetAttribute)                    \
                              X(cuKernelGetParamInfo) X(cuFuncGetAttribute) X(cuFuncSetAttribute) X(cuLaunchKernelEx) \
                                  X(cuOccupancyMaxActiveBlocksPerMultiprocessor) X(cuGraphCreate) X(cuGraphDestroy)   \
                                      X(cuGraphClone) X(cuGraphAddNode) X(cuGraphAddDependencies) X(cuGraphGetNodes)  \
                                          X(cuGraphGetEdges) X(cuGraphNodeGetType) X(cuGraphKernelNodeGetParams)      \
                                              X(cuGraphKernelNodeSetParams) X(cuGraphKernelNodeGetAttribute)          \
                                                  X(cuGraphKernelNodeSetAttribute) X(cuGraphMemcpyNodeGetParams)      \
                                                      X(cuGraphMemsetNodeGetParams) X(cuGraphInstantiateWithParams)   \
                                                          X(cuGraphUpload) X(cuGraphLaunch) X(cuGraphExecDestroy)     \
                                                              X(cuGraphExecKernelNodeSetParams)                       \
                                                                  X(cuGraphExecMemcpyNodeSetParams)                   \
                                                                      X(cuGraphExecMemsetNodeSetParams) X(            \
                                                                          cuGraphExecUpdate) X(cuGraphNodeSetEnabled) \
                                                                          X(cuGraphNodeGetEnabled)                    \
                                                                              X(cuGraphConditionalHandleCreate)       \
                                                                                  X(cuDeviceGraphMemTrim)
