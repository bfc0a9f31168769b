// Runs one kernel, copy, fill, host call or allocation on the executor's thread, and words what went wrong in it.
#include <algorithm>
#include <cstring>

#include "cpu_driver/driver_state.h"
#include "cpu_driver/graphs/graph_exec.h"
#include "cpu_driver/work/peer_launch.h"
#include "cpu_driver/work/report_words.h"
#include "cpu_driver/work/stream_queue.h"
#include "cpu_driver/work/waiting_work.h"
#include "cpu_driver/work/worker_pool.h"

namespace nodewright::cpu {
namespace {

CUresult result_of(BlockFault fault) {
  switch (fault) {
    case BlockFault::illegal_address:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case BlockFault::timeout:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    default:
      return CUDA_ERROR_LAUNCH_FAILED;
  }
}

// The address that a role field declares, and how many elements from there. Of a Condition: the slot, if it counts.
std::pair<uint64_t, uint64_t> declared_memory(const KernelField& field, const KernelWork& work) {
  uint64_t words[2];
  memcpy(words, work.args.data() + field.offset, sizeof words);
  if (field.role != Role::condition) return {words[0], words[1]};
  const bool by_handle = words[0] != 0;
  return {words[1], by_handle ? 0 : 1};
}

// "node 'l0.qkv', kernel gemv: a store through In, 4 bytes, field 'x' +128 (0x..., at byte 128 of buffer 'scores' ...),
// block (0,0,0), thread (5,0,0)"
std::string describe(const State& state, const std::string& label, const KernelWork& work, const BlockFailure& f) {
  const KernelImage& image = *work.loaded->image;
  std::string line = node_text(label, image.name) + ": " + f.what;
  if (f.fault == BlockFault::bad_access) {
    static const char* const kAccess[] = {"read", "write", "atomic", "frozen load", "push", "take"};
    line += ", " + std::string(kAccess[f.access]) + " of " + std::to_string(f.bytes) + " bytes";
  }
  if (f.field >= 0) {
    const KernelField& field = image.fields[static_cast<size_t>(f.field)];
    const auto offset = static_cast<int64_t>(f.address - declared_memory(field, work).first);
    line += ", " + std::string(f.what == std::string_view("an undeclared read") ||
                                       f.what == std::string_view("an undeclared write")
                                   ? "nearest field '"
                                   : "field '");
    line += field.name + "' byte " + std::to_string(offset);
  } else if (f.address != 0) {
    for (const KernelField& field : image.fields) {
      if (!is_memory(field.role)) continue;
      const auto [address, count] = declared_memory(field, work);
      if (address <= f.address && f.address < address + count * field.element_bytes)
        line += ", field '" + field.name + "' byte " + std::to_string(f.address - address);
    }
  }
  if (f.address != 0) line += ", address " + hex(f.address) + " " + state.memory->describe(f.address);
  return line + ", block " + index_text(f.block) + ", thread " + index_text(f.thread);
}

// Those of the Condition arguments whose graph or executable graph still lives.
std::vector<std::shared_ptr<Conditional>> conditionals_of(const State& state, const KernelWork& work) {
  std::vector<std::shared_ptr<Conditional>> found;
  for (const KernelField& field : work.loaded->image->fields) {
    if (field.role != Role::condition) continue;
    CUgraphConditionalHandle handle = 0;
    memcpy(&handle, work.args.data() + field.offset, sizeof handle);
    const auto entry = state.conditionals.find(handle);
    if (entry == state.conditionals.end()) continue;
    if (auto conditional = entry->second.lock(); conditional != nullptr) found.push_back(std::move(conditional));
  }
  return found;
}

AccessRules rules_for(const State& state, const KernelWork& work) {
  const KernelImage& image = *work.loaded->image;
  AccessRules rules;
  rules.device_begin = state.memory->begin();
  rules.device_end = state.memory->end();
  rules.image_begin = image.mapped_begin;
  rules.image_end = image.mapped_end;
  for (size_t i = 0; i < image.fields.size(); ++i) {
    const KernelField& field = image.fields[i];
    if (!is_memory(field.role)) continue;
    const auto [address, count] = declared_memory(field, work);
    rules.ranges.push_back(
        {address, address + count * field.element_bytes, field.role == Role::condition ? Role::partial_out : field.role,
         static_cast<int>(i),
         field.role == Role::out ? std::make_unique<StoredElements>(count, field.element_bytes) : nullptr});
  }
  return rules;
}

// An Out that a finished launch left without some elements, in words; empty if there is none.
std::string unwritten_field(const State& state, const KernelWork& work, const AccessRules& rules) {
  for (const DeclaredRange& range : rules.ranges) {
    if (range.stored == nullptr) continue;
    const uint64_t first = range.stored->first_missing(), byte = first * range.stored->bytes();
    if (first == range.stored->count()) continue;
    const std::string& name = work.loaded->image->fields[static_cast<size_t>(range.field)].name;
    return "Out field '" + name + "' is not wholly written: no thread stores element " + std::to_string(first) +
           ", byte " + std::to_string(byte) + ", address " + hex(range.begin + byte) + " " +
           state.memory->describe(range.begin + byte) + "; " + std::to_string(range.stored->missing()) + " of " +
           std::to_string(range.stored->count()) +
           " elements are missing; pass a view of those that are written, or declare the field PartialOut<T>";
  }
  return {};
}

uint32_t blocks_of(const emulation::Index3& size) { return size.x * size.y * size.z; }

void run_host_function(State& state, Lock& lock, const std::string& label, const KernelWork& work) {
  const std::shared_ptr<LoadedImage> keep = work.loaded;
  lock.unlock();
  const char* problem = keep->image->run_host_function(work.args.data());
  lock.lock();
  if (problem != nullptr)
    state.fail(CUDA_ERROR_LAUNCH_FAILED, node_text(label, keep->image->name) + ": its stand-in threw: " + problem);
}

// A field in another device's memory that the launch's device has no access to, in words; empty if there is none.
std::string foreign_field(const State& state, const KernelWork& work) {
  for (const KernelField& field : work.loaded->image->fields) {
    if (!is_memory(field.role) || field.role == Role::condition) continue;
    const auto [address, count] = declared_memory(field, work);
    const DeviceMemory::Block* block = count == 0 ? nullptr : state.memory->find_reserved(address, 1);
    if (block == nullptr || state.may_access(work.device, *block)) continue;
    return "field '" + field.name + "' is memory of device " + std::to_string(block->device) +
           ", to which the launch's device " + std::to_string(work.device) +
           " has no access (cuCtxEnablePeerAccess), address " + hex(address) + " " + state.memory->describe(address);
  }
  return {};
}

std::unique_ptr<LaunchedGrid> launched_grid(State& state, const KernelWork& work) {
  const KernelImage& image = *work.loaded->image;
  auto launched = std::make_unique<LaunchedGrid>();
  const bool check = state.options.check_accesses && image.checked;
  launched->keep = work.loaded;
  if (check) launched->rules = rules_for(state, work);
  launched->conditionals = conditionals_of(state, work);
  for (const auto& conditional : launched->conditionals) launched->settable.push_back(conditional.get());
  launched->grid = {.entry = image.entry,
                    .args = work.args.data(),
                    .args_bytes = image.args_bytes,
                    .grid = work.grid,
                    .block = work.block,
                    .cluster = work.attributes.cluster,
                    .device_has_clusters = state.options.compute_capability >= 90,
                    .shared_bytes = work.shared_bytes,
                    .schedule = state.options.schedule,
                    .seed = state.options.seed + ++state.launches * 0x2545f4914f6cdd1dull,
                    .rules = check ? &launched->rules : nullptr,
                    .threads_wait = check && image.waits,
                    .meets_peers = image.meets_peers,
                    .conditionals = launched->settable};
  return launched;
}

Progress run_kernel(State& state, Lock& lock, WorkerPool& pool, const std::string& label, KernelWork& work,
                    WorkState& at) {
  const KernelImage& image = *work.loaded->image;
  if (image.is_host_function()) {
    run_host_function(state, lock, label, work);
    return Progress::finished;
  }
  BlockFailure failure;
  std::string unwritten;
  Progress progress = Progress::finished;
  if (at.launch == nullptr) {
    if (const std::string foreign = foreign_field(state, work); !foreign.empty()) {
      state.fail(CUDA_ERROR_ILLEGAL_ADDRESS, node_text(label, image.name) + ": " + foreign);
      return progress;
    }
    auto launched = launched_grid(state, work);
    if (image.meets_peers) {
      at.launch = std::make_shared<PeerLaunch>(label, work, std::move(launched),
                                               std::max<uint64_t>(1, resident_clusters(state, work)));
    } else {
      lock.unlock();
      failure = pool.run(launched->grid, launched->keep->ns_per_block);
      lock.lock();
      unwritten = unwritten_field(state, work, launched->rules);
    }
  }
  if (at.launch != nullptr) {
    progress = at.launch->step(state, lock, pool, failure);
    if (progress == Progress::finished) unwritten = unwritten_field(state, work, at.launch->rules());
  }
  if (failure.fault != BlockFault::none)
    state.fail(result_of(failure.fault), describe(state, label, work, failure));
  else if (!unwritten.empty())
    state.fail(CUDA_ERROR_LAUNCH_FAILED, node_text(label, image.name) + ": " + unwritten);
  return progress;
}

// A device range that is gone by now, in words; empty if both ends are still there.
std::string lost_end(const State& state, const CUDA_MEMCPY3D& copy) {
  const CopyEnds ends = copy_ends(copy);
  const auto lost = [&](const void* at, size_t pitch, size_t slice) {
    const auto address = reinterpret_cast<uint64_t>(at);
    const uint64_t extent = (copy.Depth - 1) * slice + (copy.Height - 1) * pitch + copy.WidthInBytes;
    return state.memory->contains(address) && state.memory->find(address, extent) == nullptr ? address : 0;
  };
  if (copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0) return {};
  uint64_t address = lost(ends.from, ends.from_pitch, ends.from_slice);
  if (address == 0) address = lost(ends.to, ends.to_pitch, ends.to_slice);
  return address == 0 ? std::string() : "address " + hex(address) + " " + state.memory->describe(address);
}

void run_copy(State& state, Lock& lock, const std::string& label, CopyWork& work) {
  if (!work.staged.empty()) work.copy.srcHost = work.staged.data();
  const auto linear = without_arrays(state, work.copy);
  const std::string lost = linear ? lost_end(state, *linear) : "an array of the copy";
  if (!lost.empty())
    return state.fail(CUDA_ERROR_ILLEGAL_ADDRESS, node_text(label, "(copy)") + ": memory was freed, " + lost);
  const CUDA_MEMCPY3D& copy = *linear;
  const CopyEnds ends = copy_ends(copy);
  const auto from = reinterpret_cast<uint64_t>(ends.from);
  const DeviceMemory::Block* source = state.memory->find(from, copy.WidthInBytes);
  const bool pinned =
      source != nullptr ? source->kind == DeviceMemory::Kind::pinned : state.is_registered(from, copy.WidthInBytes);
  const bool poison = work.poison && pinned;
  lock.unlock();
  for (size_t z = 0; z < copy.Depth; ++z)
    for (size_t y = 0; y < copy.Height; ++y) {
      const std::byte* row = ends.from + z * ends.from_slice + y * ends.from_pitch;
      memmove(ends.to + z * ends.to_slice + y * ends.to_pitch, row, copy.WidthInBytes);
      if (poison) memset(const_cast<std::byte*>(row), 0xa5, copy.WidthInBytes);
    }
  lock.lock();
}

void run_allocation(State& state, const std::string& label, const AllocateWork& work) {
  const DeviceMemory::Block* block = state.memory->starting_at(work.address);
  if (block != nullptr && block->live)
    return state.fail(CUDA_ERROR_ILLEGAL_STATE, node_text(label, "(allocation)") +
                                                    ": its memory is allocated already, it begins " +
                                                    state.memory->describe(work.address));
  if (block == nullptr || !state.memory->commit(work.address))
    state.fail(CUDA_ERROR_OUT_OF_MEMORY,
               node_text(label, "(allocation)") + ": " + std::to_string(work.bytes) + " bytes, and " +
                   std::to_string(state.memory->capacity() - state.memory->used(work.device)) + " are free");
}

void run_fill(State& state, Lock& lock, const std::string& label, const CUDA_MEMSET_NODE_PARAMS& fill) {
  const size_t row_bytes = fill.width * fill.elementSize;
  const size_t extent = (fill.height - 1) * fill.pitch + row_bytes;
  if (row_bytes == 0 || fill.height == 0) return;
  if (state.memory->find(fill.dst, extent) == nullptr)
    return state.fail(CUDA_ERROR_ILLEGAL_ADDRESS, node_text(label, "(fill)") + ": memory was freed, address " +
                                                      hex(fill.dst) + " " + state.memory->describe(fill.dst));
  lock.unlock();
  for (size_t y = 0; y < fill.height; ++y) {
    auto* row = reinterpret_cast<unsigned char*>(fill.dst) + y * fill.pitch;
    if (fill.elementSize == 1)
      memset(row, static_cast<int>(fill.value & 0xff), fill.width);
    else
      for (size_t x = 0; x < fill.width; ++x) memcpy(row + x * fill.elementSize, &fill.value, fill.elementSize);
  }
  lock.lock();
}

}  // namespace

Progress run_work(State& state, Lock& lock, WorkerPool& pool, Work& work, WorkState& at) {
  const auto unless_it_waits = [&](bool done) {
    state.host_may_help |= !done;
    return done ? Progress::finished : Progress::blocked;
  };
  if (auto* kernel = std::get_if<KernelWork>(&work.what)) {
    if (blocks_of(kernel->grid) > 0) return run_kernel(state, lock, pool, work.label, *kernel, at);
  } else if (auto* copy = std::get_if<CopyWork>(&work.what)) {
    run_copy(state, lock, work.label, *copy);
  } else if (auto* fill = std::get_if<FillWork>(&work.what)) {
    run_fill(state, lock, work.label, fill->fill);
  } else if (auto* host = std::get_if<HostWork>(&work.what)) {
    lock.unlock();
    host->function(host->data);
    lock.lock();
  } else if (auto* allocate = std::get_if<AllocateWork>(&work.what)) {
    run_allocation(state, work.label, *allocate);
  } else if (auto* free = std::get_if<FreeWork>(&work.what)) {
    if (!state.memory->release(free->address, DeviceMemory::Kind::device))
      state.fail(CUDA_ERROR_ILLEGAL_ADDRESS, node_text(work.label, "(free)") + ": no memory begins there, address " +
                                                 hex(free->address) + " " + state.memory->describe(free->address));
  } else if (auto* values = std::get_if<ValueWork>(&work.what)) {
    return unless_it_waits(run_values(state, work.label, *values, at.done, state.waiting_for));
  } else if (auto* semaphores = std::get_if<SemaphoreWork>(&work.what)) {
    return unless_it_waits(run_semaphores(work.label, *semaphores, at.done, state.waiting_for));
  }
  return Progress::finished;
}

}  // namespace nodewright::cpu
