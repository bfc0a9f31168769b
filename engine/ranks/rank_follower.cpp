#include "engine/ranks/rank_follower.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels_src/sampling/shape_logits.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

[[noreturn]] void refuse(FrameKind kind, const std::string& detail) {
  throw Error(
      {.doing = "follow rank 0", .object = name_of(kind), .detail = detail, .advice = "the same program on all ranks"});
}

// What rank 0 has in its block becomes what this rank has.
void take_block(FrameKind kind, std::span<const std::byte> from, std::span<std::byte> to) {
  if (from.size() != to.size())
    refuse(kind, fmt::format("its inputs have {} bytes, and those of this rank {}", from.size(), to.size()));
  std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace

// A device that fails because rank 0 has left is no reason of its own: rank 0's last words are, where there are some.
void RankFollower::run() {
  try {
    follow();
  } catch (const Error&) {
    while (!link_.lost().empty()) link_.next();
    throw;
  }
}

void RankFollower::follow() {
  while (true) {
    const Frame& frame = link_.next();
    switch (frame.kind) {
      case FrameKind::launch:
        launch(read_launch(frame));
        break;
      case FrameKind::sample:
        sample(read_sample(frame));
        break;
      case FrameKind::counts:
        set_counts(read_counts(frame));
        break;
      case FrameKind::table:
        write_table(read_table(frame));
        break;
      case FrameKind::end:
        return;
      default:
        refuse(frame.kind, "it is no step");
    }
  }
}

void RankFollower::check_slot(FrameKind kind, int32_t slot) const {
  if (slot < 0 || slot >= kSlots) refuse(kind, fmt::format("slot {} of {}", slot, kSlots));
}

// After it the slot's memory may be written. Where rank 0 has left, what is in flight has ended without a meaning.
void RankFollower::free(int slot) {
  if (std::exchange(in_flight_[static_cast<size_t>(slot)], false)) slots_.wait(slot);
}

void RankFollower::launch(const LaunchMessage& message) {
  check_slot(FrameKind::launch, message.slot);
  if (!slots_.has_bucket(message.bucket))
    refuse(FrameKind::launch, fmt::format("there is no bucket of {} rows", message.bucket));
  free(message.slot);
  take_block(FrameKind::launch, message.inputs, slots_.input_block(message.slot, message.bucket));
  std::vector<TablePages> tables;
  tables.reserve(message.tables.size());
  for (const LaunchMessage::Table& one : message.tables)
    tables.push_back({one.sequence, one.first, one.pages, one.group});
  slots_.launch({.slot = message.slot,
                 .bucket = message.bucket,
                 .live = message.live,
                 .sampled = message.sampled,
                 .copies = message.copies,
                 .tables = tables,
                 .prompt = message.prompt,
                 .chooses_again = message.chooses_again});
}

void RankFollower::sample(const SampleMessage& message) {
  check_slot(FrameKind::sample, message.slot);
  if (message.choices > 0) {
    take_block(FrameKind::sample, message.block, slots_.choice_block(message.slot));
    const ChoiceInputs& in = slots_.choices(message.slot);
    for (size_t row = 0; row < message.rows.size(); ++row) {
      const SampleMessage::Row& one = message.rows[row];
      if (one.bias_tokens.size() > kMostBiases || one.bias_values.size() != one.bias_tokens.size() ||
          one.mask.size() > static_cast<size_t>(in.mask_words) || row >= in.rows.count)
        refuse(FrameKind::sample, fmt::format("row {} has more than a row holds", row));
      std::ranges::copy(one.bias_tokens, in.bias_tokens.data + row * kMostBiases);
      std::ranges::copy(one.bias_values, in.bias_values.data + row * kMostBiases);
      std::ranges::copy(one.mask, in.masks.data + row * static_cast<size_t>(in.mask_words));
    }
  }
  slots_.sample(message.slot, message.choices);
  in_flight_[static_cast<size_t>(message.slot)] = true;
  if (slots_.device().driver().is_cpu()) free(message.slot);  // which works while somebody waits for it
}

// Rank 0 waits for the steps that chose for the sequence, and this rank for all that were launched: they are on all
// ranks, so they end.
void RankFollower::set_counts(const CountsMessage& message) {
  slots_.stream().synchronize();
  slots_.set_counts(message.sequence, message.counts);
}

void RankFollower::write_table(const TableMessage& message) {
  slots_.stream().synchronize();
  slots_.write_table(message.sequence, message.pages);
}

}  // namespace nodewright
