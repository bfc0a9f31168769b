#include "engine/ranks/socket_collectives.h"

#include <fmt/format.h>

#include <cstring>
#include <span>

#include "runtime/error.h"

namespace nodewright {
namespace {

// Before a rank's values: a plan that differs is found at once.
struct ExchangeHead {
  uint64_t number = 0, bytes = 0;
};

constexpr const char* kSilent = "it has left";

}  // namespace

void SocketCollectives::all_gather(CUstream, CUdeviceptr, CUdeviceptr, uint64_t) {
  throw Error({.doing = "exchange values over sockets",
               .detail = "that is the CPU driver's form, and this is a device",
               .advice = "--device cpu"});
}

void SocketCollectives::all_gather_on_host(const void* from, void* to, uint64_t bytes) {
  if (given_up_) lose(0, kSilent);
  const auto* const own = static_cast<const std::byte*>(from);
  auto* const all = static_cast<std::byte*>(to);
  rank() == 0 ? gather(own, all, bytes) : join(own, all, bytes);
  ++next_;
}

void SocketCollectives::gather(const std::byte* from, std::byte* to, uint64_t bytes) {
  std::memmove(to, from, bytes);
  for (size_t rank = 1; rank < ranks(); ++rank) {
    ExchangeHead head;
    if (!link_.values(rank).receive(std::as_writable_bytes(std::span(&head, 1)))) lose(rank, kSilent);
    if (head.number != next_ || head.bytes != bytes)
      lose(rank, fmt::format("its exchange {} has {} bytes, and that of rank 0, {}, has {}: their plans differ",
                             head.number, head.bytes, next_, bytes));
    if (!link_.values(rank).receive({to + rank * bytes, bytes})) lose(rank, kSilent);
  }
  for (size_t rank = 1; rank < ranks(); ++rank)
    if (!link_.values(rank).send({to, ranks() * bytes})) lose(rank, kSilent);
}

void SocketCollectives::join(const std::byte* from, std::byte* to, uint64_t bytes) {
  const RankSocket& first = link_.values(0);
  const ExchangeHead head{next_, bytes};
  if (!first.send(std::as_bytes(std::span(&head, 1))) || !first.send({from, bytes}) ||
      !first.receive({to, ranks() * bytes}))
    lose(0, kSilent);
}

void SocketCollectives::lose(size_t rank, const std::string& why) {
  if (!given_up_) link_.lose(rank, why);
  give_up();
  throw Error({.doing = "exchange values with the other ranks", .detail = "the exchange was given up"});
}

void SocketCollectives::give_up() noexcept {
  given_up_ = true;
  for (size_t rank = 0; rank < ranks(); ++rank)
    if (rank != this->rank() && (rank == 0 || this->rank() == 0)) link_.values(rank).shut_down();
}

}  // namespace nodewright
