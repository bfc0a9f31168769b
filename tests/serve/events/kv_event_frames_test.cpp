// KV events byte for byte: what vLLM's encoder (msgspec, structs as arrays) makes of the same events.
#include "serve/events/kv_event_frames.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace nodewright {
namespace {

using enum PageEvent::Kind;

TEST(KvEventFrames, AreTheBytesOfVllmsArrays) {
  const std::vector<PageEvent> events{{stored, {0xfedcba9876543210, 5}, 0x8000000000000000, {1, 70000, 300, 0}},
                                      {stored, {7}, {}, {2, 3}},
                                      {removed, {0xfedcba9876543210, 7}, {}, {}},
                                      {.kind = cleared}};
  std::string hex;
  for (const unsigned char byte : kv_event_payload(1700000000.1, events, 2)) {
    constexpr const char* kDigits = "0123456789abcdef";
    hex += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  EXPECT_EQ(hex,
            "93cb41d954fc40066666"  // [time, a double
            "94"
            "98ab426c6f636b53746f726564"  // ["BlockStored",
            "92cffedcba987654321005"      // two hashes,
            "cf8000000000000000"          // a parent,
            "9401ce00011170cd012c00"      // four tokens,
            "02c0a3475055c0"              // two a page, nil, "GPU", nil]
            "98ab426c6f636b53746f726564"
            "9107c0920203"
            "02c0a3475055c0"
            "93ac426c6f636b52656d6f766564"  // ["BlockRemoved",
            "92cffedcba987654321007a3475055"
            "91b0416c6c426c6f636b73436c6561726564"  // ["AllBlocksCleared"]
            "00");                                  // rank 0]
}

TEST(KvEventFrames, NumberBatchesWithTheHighestByteFirst) {
  EXPECT_EQ(sequence_frame(0), std::string(8, '\0'));
  EXPECT_EQ(sequence_frame(0x0102030405060708), "\x01\x02\x03\x04\x05\x06\x07\x08");
  EXPECT_EQ(sequence_frame(UINT64_MAX), std::string(8, '\xff'));
}

TEST(KvEventFrames, OfAReplicaHaveItsRankAndVllmsEndpoint) {
  EXPECT_EQ(kv_event_payload(1.0, {}, 2, 3).back(), '\3');
  EXPECT_EQ(endpoint_of_rank("tcp://*:5557", 0), "tcp://*:5557");
  EXPECT_EQ(endpoint_of_rank("tcp://*:5557", 2), "tcp://*:5559");
  EXPECT_EQ(endpoint_of_rank("tcp://[::1]:5557", 1), "tcp://[::1]:5558");
  EXPECT_EQ(endpoint_of_rank("tcp://127.0.0.1:*", 1), "tcp://127.0.0.1:*");  // any that is free
  EXPECT_EQ(endpoint_of_rank("inproc://events", 1), "inproc://events_dp1");
  EXPECT_EQ(endpoint_of_rank("ipc:///tmp/events", 1), "ipc:///tmp/events_dp1");
  EXPECT_EQ(endpoint_of_rank("", 1), "");
}

}  // namespace
}  // namespace nodewright
