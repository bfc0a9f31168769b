// ClusterProbe: one thread of each block tells all blocks of the cluster its block.
#include "kernels_src/device/cluster.cuh"
#include "tests/graph/kernels/blend.h"

NODEWRIGHT_KERNEL(cluster_probe, ClusterProbe, kBlendThreads) {
  uint32_t* told = reinterpret_cast<uint32_t*>(shared_memory());
  const int rank = cluster_rank(), blocks = static_cast<int>(args.cluster_blocks);
  cluster_arrive();
  wait_for_inputs();
  cluster_wait();
  if (threadIdx.x == 0)
    for (int to = 0; to < blocks; ++to) store_to_block(to, told + rank, static_cast<uint32_t>(blockIdx.x));
  cluster_arrive();
  cluster_wait();
  if (threadIdx.x == 0)
    args.y.data[blockIdx.x] = load_from_block((rank + 1) % blocks, told + rank / 2) + told[0] * 1000u;
  cluster_arrive();
  cluster_wait();
}
