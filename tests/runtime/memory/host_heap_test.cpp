#include "runtime/memory/host_heap.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace nodewright {
namespace {

// Bytes of [heap] that the system may put into huge pages: the flag "hg" of /proc/self/smaps.
uint64_t advised_bytes_of_the_heap() {
  std::ifstream maps("/proc/self/smaps");
  uint64_t begin = 0, end = 0, advised = 0;
  bool heap = false;
  for (std::string line; std::getline(maps, line);) {
    char* rest = nullptr;
    const uint64_t first = std::strtoull(line.c_str(), &rest, 16);
    if (rest != line.c_str() && *rest == '-') {
      begin = first;
      end = std::strtoull(rest + 1, nullptr, 16);
      heap = line.ends_with("[heap]");
    } else if (heap && line.starts_with("VmFlags:") && line.find(" hg") != std::string::npos) {
      advised += end - begin;
    }
  }
  return advised;
}

TEST(HugeHeap, TheSystemWasAdvisedAsManyBytesAsTheCallSays) {
  constexpr uint64_t kBytes = uint64_t{16} << 20;
  const uint64_t before = advised_bytes_of_the_heap(), free_bytes = mallinfo2().fordblks;
  const auto* end = static_cast<const std::byte*>(sbrk(0));
  const uint64_t advised = prefer_huge_heap(kBytes);
  const bool heap_grew = static_cast<const std::byte*>(sbrk(0)) - end >= static_cast<std::ptrdiff_t>(kBytes);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr bool kHeapIsMallocs = false;  // a sanitizer's malloc takes nothing from the heap
#else
  constexpr bool kHeapIsMallocs = true;
#endif
  if (!kHeapIsMallocs) {
    EXPECT_EQ(advised, 0u);
  } else if (advised != 0 || heap_grew) {  // some containers let no heap grow
    EXPECT_GE(advised, kBytes - (uint64_t{4} << 20));
    EXPECT_LE(advised, kBytes + free_bytes + (uint64_t{4} << 20));
  }
  EXPECT_EQ(advised_bytes_of_the_heap() - before, advised);
  const std::vector<int> numbers(100000, 7);  // on the heap: filling it changes no byte
  fill_huge_heap(advised);
  fill_huge_heap(2 * kBytes);
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), 7), 100000);
}

}  // namespace
}  // namespace nodewright
