// NCCL as a library of entries: what is said of one that is not there or refuses; and what a group of ranks
// does with calls that a test stands in for. The real one: tests/engine/ranks/nccl_test.cpp.
#include <cstdlib>
#include <cstring>

#include "runtime/device_selection.h"
#include "runtime/libraries/nccl_collectives.h"
#include "tests/support/error_text.h"
#include "tests/support/test_device.h"

namespace nodewright {
namespace {

using namespace test;

// The entries of a library whose gathers copy on the host, of the CPU driver's memory, once all ranks of a group have
// called; and which fails on demand.
struct FakeNccl {
  static inline int version = 22803;
  static inline int joined = 0, destroyed = 0, aborted = 0, gathers = 0, depth = 0;
  static inline bool refuses = false;
  static void reset() { version = 22803, joined = destroyed = aborted = gathers = depth = 0, refuses = false; }

  static std::shared_ptr<const NcclLibrary> library() {
    nccl::Entries entries;
    entries.GetVersion = [](int* to) { return *to = version, 0; };
    entries.GetErrorString = [](nccl::Result) { return "unhandled system error"; };
    entries.GetLastError = [](nccl::Comm) { return "no route to the other rank"; };
    entries.GetUniqueId = [](nccl::UniqueId* id) { return std::memset(id, 7, sizeof *id), 0; };
    entries.CommInitRank = [](nccl::Comm* comm, int, nccl::UniqueId id, int rank) {
      if (refuses || id.bytes[127] != 7) return 2;
      *comm = reinterpret_cast<nccl::Comm>(static_cast<uintptr_t>(rank + 1));
      return ++joined, 0;
    };
    entries.CommDestroy = [](nccl::Comm) { return ++destroyed, 0; };
    entries.CommAbort = [](nccl::Comm) { return ++aborted, 0; };
    entries.GroupStart = [] { return ++depth, 0; };
    entries.GroupEnd = [] { return --depth, 0; };
    entries.AllGather = [](const void*, void*, size_t, int type, nccl::Comm comm, void*) {
      return ++gathers, comm != nullptr && type == nccl::kInt8 ? 0 : 4;
    };
    return NcclLibrary::with_entries(entries, "fake");
  }
};

class Nccl : public testing::Test {
 protected:
  Nccl() : opened_(open_device("cpu")) { FakeNccl::reset(); }
  OpenedDevice opened_;
};

TEST_F(Nccl, ALibraryThatIsNotThereIsAnErrorThatNamesWhereItWasLookedFor) {
  setenv("NODEWRIGHT_NCCL", "/nowhere/libnccl.so.2", 1);
  expect_error([] { NcclLibrary::load(); }, {"load NCCL", "/nowhere/libnccl.so.2", "NODEWRIGHT_NCCL"});
  unsetenv("NODEWRIGHT_NCCL");
}

TEST_F(Nccl, SaysItsVersionInItsOwnWords) { EXPECT_EQ(FakeNccl::library()->version(), "2.28.3"); }

TEST_F(Nccl, AGroupJoinsConnectsAndEnds) {
  Device* const devices[] = {opened_.device.get(), opened_.device.get()};
  {
    const auto group = NcclCollectives::of_devices(FakeNccl::library(), devices);
    EXPECT_EQ(FakeNccl::joined, 2);
    EXPECT_EQ(FakeNccl::depth, 0);
    EXPECT_GE(FakeNccl::gathers, 2) << "ranks connect before anything is captured";
    for (size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(group[rank]->rank(), rank);
      EXPECT_EQ(group[rank]->ranks(), 2u);
    }
    expect_error([&] { group[1]->all_gather_on_host(nullptr, nullptr, 8); }, {"rank 1 of 2", "GPUs alone"});
  }
  EXPECT_EQ(FakeNccl::destroyed, 2);
  EXPECT_EQ(FakeNccl::aborted, 0);
}

TEST_F(Nccl, AGroupThatIsGivenUpIsAbortedOnceAndGathersNoMore) {
  Device* const devices[] = {opened_.device.get()};
  {
    const auto group = NcclCollectives::of_devices(FakeNccl::library(), devices);
    for (int i = 0; i < 3; ++i) group[0]->give_up();
    EXPECT_TRUE(group[0]->given_up());
    expect_error([&] { group[0]->all_gather(nullptr, 0, 0, 8); }, {"rank 0 of 1", "given up"});
  }
  EXPECT_EQ(FakeNccl::aborted, 1);
  EXPECT_EQ(FakeNccl::destroyed, 0);
}

TEST_F(Nccl, WhatItRefusesIsToldInItsWords) {
  FakeNccl::refuses = true;
  Device* const devices[] = {opened_.device.get()};
  expect_error(
      [&] { NcclCollectives::of_devices(FakeNccl::library(), devices); },
      {"ncclCommInitRank", "unhandled system error", "no route to the other rank", "NCCL 2.28.3", "NCCL_DEBUG"});
}

}  // namespace
}  // namespace nodewright
