// Steps as frames: what is written is read, and a frame that is cut anywhere is an Error, never a crash.
#include "engine/ranks/step_messages.h"

#include <gtest/gtest.h>

#include "kernels_src/sampling/shape_logits.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

Frame frame_of(FrameWriter& writer) {
  const std::span<const std::byte> bytes = writer.finish();
  FrameHeader header{};
  std::memcpy(&header, bytes.data(), sizeof(header));
  EXPECT_EQ(header.bytes, bytes.size() - sizeof(header));
  return {header.kind, {bytes.begin() + sizeof(header), bytes.end()}};
}

template <class Read>
void expect_errors_of_cut_frames(Frame frame, const Read& read) {
  const std::vector<std::byte> whole = frame.body;
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    frame.body.assign(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
    expect_error([&] { read(frame); }, {"read what another rank sent", name_of(frame.kind)});
  }
  frame.body = whole;
  frame.body.push_back(std::byte{7});
  expect_error([&] { read(frame); }, {"1 bytes stand behind its end"});
}

std::vector<std::byte> some_bytes(size_t count) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::byte>(i * 37));
  return bytes;
}

TEST(StepMessages, ALaunchIsReadAsItWasWritten) {
  const std::vector<PageCopy> copies{{3, 4, 0}, {5, 6, 1}};
  const std::vector<int32_t> pages{9, 8, 7};
  const std::vector<TablePages> tables{{2, 5, pages, 1}, {0, 0, std::span(pages).first(1), 0}};
  const std::vector<std::byte> inputs = some_bytes(77);
  FrameWriter writer(FrameKind::end);
  write_launch(writer,
               {.slot = 1,
                .bucket = 8,
                .live = 5,
                .sampled = 3,
                .copies = copies,
                .tables = tables,
                .prompt = true,
                .chooses_again = false},
               inputs);
  const Frame frame = frame_of(writer);
  const LaunchMessage read = read_launch(frame);
  EXPECT_EQ(frame.kind, FrameKind::launch);
  EXPECT_EQ(read.slot, 1);
  EXPECT_EQ(read.bucket, 8);
  EXPECT_EQ(read.live, 5);
  EXPECT_EQ(read.sampled, 3);
  EXPECT_TRUE(read.prompt);
  EXPECT_FALSE(read.chooses_again);
  EXPECT_EQ(read.copies, copies);
  ASSERT_EQ(read.tables.size(), 2U);
  EXPECT_EQ(read.tables[0].sequence, 2);
  EXPECT_EQ(read.tables[0].first, 5);
  EXPECT_EQ(read.tables[0].group, 1);
  EXPECT_EQ(read.tables[0].pages, pages);
  EXPECT_EQ(read.tables[1].pages, std::vector<int32_t>{9});
  EXPECT_EQ(std::vector(read.inputs.begin(), read.inputs.end()), inputs);
  expect_errors_of_cut_frames(frame, read_launch);
}

// Two rows: one with biases, one with a mask.
TEST(StepMessages, ASecondChoiceIsReadAsItWasWritten) {
  std::vector<int32_t> biases{2, 0}, constrained{0, 1}, bias_tokens(2 * kMostBiases, -7);
  std::vector<float> bias_values(2 * kMostBiases, -7.0f);
  std::vector<uint32_t> masks{1, 2, 3, 4, 5, 6};
  bias_tokens[0] = 11, bias_tokens[1] = 12, bias_values[0] = 0.5f, bias_values[1] = -1.5f;
  ChoiceInputs in;
  in.biases = {biases.data(), 2};
  in.constrained = {constrained.data(), 2};
  in.bias_tokens = {bias_tokens.data(), bias_tokens.size()};
  in.bias_values = {bias_values.data(), bias_values.size()};
  in.masks = {masks.data(), masks.size()};
  in.mask_words = 3;
  const std::vector<std::byte> block = some_bytes(40);
  FrameWriter writer(FrameKind::end);
  write_sample(writer, 1, 2, block, &in);
  const Frame frame = frame_of(writer);
  const SampleMessage read = read_sample(frame);
  EXPECT_EQ(read.slot, 1);
  EXPECT_EQ(read.choices, 2);
  ASSERT_EQ(read.rows.size(), 2U);
  EXPECT_EQ(read.rows[0].bias_tokens, (std::vector<int32_t>{11, 12}));
  EXPECT_EQ(read.rows[0].bias_values, (std::vector<float>{0.5f, -1.5f}));
  EXPECT_TRUE(read.rows[0].mask.empty());
  EXPECT_TRUE(read.rows[1].bias_tokens.empty());
  EXPECT_EQ(read.rows[1].mask, (std::vector<uint32_t>{4, 5, 6}));
  EXPECT_EQ(std::vector(read.block.begin(), read.block.end()), block);
  expect_errors_of_cut_frames(frame, read_sample);

  write_sample(writer, 0, 0, {}, nullptr);
  const Frame none = frame_of(writer);
  EXPECT_EQ(read_sample(none).choices, 0);
  expect_errors_of_cut_frames(none, read_sample);
}

TEST(StepMessages, CountsAndTablesAreReadAsTheyWereWritten) {
  const std::vector<int32_t> numbers{4, 0, -2};
  FrameWriter writer(FrameKind::end);
  write_counts(writer, 3, numbers);
  const Frame counts = frame_of(writer);
  EXPECT_EQ(read_counts(counts).sequence, 3);
  EXPECT_EQ(read_counts(counts).counts, numbers);
  expect_errors_of_cut_frames(counts, read_counts);
  write_table(writer, 2, numbers);
  const Frame table = frame_of(writer);
  EXPECT_EQ(read_table(table).sequence, 2);
  EXPECT_EQ(read_table(table).pages, numbers);
  expect_errors_of_cut_frames(table, read_table);
}

// A number of parts that no frame can hold takes no memory.
TEST(StepMessages, ANumberThatCannotBeIsAnError) {
  FrameWriter writer(FrameKind::launch);
  writer.add(int32_t{0}).add(int32_t{8}).add(int32_t{1}).add(int32_t{1}).add(false).add(true).add(UINT32_MAX);
  expect_error([&] { read_launch(frame_of(writer)); }, {"launch", "0 bytes are left"});
  writer.begin(FrameKind::sample);
  writer.add(int32_t{0}).add(INT32_MAX);
  expect_error([&] { read_sample(frame_of(writer)); }, {"sample", "0 bytes are left"});
}

}  // namespace
}  // namespace nodewright
