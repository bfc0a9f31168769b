// From which compute capability on the kernels use a form of hardware, as __CUDA_ARCH__ has it: 100 times the major and
// 10 times the minor number. Kernels are compiled by it, and the host chooses kernels and launches by it.
#pragma once

// CUDA C++ Programming Guide, "Thread Block Clusters" and "Programmatic Dependent Launch and Synchronization"; PTX ISA,
// cp.async.bulk.
#define NODEWRIGHT_CLUSTERS_FROM 900
#define NODEWRIGHT_PROGRAMMATIC_LAUNCH_FROM 900
#define NODEWRIGHT_BULK_COPIES_FROM 900
