// The steps of an engine as frames: what rank 0 has its device do, and what another rank needs to do the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/ranks/rank_frames.h"
#include "engine/topology/step_slots.h"

namespace nodewright {

// A launch that came, which owns the memory of its spans.
struct LaunchMessage {
  int32_t slot = 0, bucket = 0, live = 0, sampled = 0;
  bool prompt = false, chooses_again = true;
  std::vector<PageCopy> copies;
  struct Table {
    int32_t sequence = 0;
    int64_t first = 0, group = 0;
    std::vector<int32_t> pages;
  };
  std::vector<Table> tables;
  std::span<const std::byte> inputs;  // of the frame
};

// A second choice that came.
struct SampleMessage {
  int32_t slot = 0, choices = 0;
  std::span<const std::byte> block;  // of the frame; the rest only with choices
  struct Row {
    std::vector<int32_t> bias_tokens;
    std::vector<float> bias_values;
    std::vector<uint32_t> mask;  // empty: it is not constrained
  };
  std::vector<Row> rows;
};

struct CountsMessage {
  int32_t sequence = 0;
  std::vector<int32_t> counts;
};
struct TableMessage {
  int32_t sequence = 0;
  std::vector<int32_t> pages;
};

// What the others need of a launch: adapters, scores and hidden states are not among it.
void write_launch(FrameWriter& frame, const StepSlots::Launch& launch, std::span<const std::byte> inputs);
void write_sample(FrameWriter& frame, int slot, int32_t choices, std::span<const std::byte> block,
                  const ChoiceInputs* inputs);
void write_counts(FrameWriter& frame, int32_t sequence, std::span<const int32_t> counts);
void write_table(FrameWriter& frame, int32_t sequence, std::span<const int32_t> pages);

// Parse frames of these kinds; throw Error as FrameReader does. Spans live as long as the frame.
LaunchMessage read_launch(const Frame& frame);
SampleMessage read_sample(const Frame& frame);
CountsMessage read_counts(const Frame& frame);
TableMessage read_table(const Frame& frame);

}  // namespace nodewright
