// Threads take turns: one runs until it waits or ends, then the schedule picks the next that can go on.
#include "cpu_driver/blocks/block_runner.h"

#include <sys/mman.h>
#include <xmmintrin.h>

#include <cstring>
#include <new>

#include "cpu_driver/blocks/access_check.h"
#include "cpu_driver/blocks/block_state.h"
#include "cpu_driver/conditional.h"

namespace nodewright::cpu {

thread_local emulation::ThreadView* running_thread __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {

using State = BlockRunner::State;

constexpr size_t kPage = 4096;
constexpr unsigned kDefaultMxcsr = 0x1f80;  // round to nearest, denormals kept, exceptions masked

uint64_t next_random(State& s) {
  s.random ^= s.random << 13;
  s.random ^= s.random >> 7;
  s.random ^= s.random << 17;
  return s.random;
}

uint32_t random_bit_of(State& s, uint32_t set) {
  uint64_t skip = next_random(s) % static_cast<uint32_t>(__builtin_popcount(set));
  while (skip-- > 0) set &= set - 1;
  return static_cast<uint32_t>(__builtin_ctz(set));
}

// The thread of the block to run next, starting from the warp of the one that stops; null when none can go on.
Fiber* pick_in_block(State& s, uint32_t from_warp) {
  if (s.ready_warps == 0) return nullptr;
  uint32_t warp, lane;
  switch (s.work->schedule) {
    case CpuSchedule::forward: {
      const uint32_t later = s.ready_warps & (~0u << from_warp);
      warp = static_cast<uint32_t>(__builtin_ctz(later != 0 ? later : s.ready_warps));
      lane = static_cast<uint32_t>(__builtin_ctz(s.warp[warp].ready));
      break;
    }
    case CpuSchedule::reverse: {
      const uint32_t earlier = s.ready_warps & (~0u >> (31 - from_warp));
      warp = 31u - static_cast<uint32_t>(__builtin_clz(earlier != 0 ? earlier : s.ready_warps));
      lane = 31u - static_cast<uint32_t>(__builtin_clz(s.warp[warp].ready));
      break;
    }
    default:
      warp = random_bit_of(s, s.ready_warps);
      lane = random_bit_of(s, s.warp[warp].ready);
  }
  return &s.fibers[warp * kWarpLanes + lane];
}

// The same over a cluster: the schedule chooses among its blocks as it does among warps.
Fiber* pick_in_cluster(State& s, uint32_t from_warp) {
  uint32_t ready = 0;
  for (uint32_t rank = 0; rank < s.cluster->size; ++rank)
    ready |= (s.cluster->blocks[rank]->ready_warps != 0 ? 1u : 0u) << rank;
  if (ready == 0) return nullptr;
  uint32_t rank;
  switch (s.work->schedule) {
    case CpuSchedule::forward: {
      const uint32_t later = ready & (~0u << s.rank);
      rank = static_cast<uint32_t>(__builtin_ctz(later != 0 ? later : ready));
      if (rank != s.rank) from_warp = 0;
      break;
    }
    case CpuSchedule::reverse: {
      const uint32_t earlier = ready & (~0u >> (31 - s.rank));
      rank = 31u - static_cast<uint32_t>(__builtin_clz(earlier != 0 ? earlier : ready));
      if (rank != s.rank) from_warp = s.warps - 1;
      break;
    }
    default:
      rank = random_bit_of(s, ready);
  }
  return pick_in_block(*s.cluster->blocks[rank], from_warp);
}

inline Fiber* pick(State& s, uint32_t from_warp) {
  return s.alone ? pick_in_block(s, from_warp) : pick_in_cluster(s, from_warp);
}

// The thread to run after `me`, which is not ready any more. Both orders stay in a warp while it has ready lanes: the
// usual case, without a look at the other warps and blocks.
[[gnu::always_inline]] inline Fiber* pick_after(State& s, Fiber* me) {
  const uint32_t lanes = s.warp[me->warp].ready &= ~(1u << me->lane);
  if (lanes == 0) {
    s.ready_warps &= ~(1u << me->warp);
    return pick(s, me->warp);
  }
  Fiber* first = me - me->lane;
  if (s.work->schedule == CpuSchedule::forward) return first + __builtin_ctz(lanes);
  if (s.work->schedule == CpuSchedule::reverse) return first + (31 - __builtin_clz(lanes));
  return pick(s, me->warp);
}

void release_barrier(State& s) {
  s.arrived = 0;
  for (uint32_t w = 0; w < s.warps; ++w) set_ready(s, w, s.warp[w].alive);
}

[[noreturn]] void abandon_deadlock(const char* what) { abandon_block({.fault = BlockFault::deadlock, .what = what}); }

void fiber_main();

// Goes on in `next`; returns when someone goes on in the caller.
[[gnu::always_inline]] inline void switch_to(void** save, Fiber* next) {
  running_thread = next;
  if (next->sp == nullptr) {
    State& s = *next->owner;
    next->stack = s.free_stacks > 0 ? s.free_stack[--s.free_stacks] : s.fresh_stacks++;
    next->sp = s.stacks.prepare(next->stack, &fiber_main);
  }
  nodewright_cpu_switch(save, next->sp);
}

// Nobody can go on: who waits where?
const char* what_blocks(const Cluster& cluster) {
  bool in_warp = false, divergent = false, at_barrier = false, in_cluster_wait = false;
  for (uint32_t rank = 0; rank < cluster.size; ++rank) {
    const State& s = *cluster.blocks[rank];
    at_barrier |= s.arrived > 0;
    for (uint32_t w = 0; w < s.warps; ++w) {
      in_cluster_wait |= s.warp[w].in_cluster_wait != 0;
      uint32_t met = 0;
      for (const Meeting& m : s.warp[w].meetings) {
        if (m.mask == 0) continue;
        in_warp = true;
        divergent |= met != 0;
        met |= m.mask;
      }
    }
  }
  if (divergent) return "deadlock: lanes of one warp wait in different collectives";
  if (in_cluster_wait && at_barrier) return "deadlock: some threads wait at a cluster barrier, others at __syncthreads";
  if (in_cluster_wait) return "deadlock: some threads wait at a cluster barrier, others in a warp collective";
  if (in_warp && at_barrier) return "deadlock: some threads wait at __syncthreads, others in a warp collective";
  return in_warp ? "deadlock: a warp collective waits for lanes that never come"
                 : "deadlock: threads wait at __syncthreads for others that never come";
}

// Everybody waits: goes on in BlockRunner, which comes back once a packet has arrived. Returns when someone goes on in
// the caller.
void suspend(Fiber* me) {
  running_thread = nullptr;
  nodewright_cpu_switch(&me->sp, me->owner->cluster->main_sp);
}

// Inlined: the processor mispredicts every return after a switch of stacks.
[[gnu::always_inline]] inline void wait_here(State& s, Fiber* me) {
  Fiber* next = pick_after(s, me);
  if (next == nullptr) {
    if (polling_threads(*s.cluster) > 0) return suspend(me);
    abandon_deadlock(what_blocks(*s.cluster));
  }
  switch_to(&me->sp, next);
}

// The barriers that wait for it go on without it, while it is still ready.
inline void thread_ends(State& s, Fiber* me) {
  s.warp[me->warp].alive &= ~(1u << me->lane);
  --s.alive;
  if (s.arrived > 0 && s.arrived == s.alive) release_barrier(s);
  if (s.cluster->arrived > 0) leave_cluster(*s.cluster, me);
}

// A stack's first function. Threads that have not started yet take over the stack of one that has ended, so a block
// without barriers needs one stack and no switch.
void fiber_main() {
  State& s = *running_fiber()->owner;
  for (;;) {
    s.work->entry(s.work->args);
    Fiber* me = running_fiber();
    if (s.work->threads_wait && !me->waited)
      abandon_block({.fault = BlockFault::trap, .what = "a thread ends without wait_for_inputs()"});
    thread_ends(s, me);
    Fiber* next = pick_after(s, me);
    if (next != nullptr && next->sp == nullptr && next->owner == &s) {
      next->sp = me->sp;  // not null: it has started
      next->stack = me->stack;
      running_thread = next;
      continue;
    }
    if (next == nullptr && alive_threads(*s.cluster) > 0 && polling_threads(*s.cluster) == 0)
      abandon_deadlock(what_blocks(*s.cluster));
    s.free_stack[s.free_stacks++] = me->stack;
    if (next != nullptr) {
      switch_to(&me->sp, next);
    } else {
      running_thread = nullptr;
      nodewright_cpu_switch(&me->sp, s.cluster->main_sp);
    }
    __builtin_unreachable();
  }
}

void barrier(int line) {
  Fiber* me = running_fiber();
  State& s = *me->owner;
  if (s.arrived > 0 && s.barrier_line != line)
    abandon_deadlock("divergent barrier: threads of one block wait at different __syncthreads");
  s.barrier_line = line;
  if (++s.arrived == s.alive)
    release_barrier(s);
  else
    wait_here(s, me);
}

Meeting& meeting_for(Warp& warp, uint32_t mask, emulation::WarpBody body) {
  Meeting* free = nullptr;
  for (Meeting& m : warp.meetings) {
    if (m.mask == mask && m.body == body) return m;
    if (m.mask == 0 && free == nullptr) free = &m;
  }
  if (free == nullptr) abandon_deadlock("more than 4 collectives under way in one warp");
  free->mask = mask;
  free->body = body;
  free->arrived = 0;
  return *free;
}

void rendezvous(uint32_t mask, void* mine, emulation::WarpBody body) {
  Fiber* me = running_fiber();
  State& s = *me->owner;
  Warp& warp = s.warp[me->warp];
  if (!(mask >> me->lane & 1u)) abandon_deadlock("a lane calls a warp collective whose mask does not name it");
  if ((mask & ~warp.alive) != 0) abandon_deadlock("the mask of a warp collective names an absent lane");
  Meeting& meeting = meeting_for(warp, mask, body);
  meeting.lanes[me->lane] = mine;
  meeting.arrived |= 1u << me->lane;
  if (meeting.arrived != mask) return wait_here(s, me);
  meeting.mask = 0;
  body(meeting.lanes, mask);
  set_ready(s, me->warp, mask);
}

void kernel_failed(const char* what) { abandon_block({.fault = BlockFault::trap, .what = what}); }

void set_condition(uint64_t handle, uint32_t value) {
  const Fiber* me = running_fiber();
  const Grid& grid = *me->owner->work;
  if (grid.rules != nullptr && !me->waited) kernel_failed("set_condition() before wait_for_inputs()");
  for (Conditional* conditional : grid.conditionals) {
    if (conditional->handle != handle) continue;
    conditional->set(value);
    return;
  }
  kernel_failed("set_condition() with a handle that no live graph has, or that is not among the arguments");
}

void lay_out_threads(State& s, const emulation::Index3& block) {
  for (uint32_t i = 0; i < s.threads; ++i) {
    Fiber& f = s.fibers[i];
    f.block = &s;
    f.owner = &s;
    f.thread = {i % block.x, i / block.x % block.y, i / (block.x * block.y)};
    f.lane = i % kWarpLanes;
    f.warp = i / kWarpLanes;
  }
  s.laid_out = block;
}

// The index of the block of rank `rank` in cluster `cluster`, x fastest.
uint64_t block_index(const Grid& g, uint64_t cluster, uint32_t rank) {
  if (g.cluster_blocks() == 1) return cluster;
  const uint64_t across = g.grid.x / g.cluster.x, down = g.grid.y / g.cluster.y;
  const uint64_t x = cluster % across * g.cluster.x + rank % g.cluster.x;
  const uint64_t y = cluster / across % down * g.cluster.y + rank / g.cluster.x % g.cluster.y;
  const uint64_t z = cluster / across / down * g.cluster.z + rank / g.cluster.x / g.cluster.y;
  return x + g.grid.x * (y + g.grid.y * z);
}

void reset(State& s, const Grid& grid, uint64_t index) {
  s.work = &grid;
  s.block = {static_cast<uint32_t>(index % grid.grid.x), static_cast<uint32_t>(index / grid.grid.x % grid.grid.y),
             static_cast<uint32_t>(index / grid.grid.x / grid.grid.y)};
  s.block_size = grid.block;
  s.grid_size = grid.grid;
  s.threads = grid.block.x * grid.block.y * grid.block.z;
  s.warps = (s.threads + kWarpLanes - 1) / kWarpLanes;
  s.alive = s.threads;
  s.arrived = 0;
  s.free_stacks = s.fresh_stacks = 0;
  s.random = (grid.seed + index * 0x9e3779b97f4a7c15ull) | 1;
  s.ready_warps = 0;
  for (uint32_t w = 0; w < s.warps; ++w) {
    const uint32_t lanes = s.threads - w * kWarpLanes;
    s.warp[w].alive = lanes >= kWarpLanes ? ~0u : (1u << lanes) - 1;
    s.warp[w].ready = 0;
    s.warp[w].polling = 0;
    s.warp[w].in_cluster_wait = s.warp[w].arrives.phase = s.warp[w].waits.phase = 0;
    for (Meeting& m : s.warp[w].meetings) m.mask = 0;
    set_ready(s, w, s.warp[w].alive);
  }
  if (memcmp(&s.laid_out, &grid.block, sizeof(grid.block)) != 0) lay_out_threads(s, grid.block);
  for (uint32_t i = 0; i < s.threads; ++i) {
    s.fibers[i].sp = nullptr;
    s.fibers[i].waited = false;
    s.fibers[i].awaits = 0;
  }
  // 0xFF bytes are NaN in every float format: what a block reads before it writes shows. The end is exact to 128 bytes.
  s.shared = s.shared_end - (grid.shared_bytes + 127) / 128 * 128;
  memset(s.shared, 0xff, grid.shared_bytes);
  s.counted = 0;
}

}  // namespace

State::State() {
  const size_t bytes = (kMaxSharedBytes + kPage - 1) / kPage * kPage;
  void* map = mmap(nullptr, bytes + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) throw std::bad_alloc();
  shared_map = static_cast<unsigned char*>(map);
  shared_end = shared_map + bytes;
  mprotect(shared_end, kPage, PROT_NONE);
  for (Fiber& f : fibers) f = {};
}

State::~State() { munmap(shared_map, static_cast<size_t>(shared_end - shared_map) + kPage); }

BlockRunner::BlockRunner() { states_.push_back(std::make_unique<State>()); }
BlockRunner::~BlockRunner() = default;

const BlockFailure& BlockRunner::failure() const { return states_[0]->own_cluster.failure; }

BlockEnd BlockRunner::run(const Grid& grid, uint64_t index) {
  Cluster& cluster = states_[0]->own_cluster;
  cluster.failure.fault = BlockFault::none;
  cluster.size = grid.cluster_blocks();
  try {
    while (states_.size() < cluster.size) states_.push_back(std::make_unique<State>());
    if (grid.meets_peers && stores_ == nullptr) stores_ = std::make_unique<PeerStore[]>(kMaxStores);
  } catch (const std::bad_alloc&) {
    cluster.failure = {.fault = BlockFault::trap, .what = "no memory for the stacks of a cluster's threads"};
    return BlockEnd::failed;
  }
  cluster.stores = grid.meets_peers ? stores_.get() : nullptr;
  cluster.store_count = 0;
  for (uint32_t rank = 0; rank < cluster.size; ++rank) {
    State& s = *(cluster.blocks[rank] = states_[rank].get());
    reset(s, grid, block_index(grid, index, rank));
    s.cluster = &cluster;
    s.rank = rank;
    s.alone = cluster.size == 1;
  }
  cluster.arrived = cluster.phase = 0;
  return go_on(grid.schedule == CpuSchedule::reverse ? cluster.size - 1 : 0);
}

BlockEnd BlockRunner::go_on(uint32_t from_rank) {
  State& first = *states_[from_rank];
  Cluster& cluster = *first.cluster;
  const unsigned host_mxcsr = _mm_getcsr();
  _mm_setcsr(kDefaultMxcsr);
  switch_to(&cluster.main_sp, pick(first, first.work->schedule == CpuSchedule::reverse ? first.warps - 1 : 0));
  _mm_setcsr(host_mxcsr);
  if (cluster.failure.fault != BlockFault::none) return BlockEnd::failed;
  return alive_threads(cluster) > 0 ? BlockEnd::waiting : BlockEnd::finished;
}

void wait_for_others(State& s, Fiber* me) { wait_here(s, me); }

void abandon_block(const BlockFailure& failure) {
  Fiber* me = running_fiber();
  Cluster& cluster = *me->owner->cluster;
  cluster.failure = failure;
  cluster.failure.block = me->owner->block;
  cluster.failure.thread = me->thread;
  running_thread = nullptr;
  nodewright_cpu_switch(&me->sp, cluster.main_sp);
  __builtin_unreachable();
}

emulation::Hooks block_hooks() {
  const char* thread_pointer;
  asm("mov %%fs:0, %0" : "=r"(thread_pointer));
  return {.thread_slot = reinterpret_cast<const char*>(&running_thread) - thread_pointer,
          .barrier = &barrier,
          .rendezvous = &rendezvous,
          .check = &check_access,
          .fail = &kernel_failed,
          .set_condition = &set_condition,
          .cluster_rank = &cluster_rank,
          .cluster_arrive = &cluster_arrive,
          .cluster_wait = &cluster_wait,
          .shared_of_block = &shared_of_block,
          .store_in_peer = &store_in_peer,
          .wait_for_packet = &wait_for_packet};
}

}  // namespace nodewright::cpu
