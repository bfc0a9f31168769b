// Random plans of every kind of node over random overlapping pieces of a few buffers. One seed, one plan; mixed, some
// of its kernels are foreign, some are launched by a library, some memory is the plan's own, and some nodes are values.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph_builder.h"
#include "runtime/event.h"
#include "tests/graph/blend_fixture.h"
#include "tests/graph/nodes/library_work.h"

namespace nodewright {

// What a random plan is made over. Nothing writes `key`; only loops count in `rounds`.
struct RandomMemory {
  std::vector<View<uint32_t>> device;
  View<uint32_t> pinned, key, rounds;
  const Event* recorded = nullptr;  // for waits: done before the launch
  const Event* noted = nullptr;     // for records
  std::function<void(GraphBuilder&)> declare;
};

class RandomPlanMaker {
 public:
  RandomPlanMaker(BlendMachine& machine, const RandomMemory& memory, unsigned seed, bool mixed = true)
      : machine_(machine), memory_(memory), random_(seed), mix_(seed), seed_(seed), mixed_(mixed) {}

  Plan make() {
    GraphBuilder g(*machine_.opened.device, "fuzz." + std::to_string(seed_));
    memory_.declare(g);
    const uint32_t count = 3 + below(14);
    if (mixed_ && mix_() % 3 == 0) {
      add_nodes_with_scratch(g, count);
    } else {
      add_nodes(g, count, {});
    }
    return std::move(g).finish(policy());
  }

  // What the host nodes and library nodes of the plan do to a model of its memory, by name.
  std::map<std::string, std::function<void(HostModel&)>, std::less<>> host_functions;
  bool has_conditionals = false;
  size_t foreign_nodes = 0, library_nodes = 0, value_nodes = 0, box_nodes = 0;  // with those inside
  bool has_scratch = false;

 private:
  using Words = View<uint32_t>;
  struct Place {
    int depth = 0;
    bool in_body = false, in_child = false;
  };

  uint32_t below(uint64_t limit) { return static_cast<uint32_t>(random_() % limit); }
  bool one_in(uint32_t n) { return below(n) == 0; }
  std::string name() { return "n" + std::to_string(names_++); }
  EdgePolicy policy() { return one_in(2) ? EdgePolicy::full : EdgePolicy::programmatic; }

  Words piece_of(const Words& whole, uint64_t most = 40) {
    const uint64_t begin = below(whole.count);
    return whole.subview(begin, 1 + below(std::min(most, whole.count - begin)));
  }
  Words piece() {
    const uint32_t buffer = below(memory_.device.size());
    return piece_of(has_scratch && buffer + 1 == memory_.device.size() ? scratch_.view<uint32_t>()
                                                                       : memory_.device[buffer]);
  }
  bool in_scratch(const Words& words) const { return has_scratch && is_allocated(words.address()); }
  static bool overlap(const Words& a, const Words& b) {
    return a.address() < b.address() + b.bytes() && b.address() < a.address() + a.bytes();
  }
  // A piece to read in a node that writes `written`.
  Words piece_beside(const Words& written) {
    for (;;)
      if (const Words found = piece(); !overlap(found, written)) return found;
  }

  // Memory of the plan stands for the last buffer, whose contents go in at first and come out at last.
  void add_nodes_with_scratch(GraphBuilder& g, uint32_t count) {
    const Words last = memory_.device.back();
    scratch_ = g.allocate("scratch", last.bytes());
    has_scratch = true;
    g.copy("scratch.in", scratch_.view<uint32_t>(), last, last.bytes());
    add_nodes(g, count, {});
    g.copy("scratch.out", last, scratch_.view<uint32_t>(), last.bytes());
    g.free(scratch_);
  }

  void add_nodes(GraphBuilder& g, uint32_t count, Place place) {
    std::vector<NodeId> ids;
    for (uint32_t i = 0; i < count; ++i) {
      NodeOptions options;
      if (!ids.empty() && one_in(8)) options.after.push_back(ids[below(ids.size())]);
      if (const auto id = add_node(g, options, place)) ids.push_back(*id);
    }
  }

  std::optional<NodeId> add_node(GraphBuilder& g, const NodeOptions& options, Place place) {
    const bool nested = place.in_body || place.in_child;
    switch (const uint32_t kind = below(20); kind) {
      case 0:
        return add_fill(g, options);
      case 1:
        return add_copy(g, options);
      case 2:
        return add_rows(g, options);
      case 3:
        return options.after.empty() ? add_blend(g, options) : g.empty(name(), options);
      case 4:
        return place.in_body ? add_blend(g, options) : add_host(g, options);
      case 5:
        return nested ? add_fill(g, options) : add_event_or_values(g, options);
      case 6:
      case 7:
        return place.depth < 2 ? add_child(g, options, place) : add_blend(g, options);
      case 8:
      case 9:
      case 10:
        if (place.depth < 2 && !place.in_child) return add_conditional(g, place);
        return add_blend(g, options);
      case 11:
      case 12:
      case 13:
        return add_accumulate(g, options, place);
      default:
        return add_blend(g, options);
    }
  }

