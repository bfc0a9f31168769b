// Nodes of every kind over five buffers, for tests that compare a plan with what the driver holds.
#pragma once

#include "tests/graph/blend_fixture.h"

namespace nodewright {

class EveryKindTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 128;  // words of each buffer

  const Driver& driver() { return device().driver(); }

  // In a body: of the kinds that may lie there.
  void add_all(GraphBuilder& g, bool in_body) {
    g.copy("load", x_, host_end(in_), 400);
    g.copy_rows("rows", y_, x_, {.bytes = 8, .rows = 4, .to_pitch = 64, .from_pitch = 32});
    g.fill("words", h_.subview(0, 20), 5u);
    g.fill_rows("row_fill", h_.subview(40, 60), {.count = 3, .rows = 4, .pitch = 48}, 6u);
    const NodeId bytes = g.fill("bytes", View<uint8_t>{reinterpret_cast<uint8_t*>(h_.data) + 100, 7}, uint8_t{9});
    g.launch("blend", machine().blend_of(n), {.a = x_, .b = h_, .key = {}, .y = z_, .salt = 3},
             {.after = {bytes}, .attributes = {.cluster = {has_clusters() ? 2u : 1u, 1, 1}, .priority = -1}});
    g.launch("add", machine().accumulate_of(n), {.y = z_, .x = y_, .salt = 1});
    g.empty("end", {.after = {bytes}});
    if (in_body) return;
    g.host("call", [] {}, {{"in", host_end(in_), Access::in}});
    g.record_event("note", noted_, {{"z", z_, Access::in}});
    g.wait_event("hold", noted_, {{"y", y_, Access::out}});
  }

  Words x_ = words("x", n), h_ = words("h", n), y_ = words("y", n), z_ = words("z", n), in_ = pinned("in", n);
  Event noted_{device(), "noted"};
};

}  // namespace nodewright
