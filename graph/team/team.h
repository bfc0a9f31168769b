// Several devices that run one plan each and send each other values meanwhile: the devices, the memory through which
// they exchange, and the abort word with which the host ends an exchange that a device waits in.
//
//   Team team({&first, &second});
//   ExchangeMemory memory(team, "partial", {.packets = 8 * 3072});
//   TeamPlan plan = plan_team(memory, "decode.b8", [&](GraphBuilder& g, TeamRank& rank) { ... });
//   TeamGraph graph(memory, std::move(plan));
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels_src/exchange/exchange.h"
#include "runtime/device.h"
#include "runtime/memory/memory.h"
#include "runtime/stream.h"

namespace nodewright {

// The devices of a team, in the order of their ranks. Several threads may use it; TeamGraph::launch is one at a time.
class Team {
 public:
  // Lets every device write the memory of every other one, for as long as the process has their contexts. The devices
  // must outlive the team. Throws Error where there are fewer than 2 or more than 8, where two are the same or of
  // different drivers, and where one cannot access another's memory.
  explicit Team(std::vector<Device*> devices);
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  size_t size() const { return devices_.size(); }                   // ranks
  Device& device(size_t rank) const { return *devices_.at(rank); }  // of a rank
  std::mutex& launching() { return launching_; }                    // held while a launch of all ranks is under way

 private:
  std::vector<Device*> devices_;
  std::mutex launching_;
};

// A stream a rank. As Stream in all else.
class TeamStream {
 public:
  // Throws Error as Stream does. `name`: for errors; that of rank 1 is "name@1".
  TeamStream(Team& team, const std::string& name);
  // Wraps existing streams, by rank; they must outlive this.
  explicit TeamStream(std::vector<const Stream*> streams) : streams_(std::move(streams)) {}

  size_t size() const { return streams_.size(); }                       // ranks
  const Stream& rank(size_t rank) const { return *streams_.at(rank); }  // of a rank
  // Waits for all ranks. Throws Error with what a kernel of one of them did wrong, once all have ended.
  void synchronize() const;

 private:
  std::vector<std::unique_ptr<const Stream>> owned_;
  std::vector<const Stream*> streams_;
};

// How much a launch exchanges.
struct ExchangeSize {
  uint64_t packets = 0;  // most values that a rank sends to another in one exchange
  uint32_t most = 128;  // most exchanges of a launch, even; the larger, the sooner epochs start anew: after 2^32 / most
                        // launches, all of which wait once then
  uint64_t bulk = 0;    // most values of a bulk exchange; 0: there is none
};

// The memory of exchanges, on all ranks: two slots of packets and of bulk words from each other rank, the number of the
// launch, and the abort word. All plans that exchange through one memory share it; their launches follow each other in
// one stream a device. Not thread-safe: TeamGraph takes Team::launching().
class ExchangeMemory {
 public:
  // Throws Error when a device has not enough memory (bytes()), or when `size` is invalid.
  ExchangeMemory(Team& team, std::string name, ExchangeSize size);

  Team& team() const { return *team_; }               // whose memory it is
  const std::string& name() const { return name_; }   // for plans and errors
  const ExchangeSize& size() const { return size_; }  // as asked for
  // The first `count` packets of what `sender` sends to `receiver` in exchange `number`, in the receiver's memory.
  View<Packet> packets(size_t receiver, size_t sender, uint32_t number, uint64_t count) const;
  // The same of a bulk exchange of `values` values: flags, then words (kernels_src/exchange/exchange.h).
  View<Packet> bulk(size_t receiver, size_t sender, uint32_t number, uint64_t values) const;
  NamedRange packet_range(size_t receiver) const;            // all that a rank receives, "partial@1"
  uint64_t bytes() const { return packets_.at(0).bytes(); }  // on each device, the words not counted
  // The words that a rank's kernels read, [1] each: the number of the launch; the abort word, in pinned memory and the
  // same for all ranks; and, in the rank's memory, whether a kernel has seen that set.
  View<uint32_t> launch_number(size_t rank) const { return words_.at(rank).view().subview(0, 1); }
  View<uint32_t> abort_word() const;
  View<uint32_t> seen_word(size_t rank) const { return words_.at(rank).view().subview(1, 1); }
  std::vector<NamedRange> word_ranges(size_t rank) const;  // of these three, for declare()

  // The next launch's number, from 1. Waits for `streams` and clears the packets where numbers start anew.
  uint32_t next_launch(const TeamStream& streams);
  // The number that next_launch() will return. For tests of what happens when numbers start anew.
  void set_next(uint32_t number) { next_ = number; }
  // Ends every wait of kernels that run now or later: what they compute from then on is NaN. The streams go on.
  void give_up();
  bool given_up() const;
  // To be called once all ranks have ended: later launches wait again. Throws Error when a driver call fails.
  void recover();

 private:
  void clear();

  Team* team_;
  std::string name_;
  ExchangeSize size_;
  // From one sender, in whole words: packets of an exchange, then those of a bulk exchange.
  uint64_t packets_of_sender() const { return (size_.packets + 1) / 2 * 2 + bulk_room(); }
  uint64_t bulk_room() const { return size_.bulk == 0 ? 0 : (bulk_packets(size_.bulk) + 1) / 2 * 2; }
  View<Packet> from_sender(size_t receiver, size_t sender, uint32_t number) const;

  std::vector<DeviceArray<Packet>> packets_;  // by rank: [2, senders, packets_of_sender()]
  std::vector<DeviceArray<uint32_t>> words_;  // by rank: [2] launch number, seen
  PinnedBuffer aborted_;                      // [1]
  uint32_t next_ = 1;
};

}  // namespace nodewright
