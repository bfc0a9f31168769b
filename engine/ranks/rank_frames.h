// The messages between ranks in several processes: frames, each a kind, a length and that many bytes. Numbers have the
// machine's own form: the ranks of a group run on machines alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace nodewright {

enum class FrameKind : uint32_t {
  welcome = 1,  // the hello is accepted
  refused,      // it is not, or the terms differ: why
  terms,        // of a follower
  agreed,       // they are those of rank 0
  number,       // a follower's, or what rank 0 has computed from all
  bytes,        // that rank 0 shares
  launch,       // step_messages.h
  sample,
  counts,
  table,
  end,     // rank 0 ends in order
  failed,  // the sender ends out of order: why
  proof,   // that the sender knows the secret; of rank 0 a nonce before it
};
// "launch"; "kind 77" of one that is none.
std::string name_of(FrameKind kind);

// The most bytes of a frame's body: room for the counts of a vocabulary, or the tables and masks of a step.
inline constexpr uint32_t kMostFrameBytes = uint32_t{64} << 20;

struct FrameHeader {
  FrameKind kind;
  uint32_t bytes;
};

struct Frame {
  FrameKind kind = FrameKind::failed;
  std::vector<std::byte> body;
};

// Writes one frame after the other into the same memory.
class FrameWriter {
 public:
  explicit FrameWriter(FrameKind kind) { begin(kind); }
  void begin(FrameKind kind);

  template <class T>
  FrameWriter& add(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return add_raw(&value, sizeof(T));
  }
  // Their count, then the values.
  template <class T>
  FrameWriter& add_all(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    add(static_cast<uint32_t>(values.size()));
    return add_raw(values.data(), values.size_bytes());
  }
  FrameWriter& add_text(std::string_view text) { return add_all(std::span<const char>(text)); }

  // The frame, with its header. Throws Error where it has more than kMostFrameBytes.
  std::span<const std::byte> finish();

 private:
  FrameWriter& add_raw(const void* from, size_t bytes);

  std::vector<std::byte> bytes_;
};

// Reads what a FrameWriter has written. Throws Error, naming the kind, where the body ends before or goes on after.
class FrameReader {
 public:
  explicit FrameReader(const Frame& frame) : kind_(frame.kind), left_(frame.body) {}

  template <class T>
  T take() {
    T value;
    std::memcpy(&value, next(sizeof(T)).data(), sizeof(T));
    return value;
  }
  template <class T>
  std::vector<T> take_all() {
    const auto count = take<uint32_t>();
    const std::span<const std::byte> from = next(uint64_t{count} * sizeof(T));
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), from.data(), from.size());
    return values;
  }
  // The same without a copy.
  std::span<const std::byte> take_bytes() { return next(take<uint32_t>()); }
  std::string take_text();
  // Nothing is left.
  void end() const;

 private:
  std::span<const std::byte> next(uint64_t bytes);
  [[noreturn]] void refuse(const std::string& detail) const;

  FrameKind kind_;
  std::span<const std::byte> left_;
};

}  // namespace nodewright
