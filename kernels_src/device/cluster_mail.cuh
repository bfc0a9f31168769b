// Values that the blocks of a cluster send each other in rounds, with no barrier of the cluster but at the start: a
// store to another block's shared memory counts its bytes at a barrier there (PTX ISA, st.async, mbarrier). The CPU
// driver stores and has a barrier of the cluster each round.
#pragma once

#include "kernels_src/device/bulk_copies.cuh"
#include "kernels_src/device/cluster.cuh"

namespace nodewright {

// kCount values of type T, 8 bytes, come to each block in a round. Every thread of the cluster's blocks calls
// everything but send() and got(), in this order: open() once, then for each round send() as often as all blocks
// together fill all places, close(), wait(), got(). Between got() and the next send(), all threads of a block meet.
//
// A block sends round r when it has read round r - 1, which says that the others have read round r - 2: the places of
// two rounds are enough.
template <class T, int kCount>
struct ClusterMail {
  static_assert(sizeof(T) == 8);
  static constexpr int kPlaces = 2 * kCount * static_cast<int>(sizeof(T));  // bytes, of two rounds
  static constexpr int kBytes = kPlaces + 16;                               // and their barriers

  T* places;  // [2][kCount]
  unsigned round = 0;

  // `shared`: kBytes, aligned to 8. The other blocks learn that this one has started.
  NODEWRIGHT_DEVICE explicit ClusterMail(unsigned char* shared) : places(reinterpret_cast<T*>(shared)) {
    if constexpr (kHasBulkCopies) {
      if (threadIdx.x == 0) {
        barrier(0).init(1);
        barrier(1).init(1);
        CopyBarrier::publish();
      }
    }
    cluster_arrive_relaxed();
  }
  // Waits until all blocks have started.
  NODEWRIGHT_DEVICE void open() { cluster_wait(); }

  NODEWRIGHT_DEVICE void send(int rank, int place, T value) {
    T* const to = places + round % 2 * kCount + place;
    if constexpr (kHasBulkCopies)
      store_and_count(rank, to, barrier(round).address, value);
    else
      store_to_block(rank, to, value);
  }
  NODEWRIGHT_DEVICE void close() {
    if constexpr (!kHasBulkCopies)
      cluster_arrive();
    else if (threadIdx.x == 0)
      barrier(round).arrive_and_expect(kPlaces / 2);
    ++round;
  }
  NODEWRIGHT_DEVICE void wait() {
    if constexpr (kHasBulkCopies)
      barrier(round - 1).wait_for_cluster((round - 1) / 2);
    else
      cluster_wait();
  }
  NODEWRIGHT_DEVICE T got(int place) const { return places[(round - 1) % 2 * kCount + place]; }

 private:
  NODEWRIGHT_DEVICE CopyBarrier barrier(unsigned of_round) const {
    return {shared_address(reinterpret_cast<const unsigned char*>(places) + kPlaces) + 8 * (of_round % 2)};
  }
};

}  // namespace nodewright
