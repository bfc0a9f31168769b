#include "engine/ranks/rank_frames.h"

#include <fmt/format.h>

#include <iterator>

#include "runtime/error.h"

namespace nodewright {

std::string name_of(FrameKind kind) {
  constexpr const char* kNames[] = {"welcome", "refused", "terms", "agreed", "number", "bytes", "launch",
                                    "sample",  "counts",  "table", "end",    "failed", "proof"};
  const auto place = static_cast<uint32_t>(kind) - static_cast<uint32_t>(FrameKind::welcome);
  return place < std::size(kNames) ? kNames[place] : fmt::format("kind {}", static_cast<uint32_t>(kind));
}

void FrameWriter::begin(FrameKind kind) {
  bytes_.clear();
  add(FrameHeader{kind, 0});
}

FrameWriter& FrameWriter::add_raw(const void* from, size_t bytes) {
  const auto* const first = static_cast<const std::byte*>(from);
  if (bytes > 0) bytes_.insert(bytes_.end(), first, first + bytes);
  return *this;
}

std::span<const std::byte> FrameWriter::finish() {
  FrameHeader header{};
  std::memcpy(&header, bytes_.data(), sizeof(header));
  const size_t body = bytes_.size() - sizeof(header);
  if (body > kMostFrameBytes)
    throw Error({.doing = "send to the other ranks",
                 .object = name_of(header.kind),
                 .detail = fmt::format("it has {} bytes, and a message at most {}", body, kMostFrameBytes)});
  header.bytes = static_cast<uint32_t>(body);
  std::memcpy(bytes_.data(), &header, sizeof(header));
  return bytes_;
}

std::string FrameReader::take_text() {
  const std::span<const std::byte> text = take_bytes();
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

void FrameReader::end() const {
  if (!left_.empty()) refuse(fmt::format("{} bytes stand behind its end", left_.size()));
}

std::span<const std::byte> FrameReader::next(uint64_t bytes) {
  if (bytes > left_.size()) refuse(fmt::format("{} bytes are left where {} should stand", left_.size(), bytes));
  const std::span<const std::byte> taken = left_.first(bytes);
  left_ = left_.subspan(bytes);
  return taken;
}

void FrameReader::refuse(const std::string& detail) const {
  throw Error({.doing = "read what another rank sent",
               .object = name_of(kind_),
               .detail = detail,
               .advice = "the same program on all ranks"});
}

}  // namespace nodewright
