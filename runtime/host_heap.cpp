#include "runtime/host_heap.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace nodewright {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;

}  // namespace

uint64_t prefer_huge_heap(uint64_t bytes) {
#ifdef __GLIBC__
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // glibc's largest
  mallopt(M_TOP_PAD, static_cast<int>(std::min<uint64_t>(bytes, std::numeric_limits<int>::max())));
  const auto begin = (reinterpret_cast<uint64_t>(sbrk(0)) + kHugePage - 1) / kHugePage * kHugePage;
  const uint64_t more_than_is_free = mallinfo2().fordblks + kHugePage;
  void* volatile grows_the_heap = std::malloc(more_than_is_free);  // volatile: or the compiler drops malloc and free
  std::free(grows_the_heap);
  mallopt(M_TOP_PAD, kHugePage);
  const auto end = reinterpret_cast<uint64_t>(sbrk(0)) / kHugePage * kHugePage;
  if (end > begin && madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE) == 0) return end - begin;
#endif
  return 0;
}

}  // namespace nodewright
