// How a program that builds graphs should keep its heap.
#pragma once

#include <cstdint>

namespace nodewright {

inline constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;  // x86-64
inline constexpr uint64_t kHeapBytes = uint64_t{256} << 20;    // of a large program

// Lets the next `bytes` of the heap lie in pages of 2 MiB, keeps freed memory, and bounds malloc's arenas to eight
// (each keeps the most that any thread has used of it): call it first in main(). Plans and the driver's graphs are many
// small allocations, and most of what building them costs is the faults of fresh pages of 4 KiB: with this, 102 graphs
// of 101 nodes take 47 ms instead of 88 (medians of three; one H200, driver 580.159.04, 2026-11-21;
// bench/results/2026-11-21-h200-heap.txt). Nothing is resident until it is used.
//
// Returns how many bytes were advised: 0 where malloc is not glibc's or takes none of its memory from the heap, or the
// system knows no huge pages. Nothing is wrong then, and freed memory is kept all the same.
uint64_t prefer_huge_heap(uint64_t bytes = kHeapBytes);

// What a program with a hundred decode graphs of a hundred nodes takes of its heap.
inline constexpr uint64_t kGraphsBytes = uint64_t{160} << 20;

// Makes the first `bytes` of those resident in a thread of its own, in the time that opening a device takes anyway: of
// building those 102 graphs 31 ms are left, and the worst takes 7.6 us a node instead of 12.5 (the same file, 128 MiB
// filled). For a program that will build many graphs; at most once.
void fill_huge_heap(uint64_t bytes = kGraphsBytes);

// From now on freed memory goes back to the system: blocks of 1 MiB and more at once, smaller ones where an arena ends
// in 4 MiB of them. For a server that has built its graphs, whose clients send large bodies.
void return_freed_memory();

}  // namespace nodewright
