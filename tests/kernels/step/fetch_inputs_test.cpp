// fetch_inputs: every word from pinned host memory to its place, and nothing after the last.
#include "kernels_src/step/fetch_inputs.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "tests/kernels/one_node.h"

namespace nodewright::test::fetch_inputs_test {
namespace {

TEST(FetchInputs, ReadsEveryWordFromTheHost) {
  for (const uint32_t words : {1u, 45u, 127u, 128u, 129u, 652u, 2572u}) {
    const PinnedBuffer host(machine().device, "from", words * sizeof(uint32_t));
    const std::span<uint32_t> from(static_cast<uint32_t*>(host.data()), words);
    for (uint32_t i = 0; i < words; ++i) from[i] = i * 2654435761u + words;
    const Guarded<uint32_t> to("to", words);
    run_node(machine().kernels.kernel<FetchInputs>({"fetch_inputs", {}}, fetch_inputs_shape(words)),
             {.from = View<uint32_t>{from.data(), words}, .to = to});
    EXPECT_EQ(to.read(), std::vector<uint32_t>(from.begin(), from.end())) << words;
  }
}

}  // namespace
}  // namespace nodewright::test::fetch_inputs_test
