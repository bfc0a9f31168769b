// cuStreamWaitValue32, cuStreamBatchMemOp and cuSignalExternalSemaphoresAsync in cuda.h state what the operations do.
#include "cpu_driver/work/waiting_work.h"

#include <atomic>
#include <type_traits>

#include "cpu_driver/driver_state.h"
#include "cpu_driver/work/report_words.h"

namespace nodewright::cpu {
namespace {

constexpr unsigned kMostOperations = 255;  // cuStreamBatchMemOp in cuda.h: "must be less than 256"

std::string node_text(const std::string& label) { return label.empty() ? "unnamed node" : "node '" + label + "'"; }

bool is_wait(const CUstreamBatchMemOpParams& operation) {
  return operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}
bool is_write(const CUstreamBatchMemOpParams& operation) {
  return operation.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
         operation.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
}
unsigned bytes_of(const CUstreamBatchMemOpParams& operation) {
  return operation.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || operation.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64
             ? 8
             : 4;
}

template <class T>
T load(uint64_t address) {
  return std::atomic_ref<T>(*reinterpret_cast<T*>(address)).load(std::memory_order_acquire);
}
template <class T>
void store(uint64_t address, T value) {
  std::atomic_ref<T>(*reinterpret_cast<T*>(address)).store(value, std::memory_order_release);
}

template <class T>
bool satisfied(T held, T value, unsigned flags) {
  switch (flags) {
    case CU_STREAM_WAIT_VALUE_EQ:
      return held == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (held & value) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
      return static_cast<T>(~(held | value)) != 0;
    default:
      return static_cast<std::make_signed_t<T>>(held - value) >= 0;
  }
}

const char* comparison(unsigned flags) {
  static const char* const kNames[] = {"at least", "equal to", "with a bit of", "with a bit that is 0 there and in"};
  return kNames[flags & 3];
}

bool is_there(const State& state, uint64_t address, unsigned bytes) {
  return state.memory->find(address, bytes) != nullptr || state.is_registered(address, bytes);
}

}  // namespace

CUresult make_value_work(State& state, unsigned count, const CUstreamBatchMemOpParams* operations, unsigned flags,
                         ValueWork& work) {
  if (flags != 0) return refuse(CUDA_ERROR_INVALID_VALUE, "flags of the batch are not 0");
  if (count == 0 || count > kMostOperations || operations == nullptr)
    return refuse(CUDA_ERROR_INVALID_VALUE, std::to_string(count) + " operations in a batch, which holds 1 to 255");
  for (unsigned i = 0; i < count; ++i) {
    const CUstreamBatchMemOpParams& operation = operations[i];
    const std::string what = "operation " + std::to_string(i) + " of the batch ";
    if (!is_wait(operation) && !is_write(operation))
      return refuse(CUDA_ERROR_NOT_SUPPORTED, what + "neither waits for a value nor writes one");
    const unsigned limit =
        is_wait(operation) ? unsigned{CU_STREAM_WAIT_VALUE_NOR} : unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER};
    if (operation.waitValue.flags > limit) return refuse(CUDA_ERROR_INVALID_VALUE, what + "has unknown flags");
    const uint64_t address = operation.waitValue.address;
    const unsigned bytes = bytes_of(operation);
    if (address % bytes != 0)
      return refuse(CUDA_ERROR_INVALID_VALUE,
                    what + "is at " + hex(address) + ", not a multiple of its " + std::to_string(bytes) + " bytes");
    // Nor in memory that a graph allocates: NVIDIA's driver refuses the launch of such a graph (H100, 580.159.04).
    if (!is_there(state, address, bytes))
      return refuse(CUDA_ERROR_INVALID_VALUE,
                    what + "is outside device and pinned memory: it is " + state.memory->describe(address));
  }
  work.operations.assign(operations, operations + count);
  return CUDA_SUCCESS;
}

bool may_become(const ValueWork& now, const ValueWork& next) {
  if (now.operations.size() != next.operations.size()) return false;
  for (size_t i = 0; i < now.operations.size(); ++i) {
    const CUstreamBatchMemOpParams &a = now.operations[i], &b = next.operations[i];
    if (a.operation != b.operation || (is_write(a) && a.writeValue.flags != b.writeValue.flags)) return false;
  }
  return true;
}

bool run_values(State& state, const std::string& label, const ValueWork& work, size_t& done, std::string& why) {
  for (; done < work.operations.size(); ++done) {
    const CUstreamBatchMemOpParams& operation = work.operations[done];
    const uint64_t address = operation.waitValue.address;
    const unsigned bytes = bytes_of(operation);
    if (!is_there(state, address, bytes)) {
      state.fail(CUDA_ERROR_ILLEGAL_ADDRESS, node_text(label) + ", value operation " + std::to_string(done) +
                                                 ": address " + hex(address) + " " + state.memory->describe(address));
      return true;
    }
    if (is_write(operation)) {
      if (bytes == 8)
        store<uint64_t>(address, operation.writeValue.value64);
      else
        store<uint32_t>(address, operation.writeValue.value);
      continue;
    }
    const unsigned flags = operation.waitValue.flags;
    const uint64_t wanted = bytes == 8 ? operation.waitValue.value64 : operation.waitValue.value;
    const uint64_t held = bytes == 8 ? load<uint64_t>(address) : load<uint32_t>(address);
    const bool met = bytes == 8
                         ? satisfied<uint64_t>(held, wanted, flags)
                         : satisfied<uint32_t>(static_cast<uint32_t>(held), static_cast<uint32_t>(wanted), flags);
    if (met) continue;
    why = node_text(label) + " waits for a value " + comparison(flags) + " " + hex(wanted) + ", and " + hex(held) +
          " is " + state.memory->describe(address);
    return false;
  }
  return true;
}

bool run_semaphores(const std::string& label, const SemaphoreWork& work, size_t& done, std::string& why) {
  for (; done < work.semaphores.size(); ++done) {
    Semaphore& semaphore = *work.semaphores[done];
    const uint64_t value = semaphore.counts ? work.values[done] : 1;
    if (work.signal) {
      semaphore.value = value;
    } else if (semaphore.value < value) {
      why = node_text(label) + " waits for an external semaphore to reach " + std::to_string(value) + ", and it is " +
            std::to_string(semaphore.value);
      return false;
    } else if (!semaphore.counts) {
      semaphore.value = 0;
    }
  }
  return true;
}

}  // namespace nodewright::cpu
