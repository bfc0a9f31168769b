// How the processes of a group find each other: rank 0 listens, the others come, each with a hello. Nobody is asked who
// he is: the port belongs into a network that is trusted.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/ranks/rank_socket.h"

namespace nodewright {

struct RankMeeting {
  size_t rank = 0, ranks = 1;
  std::string host;  // of rank 0
  uint16_t port = 0;
  std::chrono::milliseconds patience{60'000};  // until all are there, or rank 0 is
  // Of rank 0: that it listens, at which port, before anybody has come; may be empty.
  std::function<void(uint16_t port)> listens = {};
};

// The connections of a rank: of rank 0 one to each other, in their order; of another one to rank 0.
struct MetRanks {
  std::vector<RankSocket> steps;   // what rank 0 does, and who has left
  std::vector<RankSocket> values;  // of the exchanges, where a library does not carry them
};

// Blocks until all are there. Throws Error where they are not in time, naming those that are missing, or another
// program or group answers. Rank 0 drops whoever says no proper hello, and goes on waiting.
MetRanks meet(const RankMeeting& meeting);

// The hello of a connection, for tests.
struct RankHello {
  char magic[8] = {'n', 'd', 'w', 'r', 'a', 'n', 'k', 's'};
  uint32_t version = 1;  // of what is said afterwards
  uint32_t rank = 0, ranks = 0;
  uint32_t channel = 0;  // 0: steps, 1: values
};
// What rank 0 answers first, before a frame: welcome or refused.
struct RankAnswer {
  char magic[8] = {'n', 'd', 'w', 'r', 'a', 'n', 'k', '0'};
};

}  // namespace nodewright
