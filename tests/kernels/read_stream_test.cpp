// read_stream: that it reads what it says, shown by a word at which it writes.
#include "kernels_src/read_stream.h"

#include <gtest/gtest.h>

#include "tests/kernels/one_node.h"

namespace nodewright::test::read_stream_test {
namespace {

constexpr uint32_t kWrittenAt = 0x9e3779b9u;  // the one sum that read_stream writes

TEST(ReadStream, ReadsEveryWordOfWholeTurnsAndNothingElse) {
  const LaunchShape shape = read_stream_shape(static_cast<unsigned>(machine().device.properties().sm_count));
  const auto kernel = machine().kernels.kernel<ReadStream>("read_stream", shape);
  const size_t turn = shape.blocks() * shape.threads() * 16, words = 2 * turn + 4 * 17 + 3;
  for (const size_t place : {size_t{0}, size_t{3}, turn / 4 + 1, turn - 1, turn, 2 * turn - 1, 2 * turn, words - 1}) {
    std::vector<uint32_t> values(words, 0);
    values[place] = kWrittenAt;
    const Guarded<uint32_t> data("data", values), sum("sum", 1);
    run_node(kernel, {.data = data, .sum = sum});
    // Beyond the whole turns a thread reads all four of its words or none.
    EXPECT_EQ(sum.read()[0], place < 2 * turn ? kWrittenAt : 0xffffffffu) << place << " of " << words;
  }
}

}  // namespace
}  // namespace nodewright::test::read_stream_test
