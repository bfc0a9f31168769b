#include "graph/team/team.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>

#include "runtime/context_guard.h"

namespace nodewright {
namespace {

[[noreturn]] void refuse_team(std::string detail, std::string advice) {
  throw Error({.doing = "make team", .object = "devices", .detail = std::move(detail), .advice = std::move(advice)});
}

std::string name_of(const Device& device) { return fmt::format("{} ({})", device.properties().ordinal, device.name()); }

// From now on kernels of `device` may use the memory of `peer`.
void allow_access(const Device& device, const Device& peer) {
  const Driver& driver = device.driver();
  int can = 0;
  driver.check(driver.cuDeviceCanAccessPeer(&can, device.get(), peer.get()), "cuDeviceCanAccessPeer",
               "ask for peer access of", device.name());
  if (can == 0)
    refuse_team(fmt::format("device {} cannot access the memory of device {}", name_of(device), name_of(peer)),
                "choose devices that NVLink or PCIe peer-to-peer connects (nvidia-smi topo -p2p w)");
  const ContextGuard current(device);
  const CUresult result = driver.cuCtxEnablePeerAccess(peer.context(), 0);
  if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
    driver.check(result, "cuCtxEnablePeerAccess", "allow peer access of", device.name());
}

}  // namespace

Team::Team(std::vector<Device*> devices) : devices_(std::move(devices)) {
  const size_t ranks = devices_.size();
  if (ranks < 2 || ranks > static_cast<size_t>(kMostRanks))
    refuse_team(fmt::format("{} of them, and a team has 2 to {} ranks", ranks, kMostRanks), "pass 2 to 8 devices");
  for (size_t a = 0; a < ranks; ++a)
    for (size_t b = a + 1; b < ranks; ++b) {
      if (&devices_[a]->driver() != &devices_[b]->driver())
        refuse_team(fmt::format("ranks {} and {} are of different drivers", a, b), "open all with one Driver");
      if (devices_[a]->get() == devices_[b]->get())
        refuse_team(fmt::format("ranks {} and {} are the same device, {}", a, b, name_of(*devices_[a])),
                    "pass each device once");
    }
  for (const Device* device : devices_)
    for (const Device* peer : devices_)
      if (device != peer) allow_access(*device, *peer);
}

TeamStream::TeamStream(Team& team, const std::string& name) {
  for (size_t rank = 0; rank < team.size(); ++rank) {
    owned_.push_back(std::make_unique<const Stream>(team.device(rank), fmt::format("{}@{}", name, rank)));
    streams_.push_back(owned_.back().get());
  }
}

void TeamStream::synchronize() const {
  std::exception_ptr first;
  for (const Stream* stream : streams_) {
    try {
      stream->synchronize();
    } catch (const Error&) {
      if (first == nullptr) first = std::current_exception();
    }
  }
  if (first != nullptr) std::rethrow_exception(first);
}

ExchangeMemory::ExchangeMemory(Team& team, std::string name, ExchangeSize size)
    : team_(&team),
      name_(std::move(name)),
      size_(size),
      aborted_(team.device(0), name_ + ".aborted", sizeof(uint32_t)) {
  if (size_.packets == 0 || size_.most == 0 || size_.most % 2 != 0)
    throw Error(
        {.doing = "make exchange memory",
         .object = name_,
         .detail = fmt::format("{} packets an exchange and at most {} exchanges a launch", size_.packets, size_.most),
         .advice = "pass at least one packet and an even number of exchanges"});
  aborted_.as<uint32_t>()[0] = 0;
  for (size_t rank = 0; rank < team.size(); ++rank) {
    packets_.emplace_back(team.device(rank), fmt::format("{}@{}", name_, rank), 2 * team.size() * packets_of_sender());
    words_.emplace_back(team.device(rank), fmt::format("{}.words@{}", name_, rank), 2);
  }
  clear();
  recover();
}

// Epoch 0 is of no exchange.
void ExchangeMemory::clear() {
  for (const DeviceArray<Packet>& packets : packets_)
    fill_device(packets.device(), packets.address(), std::byte{0}, packets.bytes(), packets.name());
}

View<Packet> ExchangeMemory::from_sender(size_t receiver, size_t sender, uint32_t number) const {
  const uint64_t row = (number % 2) * team_->size() + sender, count = packets_of_sender();
  return packets_.at(receiver).view().subview(row * count, count);
}

View<Packet> ExchangeMemory::packets(size_t receiver, size_t sender, uint32_t number, uint64_t count) const {
  check_subview(0, count, size_.packets);
  return from_sender(receiver, sender, number).subview(0, count);
}

View<Packet> ExchangeMemory::bulk(size_t receiver, size_t sender, uint32_t number, uint64_t values) const {
  check_subview(0, values, size_.bulk);
  const uint64_t first = packets_of_sender() - bulk_room();
  return from_sender(receiver, sender, number).subview(first, bulk_packets(values));
}

NamedRange ExchangeMemory::packet_range(size_t receiver) const {
  const DeviceArray<Packet>& packets = packets_.at(receiver);
  return {packets.name(), packets.address(), packets.bytes(), "workspace"};
}

View<uint32_t> ExchangeMemory::abort_word() const { return {aborted_.as<uint32_t>().data(), 1}; }
std::vector<NamedRange> ExchangeMemory::word_ranges(size_t rank) const {
  const View<uint32_t> launch = launch_number(rank), seen = seen_word(rank);
  return {{fmt::format("{}.launch@{}", name_, rank), launch.address(), launch.bytes(), "input"},
          {fmt::format("{}.seen@{}", name_, rank), seen.address(), seen.bytes(), "state"},
          {aborted_.name(), reinterpret_cast<uint64_t>(aborted_.data()), aborted_.bytes(), "input"}};
}

uint32_t ExchangeMemory::next_launch(const TeamStream& streams) {
  // The epochs of launch n end before (n + 1) * most.
  const uint32_t last = std::numeric_limits<uint32_t>::max() / size_.most - 1;
  if (next_ > last) {
    streams.synchronize();
    clear();
    next_ = 1;
  }
  return next_++;
}

void ExchangeMemory::give_up() { std::atomic_ref(aborted_.as<uint32_t>()[0]).store(1); }
bool ExchangeMemory::given_up() const { return std::atomic_ref(aborted_.as<uint32_t>()[0]).load() != 0; }
void ExchangeMemory::recover() {
  std::atomic_ref(aborted_.as<uint32_t>()[0]).store(0);
  for (const DeviceArray<uint32_t>& words : words_)
    fill_device(words.device(), words.address(), std::byte{0}, words.bytes(), words.name());
}

}  // namespace nodewright
