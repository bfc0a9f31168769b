// The fields of a message in protobuf's wire format, one after the other.
// Source: https://protobuf.dev/programming-guides/encoding
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace nodewright {

// A message that is cut short ends early and is not ok().
class ProtoFields {
 public:
  explicit ProtoFields(std::string_view message) : rest_(message) {}

  // Reads the next field; false at the end.
  bool next() {
    std::uint64_t tag = 0;
    if (!ok_ || rest_.empty() || !read_varint(tag)) return false;
    number_ = tag >> 3;
    bytes_ = {};
    value_ = 0;
    switch (tag & 7) {
      case 0:
        return read_varint(value_);
      case 1:
        return read_fixed(8);
      case 2: {
        std::uint64_t size = 0;
        if (!read_varint(size) || size > rest_.size()) return ok_ = false;
        bytes_ = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return true;
      }
      case 5:
        return read_fixed(4);
      default:
        return ok_ = false;  // groups are of a time before SentencePiece
    }
  }

  bool ok() const { return ok_; }
  std::uint64_t number() const { return number_; }
  std::uint64_t value() const { return value_; }     // of an integer, an enumeration, a truth value
  std::string_view bytes() const { return bytes_; }  // of a string or a message
  float real() const { return std::bit_cast<float>(static_cast<std::uint32_t>(value_)); }

 private:
  bool read_varint(std::uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return ok_ = false;
  }

  bool read_fixed(std::size_t size) {
    if (size > rest_.size()) return ok_ = false;
    std::memcpy(&value_, rest_.data(), size);
    rest_.remove_prefix(size);
    return true;
  }

  std::string_view rest_, bytes_;
  std::uint64_t number_ = 0, value_ = 0;
  bool ok_ = true;
};

}  // namespace nodewright
