// On the fiber that makes the access: fast when it is declared, abandons the block when it is not.
#include "cpu_driver/blocks/access_check.h"

#include "cpu_driver/blocks/block_state.h"

namespace nodewright::cpu {
namespace {

using emulation::Access;

bool reads(Access access) { return access != Access::write && access != Access::peer_write; }
bool writes(Access access) { return !reads(access) || access == Access::atomic; }

const char* peer_objection(Role role, Access access) {
  if ((role == Role::peer_out) != (access == Access::peer_write))
    return role == Role::peer_out ? "an access to PeerOut that is no push()"
                                  : "a push() through a field that is not PeerOut";
  if ((role == Role::peer_in) != (access == Access::peer_read))
    return role == Role::peer_in ? "an access to PeerIn that is no take()" : "a take() from a field that is not PeerIn";
  return nullptr;
}

// Null when a range of this role allows the access.
const char* objection(Role role, Access access, bool waited) {
  if (const char* why = peer_objection(role, access); why != nullptr) return why;
  if (access == Access::frozen_read && role != Role::frozen) return "a frozen load from a field that is not Frozen";
  if (writes(access) && (role == Role::in || role == Role::settled)) return "a store through In";
  if (writes(access) && role == Role::frozen) return "a store through Frozen";
  if (reads(access) && (role == Role::out || role == Role::partial_out)) return "a read of Out, which is never read";
  if (!waited && (writes(access) || !reads_before_wait(role))) return "an access before wait_for_inputs()";
  return nullptr;
}

struct Verdict {
  const char* objection = nullptr;
  int field = -1;
  bool found = false;
};

// Fields of one node may overlap when none is written: any that allows the access will do.
Verdict judge(const AccessRules& rules, uint64_t begin, uint64_t end, Access access, bool waited) {
  Verdict verdict;
  for (const DeclaredRange& range : rules.ranges) {
    if (begin < range.begin || end > range.end) continue;
    const char* why = objection(range.role, access, waited);
    if (why == nullptr) {
      if (range.stored != nullptr) range.stored->add(begin - range.begin, end - range.begin);
      return {nullptr, range.field, true};
    }
    if (!verdict.found) verdict = {why, range.field, true};
  }
  return verdict;
}

int nearest_field(const AccessRules& rules, uint64_t address) {
  int field = -1;
  uint64_t best = ~0ull;
  for (const DeclaredRange& range : rules.ranges) {
    const uint64_t distance = address < range.begin  ? range.begin - address
                              : address >= range.end ? address - range.end + 1
                                                     : 0;
    if (distance < best) {
      best = distance;
      field = range.field;
    }
  }
  return field;
}

// The block's own memory: indices, shared memory up to its exact size. The rest of the shared arena is not.
const char* objection_outside_device(const BlockRunner::State& s, const AccessRules& rules, uint64_t begin,
                                     uint64_t end) {
  const auto shared = reinterpret_cast<uint64_t>(s.shared), arena = reinterpret_cast<uint64_t>(s.shared_map);
  const auto arena_end = reinterpret_cast<uint64_t>(s.shared_end);
  if (begin >= arena && begin < arena_end + 4096)
    return begin >= shared && end <= shared + s.work->shared_bytes ? nullptr
                                                                   : "an access beyond the shared memory of the block";
  const auto self = reinterpret_cast<uint64_t>(&s);
  if (begin >= self && end <= self + sizeof(s)) return nullptr;
  const auto args = reinterpret_cast<uint64_t>(s.work->args);
  if (begin >= args && end <= args + s.work->args_bytes) return nullptr;
  if (begin >= rules.image_begin && end <= rules.image_end) return nullptr;
  const auto slot = reinterpret_cast<uint64_t>(&running_thread);
  if (begin == slot) return nullptr;
  return "an access to host memory";
}

}  // namespace

void check_access(const volatile void* address, size_t bytes, Access access) {
  Fiber* me = running_fiber();
  if (me == nullptr) return;  // the image's own start-up code
  const BlockRunner::State& s = *me->owner;
  if (s.work->rules == nullptr || s.stacks.contains(const_cast<const void*>(address))) return;
  const AccessRules& rules = *s.work->rules;
  const auto begin = reinterpret_cast<uint64_t>(address), end = begin + bytes;
  const bool on_device = begin >= rules.device_begin && begin < rules.device_end;
  const char* why = on_device ? nullptr : objection_outside_device(s, rules, begin, end);
  if (!on_device && why == nullptr) return;
  int field = -1;
  const Verdict verdict = judge(rules, begin, end, access, me->waited);  // fields may lie in pinned memory, too
  if (verdict.found && verdict.objection == nullptr) return;
  if (on_device || verdict.found) {
    why = verdict.found ? verdict.objection : writes(access) ? "an undeclared write" : "an undeclared read";
    field = verdict.found ? verdict.field : nearest_field(rules, begin);
  }
  abandon_block({.fault = BlockFault::bad_access,
                 .what = why,
                 .address = begin,
                 .bytes = static_cast<uint32_t>(bytes),
                 .access = static_cast<uint32_t>(access),
                 .field = field});
}

}  // namespace nodewright::cpu
