#include "engine/ranks/step_messages.h"

#include <algorithm>

#include "kernels_src/sampling/shape_logits.h"

namespace nodewright {
namespace {

// More than any step has: a corrupt count is refused before memory is taken for it.
constexpr uint32_t kMostParts = 1 << 20;

uint32_t take_count(FrameReader& reader) { return std::min(reader.take<uint32_t>(), kMostParts); }

std::span<const std::byte> rest_of(FrameReader& reader) {
  const std::span<const std::byte> rest = reader.take_bytes();
  reader.end();
  return rest;
}

}  // namespace

void write_launch(FrameWriter& frame, const StepSlots::Launch& launch, std::span<const std::byte> inputs) {
  frame.begin(FrameKind::launch);
  frame.add(int32_t{launch.slot}).add(int32_t{launch.bucket}).add(launch.live).add(launch.sampled);
  frame.add(launch.prompt).add(launch.chooses_again).add_all(launch.copies);
  frame.add(static_cast<uint32_t>(launch.tables.size()));
  for (const TablePages& table : launch.tables)
    frame.add(table.sequence).add(table.first).add(table.group).add_all(table.pages);
  frame.add_all(inputs);
}

LaunchMessage read_launch(const Frame& frame) {
  FrameReader reader(frame);
  LaunchMessage message;
  message.slot = reader.take<int32_t>();
  message.bucket = reader.take<int32_t>();
  message.live = reader.take<int32_t>();
  message.sampled = reader.take<int32_t>();
  message.prompt = reader.take<bool>();
  message.chooses_again = reader.take<bool>();
  message.copies = reader.take_all<PageCopy>();
  for (uint32_t left = take_count(reader); left > 0; --left) {
    LaunchMessage::Table table;
    table.sequence = reader.take<int32_t>();
    table.first = reader.take<int64_t>();
    table.group = reader.take<int64_t>();
    table.pages = reader.take_all<int32_t>();
    message.tables.push_back(std::move(table));
  }
  message.inputs = rest_of(reader);
  return message;
}

void write_sample(FrameWriter& frame, int slot, int32_t choices, std::span<const std::byte> block,
                  const ChoiceInputs* inputs) {
  frame.begin(FrameKind::sample);
  frame.add(int32_t{slot}).add(choices);
  if (choices == 0) return;
  for (int64_t row = 0; row < choices; ++row) {
    const auto biases = static_cast<size_t>(inputs->biases.data[row]);
    const auto words = static_cast<size_t>(inputs->constrained.data[row] != 0 ? inputs->mask_words : 0);
    frame.add_all(std::span<const int32_t>(inputs->bias_tokens.data + row * kMostBiases, biases));
    frame.add_all(std::span<const float>(inputs->bias_values.data + row * kMostBiases, biases));
    frame.add_all(std::span<const uint32_t>(inputs->masks.data + row * inputs->mask_words, words));
  }
  frame.add_all(block);
}

SampleMessage read_sample(const Frame& frame) {
  FrameReader reader(frame);
  SampleMessage message;
  message.slot = reader.take<int32_t>();
  message.choices = reader.take<int32_t>();
  if (message.choices == 0) {
    reader.end();
    return message;
  }
  for (int32_t row = 0; row < message.choices; ++row) {
    SampleMessage::Row one;
    one.bias_tokens = reader.take_all<int32_t>();
    one.bias_values = reader.take_all<float>();
    one.mask = reader.take_all<uint32_t>();
    message.rows.push_back(std::move(one));
  }
  message.block = rest_of(reader);
  return message;
}

void write_counts(FrameWriter& frame, int32_t sequence, std::span<const int32_t> counts) {
  frame.begin(FrameKind::counts);
  frame.add(sequence).add_all(counts);
}

CountsMessage read_counts(const Frame& frame) {
  FrameReader reader(frame);
  CountsMessage message;
  message.sequence = reader.take<int32_t>();
  message.counts = reader.take_all<int32_t>();
  reader.end();
  return message;
}

void write_table(FrameWriter& frame, int32_t sequence, std::span<const int32_t> pages) {
  frame.begin(FrameKind::table);
  frame.add(sequence).add_all(pages);
}

TableMessage read_table(const Frame& frame) {
  FrameReader reader(frame);
  TableMessage message;
  message.sequence = reader.take<int32_t>();
  message.pages = reader.take_all<int32_t>();
  reader.end();
  return message;
}

}  // namespace nodewright
