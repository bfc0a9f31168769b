#include "runtime/libraries/nccl_collectives.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "runtime/context_guard.h"
#include "runtime/error.h"
#include "runtime/memory/memory.h"
#include "runtime/stream.h"

namespace nodewright {
namespace {

// What is gathered once to have NCCL connect the ranks, which it does at the first call of a kind: few bytes of one
// kind and many of another. A captured call that had to connect would wait for ranks that are captured later.
constexpr uint64_t kConnectBytes[] = {uint64_t{4} << 10, uint64_t{256} << 10, uint64_t{8} << 20};

}  // namespace

nccl::UniqueId NcclCollectives::new_id(const NcclLibrary& library) {
  nccl::UniqueId id{};
  library.check(library.entries().GetUniqueId(&id), "ncclGetUniqueId", "begin a group of", "ranks", nullptr);
  return id;
}

std::vector<std::unique_ptr<NcclCollectives>> NcclCollectives::of_devices(std::shared_ptr<const NcclLibrary> library,
                                                                          std::span<Device* const> devices) {
  std::vector<std::unique_ptr<NcclCollectives>> all;
  std::vector<NcclCollectives*> of_process;
  const nccl::Entries& entries = library->entries();
  const nccl::UniqueId id = new_id(*library);
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    all.push_back(std::unique_ptr<NcclCollectives>(new NcclCollectives(library, *devices[rank], rank, devices.size())));
    of_process.push_back(all.back().get());
  }
  library->check(entries.GroupStart(), "ncclGroupStart", "join", "all ranks", nullptr);
  for (NcclCollectives* one : of_process) one->join(id);
  library->check(entries.GroupEnd(), "ncclGroupEnd", "join", "all ranks", nullptr);
  connect(of_process);
  return all;
}

NcclCollectives::NcclCollectives(std::shared_ptr<const NcclLibrary> library, Device& device, size_t rank, size_t ranks)
    : library_(std::move(library)),
      device_(device),
      rank_(rank),
      ranks_(ranks),
      name_(fmt::format("rank {} of {}", rank, ranks)) {}

NcclCollectives::NcclCollectives(std::shared_ptr<const NcclLibrary> library, Device& device, const nccl::UniqueId& id,
                                 size_t rank, size_t ranks)
    : NcclCollectives(std::move(library), device, rank, ranks) {
  join(id);
  NcclCollectives* const own = this;
  connect(std::span(&own, 1));
}

NcclCollectives::~NcclCollectives() {
  if (aborting_.joinable())
    aborting_.join();
  else if (comm_ != nullptr)
    library_->entries().CommDestroy(comm_);
}

void NcclCollectives::join(const nccl::UniqueId& id) {
  const ContextGuard current(device_);
  library_->check(library_->entries().CommInitRank(&comm_, static_cast<int>(ranks_), id, static_cast<int>(rank_)),
                  "ncclCommInitRank", "join as", name_, nullptr);
}

void NcclCollectives::connect(std::span<NcclCollectives* const> of_process) {
  const NcclLibrary& library = *of_process[0]->library_;
  struct Ends {
    DeviceBuffer from, to;
    Stream stream;
  };
  std::vector<Ends> ends;
  const uint64_t most = std::end(kConnectBytes)[-1];
  for (NcclCollectives* one : of_process) {
    ends.push_back({DeviceBuffer(one->device_, "connect.from", most),
                    DeviceBuffer(one->device_, "connect.to", most * one->ranks_), Stream(one->device_, "connect")});
    fill_device(one->device_, ends.back().from.address(), std::byte{0}, most, "connect.from");
  }
  for (const uint64_t bytes : kConnectBytes) {
    library.check(library.entries().GroupStart(), "ncclGroupStart", "connect", "all ranks", nullptr);
    for (size_t i = 0; i < ends.size(); ++i)
      of_process[i]->all_gather(ends[i].stream.get(), ends[i].from.address(), ends[i].to.address(), bytes);
    library.check(library.entries().GroupEnd(), "ncclGroupEnd", "connect", "all ranks", nullptr);
  }
  for (const Ends& one : ends) one.stream.synchronize();
}

void NcclCollectives::all_gather(CUstream stream, CUdeviceptr from, CUdeviceptr to, uint64_t bytes) {
  if (given_up())
    throw Error({.doing = "gather as", .object = name_, .detail = "the group was given up", .advice = "start again"});
  const ContextGuard current(device_);
  library_->check(library_->entries().AllGather(reinterpret_cast<const void*>(from), reinterpret_cast<void*>(to), bytes,
                                                nccl::kInt8, comm_, stream),
                  "ncclAllGather", "gather as", name_, comm_);
}

void NcclCollectives::all_gather_on_host(const void*, void*, uint64_t) {
  throw Error({.doing = "gather as",
               .object = name_,
               .detail = "NCCL gathers from GPUs alone",
               .advice = "exchanges by packets, which the CPU driver runs"});
}

void NcclCollectives::give_up() noexcept {
  if (given_up_.exchange(true) || comm_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  aborting_ = std::thread([this] { library_->entries().CommAbort(comm_); });
}

}  // namespace nodewright