  NodeId add_blend(GraphBuilder& g, NodeOptions options) {
    const Words y = piece(), widest = piece_beside(y);
    Blend args{.a = widest, .b = piece_beside(y), .key = {}, .y = y, .salt = below(1000)};
    if (one_in(3)) args.key = {memory_.key.data, memory_.key.count};
    if (one_in(6)) {
      options.envelope = args;
      args.a = piece_of(widest);
    }
    return g.launch(name(), one_in(3) ? machine_.hasty_of(y.count) : machine_.blend_of(y.count), args, options);
  }

  NodeId add_accumulate(GraphBuilder& g, const NodeOptions& options, Place place) {
    const Words y = piece(), x = piece_beside(y);
    const uint32_t salt = below(1000);
    const Accumulate args{.y = y, .x = x, .salt = salt};
    if (in_scratch(x)) return g.launch(name(), machine_.accumulate_of(y.count), args, options);
    if (mixed_ && mix_() % 2 == 0) {
      ++foreign_nodes;
      return launch_foreign_blend(g, name(), *machine_.foreign, blend_shape(y.count), x, memory_.key, y, salt,
                                  static_cast<uint8_t>(mix_() % 8), options);
    }
    if (mixed_ && !in_scratch(y) && mix_() % 2 == 0) return add_library(g, name(), args, options, place);
    return g.launch(name(), machine_.accumulate_of(y.count), args, options);
  }

  // As one kernel; as a fill and a kernel; or, on the CPU driver, as a stand-in.
  NodeId add_library(GraphBuilder& g, const std::string& node_name, const Accumulate& args, const NodeOptions& options,
                     Place place) {
    const Words x{const_cast<uint32_t*>(args.x.data), args.x.count}, y{args.y.data, args.y.count};
    const auto kernel = accumulate_work(machine_, args);
    const uint32_t form = static_cast<uint32_t>(mix_() % 3);
    ++library_nodes;
    host_functions[node_name] = [args](HostModel& model) { model_accumulate(model, args); };
    if (form == 0) return g.library(node_name, {reads(x), updates(y)}, library_call(kernel), options);
    if (form == 1 && !place.in_body)
      return g.library(node_name, {reads(x), updates(y)},
                       {.submit = kernel, .stand_in = [args] { host_accumulate(args); }}, options);
    const auto fill = fill_work(machine_, y, args.salt);
    host_functions[node_name] = [args, y](HostModel& model) {
      model_fill(model, y, args.salt);
      model_accumulate(model, args);
    };
    return g.library(node_name, {reads(x), writes(y)}, library_call([fill, kernel](CUstream stream) {
                       fill(stream);
                       kernel(stream);
                     }),
                     options);
  }

  NodeId add_fill(GraphBuilder& g, const NodeOptions& options) {
    const Words y = piece();
    if (one_in(2)) return fill_some(g, y, below(1u << 31), options);
    const uint64_t skipped = below(4);  // bytes at odd addresses
    if (one_in(2))
      return fill_some(g, View<uint8_t>{reinterpret_cast<uint8_t*>(y.data) + skipped, y.bytes() - skipped},
                       static_cast<uint8_t>(below(256)), options);
    return fill_some(g, View<uint16_t>{reinterpret_cast<uint16_t*>(y.data) + skipped / 2, y.count * 2 - skipped / 2},
                     static_cast<uint16_t>(below(65536)), options);
  }

  // All of `to`, or up to five rows of up to four elements in it.
  template <class T>
  NodeId fill_some(GraphBuilder& g, const View<T>& to, T value, const NodeOptions& options) {
    if (one_in(2)) return g.fill(name(), to, value, options);
    FillRows rows{.count = std::min<uint64_t>(1 + below(4), to.count), .rows = 1 + below(5), .pitch = 0};
    const uint64_t apart = rows.count + below(3);
    rows.pitch = apart * sizeof(T);
    rows.rows = std::min(rows.rows, 1 + (to.count - rows.count) / apart);
    return g.fill_rows(name(), to, rows, value, options);
  }

  NodeId add_copy(GraphBuilder& g, const NodeOptions& options) {
    const Words device = piece(), pinned = piece_of(memory_.pinned);
    const CopyEnd host{pinned.address(), pinned.bytes(), true};
    const uint64_t bytes = std::min(device.bytes(), pinned.bytes());
    switch (below(3)) {
      case 0:
        return g.copy(name(), device, host, bytes, options);
      case 1:
        return g.copy(name(), host, device, bytes, options);
      default:
        const Words from = piece_beside(device);
        return g.copy(name(), device, from, std::min(device.bytes(), from.bytes()), options);
    }
  }

