#include "engine/sampling/seeds.h"

#include <random>

namespace nodewright {

uint64_t random_seed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014), its stream-th number.
uint64_t derived_seed(uint64_t seed, uint64_t stream) {
  uint64_t z = seed + 0x9e3779b97f4a7c15 * (stream + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace nodewright
