// How the processes of a group find each other: rank 0 listens, the others come, each with a hello, and both sides
// prove that they know the group's secret. Without a secret anybody may join; either way what is said later can be read
// and changed on its way, so the network must be trusted.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/ranks/rank_secret.h"
#include "engine/ranks/rank_socket.h"

namespace nodewright {

struct RankMeeting {
  size_t rank = 0, ranks = 1;
  std::string host;  // of rank 0
  uint16_t port = 0;
  std::chrono::milliseconds patience{60'000};  // until all are there, or rank 0 is
  // Rank 0: called with its port once it listens; may be empty.
  std::function<void(uint16_t port)> listens = {};
  std::string secret = {};                        // the same of all ranks
  std::chrono::milliseconds most_silent{30'000};  // of a rank that is connected: after that it counts as hung
  // Called on rank 0 with the address and the reason for the first few strangers that it drops; may be empty.
  std::function<void(const std::string& line)> dropped = {};
};

// The connections of a rank: of rank 0 one to each other, in their order; of another one to rank 0.
struct MetRanks {
  std::vector<RankSocket> steps;   // what rank 0 does, and who has left
  std::vector<RankSocket> values;  // of the exchanges, where a library does not carry them
  std::vector<RankSocket> pulses;  // a byte now and then from each side: that it lives
};

// Blocks until all are there. Throws Error where they are not in time, naming those that are missing, or where rank 0
// refuses this rank. Rank 0 drops a stranger, a program of another version, of another group or with another secret,
// and waits on.
MetRanks meet(const RankMeeting& meeting);

// The hello of a connection, for tests.
struct RankHello {
  char magic[8] = {'n', 'd', 'w', 'r', 'a', 'n', 'k', 's'};
  uint32_t version = 2;  // of what is said afterwards
  uint32_t rank = 0, ranks = 0;
  uint32_t channel = 0;  // 0: steps, 1: values, 2: pulses
  RankNonce nonce{};
};
// What rank 0 answers first, before a frame: refused, or its proof. Then comes that of the rank, and a frame: refused
// or welcome.
struct RankAnswer {
  char magic[8] = {'n', 'd', 'w', 'r', 'a', 'n', 'k', '0'};
};

}  // namespace nodewright
