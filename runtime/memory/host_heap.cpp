#include "runtime/memory/host_heap.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <system_error>
#include <thread>

namespace nodewright {
namespace {

struct Range {
  uint64_t begin = 0, end = 0;
};
Range advised;  // by the first call in main(), before there is a second thread

}  // namespace

uint64_t prefer_huge_heap(uint64_t bytes) {
#ifdef __GLIBC__
  mallopt(M_ARENA_MAX, 8);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // glibc's largest
  mallopt(M_TOP_PAD, static_cast<int>(std::min<uint64_t>(bytes, std::numeric_limits<int>::max())));
  const auto begin = (reinterpret_cast<uint64_t>(sbrk(0)) + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  const uint64_t more_than_is_free = mallinfo2().fordblks + kHugePageBytes;
  void* volatile grows_the_heap = std::malloc(more_than_is_free);  // volatile: or the compiler drops malloc and free
  std::free(grows_the_heap);
  mallopt(M_TOP_PAD, kHugePageBytes);
  const auto end = reinterpret_cast<uint64_t>(sbrk(0)) / kHugePageBytes * kHugePageBytes;
  if (end > begin && madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE) == 0) advised = {begin, end};
#endif
  return advised.end - advised.begin;
}

void fill_huge_heap(uint64_t bytes) {
  const uint64_t wanted = std::min(bytes, advised.end - advised.begin);
  if (wanted == 0) return;
  // The thread may outlive everything: it changes no byte, and a heap that has shrunk is an error that it ignores.
  try {
    std::thread([wanted] { madvise(reinterpret_cast<void*>(advised.begin), wanted, MADV_POPULATE_WRITE); }).detach();
  } catch (const std::system_error&) {  // then the first use of a page fills it
  }
}

void return_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_TRIM_THRESHOLD, 4 << 20);
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
}

}  // namespace nodewright
