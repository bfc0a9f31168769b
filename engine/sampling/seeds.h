// Seeds of sampling: an unpredictable one, and others that are derived from a seed.
#pragma once

#include <cstdint>

namespace nodewright {

// From the operating system.
uint64_t random_seed();

// Numbers that have nothing in common for neighbouring seeds and streams.
uint64_t derived_seed(uint64_t seed, uint64_t stream);

}  // namespace nodewright
