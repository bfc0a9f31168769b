// cuda.h, with the names of CUDA 13 for the forms of its entries: what the CPU driver defines under a name is the form
// that Driver asks for (runtime/driver.h).
#pragma once

#include <cuda.h>

#if CUDA_VERSION < 13000
#define cuGraphAddNode cuGraphAddNode_v2
#define cuGraphAddDependencies cuGraphAddDependencies_v2
#define cuGraphRemoveDependencies cuGraphRemoveDependencies_v2
#define cuGraphGetEdges cuGraphGetEdges_v2
#define cuEventElapsedTime cuEventElapsedTime_v2
#endif
