// How many blocks of how many threads a kernel runs with; made by the host function beside each kernel's arguments.
#pragma once

namespace nodewright {

// The grid of a launch.
struct LaunchShape {
  unsigned grid[3] = {1, 1, 1};   // blocks; y and z at most 65535
  unsigned block[3] = {1, 1, 1};  // threads; the product within the kernel's launch bounds
  unsigned shared_bytes = 0;      // dynamic shared memory of one block
  // Blocks that run together (device/cluster.cuh), from compute capability 9.0 on; each divides the grid's.
  unsigned cluster[3] = {1, 1, 1};
  int shared_carveout_percent = -1;  // of an SM's L1, preferred as shared memory; -1: the driver's choice

  // Blocks of the grid, blocks of a cluster, threads of a block.
  constexpr unsigned long long blocks() const { return 1ull * grid[0] * grid[1] * grid[2]; }
  constexpr unsigned cluster_blocks() const { return cluster[0] * cluster[1] * cluster[2]; }
  constexpr unsigned long long threads() const { return 1ull * block[0] * block[1] * block[2]; }
  constexpr bool operator==(const LaunchShape&) const = default;
};

// A number that a kernel is compiled for, by the name that its source has for it.
struct ShapeConstant {
  const char* name;  // in the source
  long long value;   // a `long long` there
};
template <int N>
struct ShapeConstants {
  ShapeConstant of[N];  // one constant each
};

// The usual case: a row of blocks, a row of threads.
constexpr LaunchShape launch_shape_1d(unsigned blocks, unsigned threads, unsigned shared_bytes = 0) {
  return LaunchShape{{blocks, 1, 1}, {threads, 1, 1}, shared_bytes};
}

}  // namespace nodewright