  // Up to five rows of up to four words; both ends in pieces that do not touch.
  NodeId add_rows(GraphBuilder& g, const NodeOptions& options) {
    const Words to = piece(), from = piece_beside(to);
    CopyRows rows{.bytes = 4ull * (1 + below(4)), .rows = 1 + below(5), .to_pitch = 0, .from_pitch = 0};
    rows.to_pitch = rows.bytes + 4ull * below(3);
    rows.from_pitch = rows.bytes + 4ull * below(3);
    const auto fits = [&](uint64_t bytes, uint64_t pitch) { return (rows.rows - 1) * pitch + rows.bytes <= bytes; };
    while (rows.rows > 1 && (!fits(to.bytes(), rows.to_pitch) || !fits(from.bytes(), rows.from_pitch))) --rows.rows;
    rows.bytes = std::min({rows.bytes, to.bytes(), from.bytes()});
    if (mixed_ && rows.rows == 5 && mix_() % 2 == 0) {  // the first two rows and the last two
      ++box_nodes;
      return g.copy_box(name(), to, from,
                        {.bytes = rows.bytes,
                         .rows = 2,
                         .slices = 2,
                         .to_pitch = rows.to_pitch,
                         .to_height = 3,
                         .from_pitch = rows.from_pitch,
                         .from_height = 3},
                        options);
    }
    return g.copy_rows(name(), to, from, rows, options);
  }

  NodeId add_host(GraphBuilder& g, const NodeOptions& options) {
    const Words words = piece_of(memory_.pinned);
    const uint32_t salt = below(1000);
    const std::string node_name = name();
    host_functions[node_name] = [words, salt](HostModel& model) {
      for (uint64_t i = 0; i < words.count; ++i) {
        uint32_t& word = model.word(words.address() + 4 * i);
        word = word * 7 + salt;
      }
    };
    return g.host(
        node_name,
        [words, salt] {
          for (uint64_t i = 0; i < words.count; ++i) words.data[i] = words.data[i] * 7 + salt;
        },
        {{"words", CopyEnd(words.address(), words.bytes(), true), Access::inout}}, options);
  }

  NodeId add_event_or_values(GraphBuilder& g, const NodeOptions& options) {
    Words words = piece();
    const bool first = one_in(2);
    if (mixed_ && mix_() % 2 == 0) {
      ++value_nodes;
      if (in_scratch(words))
        words = memory_.device[0].subview(0, words.count);  // the plan's own memory takes no values
      const auto value = static_cast<uint32_t>(mix_());
      std::vector<ValueOperation> operations{write_to(words, value), wait_until(words, Until::equal, value)};
      if (words.count > 1) operations.push_back(write_to(words.subview(1, 1), value + 1));
      return g.values(name(), operations, {}, options);
    }
    if (first) return g.record_event(name(), *memory_.noted, {{"words", words, Access::in}}, options);
    return g.wait_event(name(), *memory_.recorded, {{"words", words, Access::out}}, options);
  }

  NodeId add_child(GraphBuilder& g, const NodeOptions& options, Place place) {
    const std::string node_name = name();
    GraphBuilder inner(*machine_.opened.device, "fuzz." + std::to_string(seed_) + "." + node_name);
    memory_.declare(inner);
    if (has_scratch) inner.declare(scratch_.range(), {.live_in = true, .live_out = true});
    add_nodes(inner, 1 + below(5), {place.depth + 1, place.in_body, true});
    return g.child(node_name, std::move(inner).finish(policy()),
                   one_in(2) ? ChildOwnership::moved : ChildOwnership::cloned, options);
  }

  NodeId add_conditional(GraphBuilder& g, Place place) {
    has_conditionals = true;
    const std::string node_name = name();
    const Place inside{place.depth + 1, true, false};
    const auto body = [&](GraphBuilder& b) { add_nodes(b, below(5), inside); };
    if (one_in(3)) {
      const Words rounds = memory_.rounds.subview(place.depth, 1);  // a loop inside must not count here
      g.fill(name(), rounds, 0u);
      const auto again = g.condition(node_name + ".again", 1);
      return g.while_loop(node_name, again, [&](GraphBuilder& b) {
        body(b);
        b.launch(name(), machine_.count, {.rounds = rounds, .again = again, .limit = below(4)});
        body(b);
      });
    }
    const auto condition = g.condition(node_name + ".condition", below(3));
    if (!one_in(3))
      g.launch(name(), machine_.decide,
               {.value = piece(), .condition = condition, .modulus = 1 + below(4), .base = below(2)});
    if (one_in(2)) return g.if_else(node_name, condition, body, one_in(2) ? GraphBuilder::Body(body) : nullptr);
    return g.switch_case(node_name, condition, std::vector<GraphBuilder::Body>(1 + below(3), body));
  }

  BlendMachine& machine_;
  const RandomMemory& memory_;
  std::mt19937 random_;
  std::mt19937 mix_;  // what is foreign, and what a library launches: apart, so that a seed keeps the shape of its plan
  unsigned seed_;
  bool mixed_;
  Allocation scratch_;
  uint32_t names_ = 0;
};

}  // namespace nodewright
