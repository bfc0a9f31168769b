// The rules for launch, copy and fill parameters. Stricter than NVIDIA's driver where cuda.h states a rule.
#include "cpu_driver/work/work.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "cpu_driver/driver_state.h"

namespace nodewright::cpu {
namespace {

constexpr uint32_t kMaxGridX = 0x7fffffff, kMaxGridYZ = 65535;
constexpr uint32_t kMaxBlockXY = 1024, kMaxBlockZ = 64;

std::string number(uint64_t value) { return std::to_string(value); }

struct End {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  size_t x, y, z, pitch, height;
};

End source(const CUDA_MEMCPY3D& c) {
  return {c.srcMemoryType, c.srcHost, c.srcDevice, c.srcXInBytes, c.srcY, c.srcZ, c.srcPitch, c.srcHeight};
}
End target(const CUDA_MEMCPY3D& c) {
  return {c.dstMemoryType, c.dstHost, c.dstDevice, c.dstXInBytes, c.dstY, c.dstZ, c.dstPitch, c.dstHeight};
}

size_t pitch_of(const End& end, const CUDA_MEMCPY3D& copy) { return end.pitch != 0 ? end.pitch : copy.WidthInBytes; }
size_t slice_of(const End& end, const CUDA_MEMCPY3D& copy) {
  return pitch_of(end, copy) * (end.height != 0 ? end.height : copy.Height);
}

uint64_t first_byte(const End& end, const CUDA_MEMCPY3D& copy) {
  const uint64_t base = end.type == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(end.host) : end.device;
  return base + end.x + end.y * pitch_of(end, copy) + end.z * slice_of(end, copy);
}

CUresult check_end(State& state, const End& end, const CUDA_MEMCPY3D& copy, const char* name) {
  if (end.type != CU_MEMORYTYPE_HOST && end.type != CU_MEMORYTYPE_DEVICE && end.type != CU_MEMORYTYPE_UNIFIED)
    return refuse(CUDA_ERROR_INVALID_VALUE, std::string("the copy's ") + name + " is neither host nor device memory");
  // cuMemcpy3D in cuda.h.
  if (end.pitch != 0 && end.pitch < end.x + copy.WidthInBytes)
    return refuse(CUDA_ERROR_INVALID_VALUE, std::string("the copy's ") + name + " pitch of " + number(end.pitch) +
                                                " bytes is less than its first column plus its width, " +
                                                number(end.x + copy.WidthInBytes));
  if (end.height != 0 && end.height < end.y + copy.Height)
    return refuse(CUDA_ERROR_INVALID_VALUE,
                  std::string("the copy's ") + name + " height is less than its first row plus its rows");
  const uint64_t begin = first_byte(end, copy);
  const uint64_t extent =
      (copy.Depth - 1) * slice_of(end, copy) + (copy.Height - 1) * pitch_of(end, copy) + copy.WidthInBytes;
  const bool known = state.memory->contains(begin);
  if (!known && end.type == CU_MEMORYTYPE_HOST && begin != 0) return CUDA_SUCCESS;  // pageable
  const DeviceMemory::Block* block = state.memory->find_reserved(begin, extent);
  if (block == nullptr)
    return refuse(CUDA_ERROR_INVALID_VALUE, std::string("the copy's ") + name + " of " + number(extent) +
                                                " bytes is not within one allocation: it begins " +
                                                state.memory->describe(begin));
  if (end.type == CU_MEMORYTYPE_HOST && block->kind == DeviceMemory::Kind::device)
    return refuse(CUDA_ERROR_INVALID_VALUE, std::string("the copy's ") + name + " is device memory, said to be host");
  return CUDA_SUCCESS;
}

// The buffer that a list of CU_LAUNCH_PARAM_* names and values gives. False: it gives none.
bool read_extra(void** extra, const std::byte*& from, size_t& bytes) {
  const size_t* size = nullptr;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
      from = static_cast<const std::byte*>(extra[1]);
    else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
      size = static_cast<const size_t*>(extra[1]);
    else
      return false;
  }
  bytes = size != nullptr ? *size : 0;
  return from != nullptr && size != nullptr;
}

}  // namespace

CopyEnds copy_ends(const CUDA_MEMCPY3D& copy) {
  const End from = source(copy), to = target(copy);
  return {.to = reinterpret_cast<std::byte*>(first_byte(to, copy)),
          .from = reinterpret_cast<const std::byte*>(first_byte(from, copy)),
          .to_pitch = pitch_of(to, copy),
          .to_slice = slice_of(to, copy),
          .from_pitch = pitch_of(from, copy),
          .from_slice = slice_of(from, copy)};
}

namespace {

template <class T>
bool same_bytes(const T& a, const T& b) {
  return memcmp(&a, &b, sizeof a) == 0;
}

bool same(const KernelAttributes& a, const KernelAttributes& b) {
  return same_bytes(a.cluster, b.cluster) && a.cooperative == b.cooperative && a.priority == b.priority &&
         a.shared_carveout_percent == b.shared_carveout_percent && a.domain == b.domain;
}
bool same(const KernelWork& a, const KernelWork& b) {
  return a.loaded == b.loaded && same_bytes(a.grid, b.grid) && same_bytes(a.block, b.block) &&
         a.shared_bytes == b.shared_bytes && a.args == b.args && same(a.attributes, b.attributes) && a.green == b.green;
}
bool same(const CopyWork& a, const CopyWork& b) { return same_bytes(a.copy, b.copy) && a.staged == b.staged; }
bool same(const FillWork& a, const FillWork& b) { return same_bytes(a.fill, b.fill); }
bool same(const HostWork& a, const HostWork& b) { return a.function == b.function && a.data == b.data; }
bool same(const RecordWork& a, const RecordWork& b) { return a.event == b.event; }
bool same(const WaitWork& a, const WaitWork& b) { return a.event == b.event; }
bool same(const ValueWork& a, const ValueWork& b) {
  return std::equal(a.operations.begin(), a.operations.end(), b.operations.begin(), b.operations.end(),
                    same_bytes<CUstreamBatchMemOpParams>);
}
bool same(const SemaphoreWork& a, const SemaphoreWork& b) { return a.handles == b.handles && a.values == b.values; }
bool same(const std::monostate&, const std::monostate&) { return true; }
template <class A, class B>
bool same(const A&, const B&) {
  return false;
}

}  // namespace

bool same_parameters(const Work& a, const Work& b) {
  return std::visit([](const auto& x, const auto& y) { return same(x, y); }, a.what, b.what);
}

CUDA_MEMCPY3D linear_copy(CUmemorytype to_type, uint64_t to, CUmemorytype from_type, uint64_t from, size_t bytes) {
  CUDA_MEMCPY3D copy{};
  copy.dstMemoryType = to_type;
  copy.srcMemoryType = from_type;
  if (to_type == CU_MEMORYTYPE_HOST)
    copy.dstHost = reinterpret_cast<void*>(to);
  else
    copy.dstDevice = to;
  if (from_type == CU_MEMORYTYPE_HOST)
    copy.srcHost = reinterpret_cast<const void*>(from);
  else
    copy.srcDevice = from;
  copy.WidthInBytes = bytes;
  copy.Height = copy.Depth = 1;
  return copy;
}

std::optional<CUDA_MEMCPY3D> without_arrays(const State& state, const CUDA_MEMCPY3D& copy) {
  CUDA_MEMCPY3D result = copy;
  if (copy.srcMemoryType == CU_MEMORYTYPE_ARRAY) {
    const auto array = state.arrays.find(copy.srcArray);
    if (array == nullptr) return std::nullopt;
    result.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    result.srcDevice = array->address;
    result.srcPitch = array->row_bytes();
    result.srcHeight = array->rows();
  }
  if (copy.dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    const auto array = state.arrays.find(copy.dstArray);
    if (array == nullptr) return std::nullopt;
    result.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    result.dstDevice = array->address;
    result.dstPitch = array->row_bytes();
    result.dstHeight = array->rows();
  }
  return result;
}

CUresult check_copy(State& state, const CUDA_MEMCPY3D& held) {
  if (held.srcMemoryType == CU_MEMORYTYPE_ARRAY || held.dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    const auto linear = without_arrays(state, held);
    if (!linear) return refuse(CUDA_ERROR_INVALID_HANDLE, "no such array: never made, or destroyed");
    for (const auto& [type, array, x, name] :
         {std::tuple(held.srcMemoryType, held.srcArray, held.srcXInBytes, "source"),
          std::tuple(held.dstMemoryType, held.dstArray, held.dstXInBytes, "target")}) {
      if (type != CU_MEMORYTYPE_ARRAY) continue;
      const size_t element = state.arrays.find(array)->element_bytes;
      if (x % element != 0 || held.WidthInBytes % element != 0)
        return refuse(CUDA_ERROR_INVALID_VALUE, std::string("the copy's ") + name + " is an array of elements of " +
                                                    number(element) + " bytes, and its column or width is no multiple");
    }
    return check_copy(state, *linear);
  }
  const CUDA_MEMCPY3D& copy = held;
  if (copy.reserved0 != nullptr || copy.reserved1 != nullptr || copy.srcLOD != 0 || copy.dstLOD != 0)
    return refuse(CUDA_ERROR_INVALID_VALUE, "reserved or LOD members of the copy are not zero");
  if (copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0) return CUDA_SUCCESS;
  if (const CUresult result = check_end(state, source(copy), copy, "source"); result != CUDA_SUCCESS) return result;
  return check_end(state, target(copy), copy, "target");
}

CUresult check_fill(State& state, const CUDA_MEMSET_NODE_PARAMS& fill) {
  if (fill.elementSize != 1 && fill.elementSize != 2 && fill.elementSize != 4)
    return refuse(CUDA_ERROR_INVALID_VALUE,
                  "the fill's element size is " + number(fill.elementSize) + ", not 1, 2 or 4");
  if (fill.elementSize < 4 && fill.value >> (8 * fill.elementSize) != 0)
    return refuse(CUDA_ERROR_INVALID_VALUE, "the fill's value does not fit its element size");
  if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
  if (fill.dst % fill.elementSize != 0) return refuse(CUDA_ERROR_INVALID_VALUE, "the fill's target is not aligned");
  const size_t row_bytes = fill.width * fill.elementSize;
  if (fill.height > 1 && fill.pitch < row_bytes)
    return refuse(CUDA_ERROR_INVALID_VALUE, "the fill's pitch of " + number(fill.pitch) +
                                                " bytes is less than its width of " + number(row_bytes));
  if (fill.height > 1 && fill.pitch % fill.elementSize != 0)
    return refuse(CUDA_ERROR_INVALID_VALUE, "the fill's pitch is not a multiple of its element size");
  if (fill.width > SIZE_MAX / fill.elementSize ||
      (fill.height > 1 && fill.height - 1 > (SIZE_MAX - row_bytes) / fill.pitch))
    return refuse(CUDA_ERROR_INVALID_VALUE, "the fill reaches beyond the last address");
  const size_t extent = (fill.height - 1) * fill.pitch + row_bytes;
  if (state.memory->find_reserved(fill.dst, extent) == nullptr)
    return refuse(CUDA_ERROR_INVALID_VALUE, "the fill of " + number(extent) +
                                                " bytes is not within one allocation: it begins " +
                                                state.memory->describe(fill.dst));
  return CUDA_SUCCESS;
}

bool may_become(const CUDA_MEMSET_NODE_PARAMS& now, const CUDA_MEMSET_NODE_PARAMS& next) {
  if (now.height != next.height) return false;
  return now.height == 1 || (now.width == next.width && now.pitch == next.pitch && now.elementSize == next.elementSize);
}

CUresult make_kernel_work(State& state, const CUDA_KERNEL_NODE_PARAMS& params, KernelWork& work) {
  // cuLaunchKernelEx also takes a CUkernel cast to CUfunction.
  work.by_kernel = params.func == nullptr;
  work.loaded = work.by_kernel ? state.kernels.find(params.kern) : state.functions.find(params.func);
  if (work.loaded == nullptr && !work.by_kernel)
    work.loaded = state.kernels.find(reinterpret_cast<CUkernel>(params.func));
  if (work.loaded == nullptr)
    return refuse(CUDA_ERROR_INVALID_HANDLE, "no such kernel: never loaded, or its library was unloaded");
  if (params.func != nullptr && params.kern != nullptr)
    return refuse(CUDA_ERROR_INVALID_VALUE, "both a function and a kernel are given");
  const KernelImage& image = *work.loaded->image;
  const std::string what = "kernel " + image.name + ": ";
  const auto bad = [&](const std::string& why) { return refuse(CUDA_ERROR_INVALID_VALUE, what + why); };
  const uint64_t grid[] = {params.gridDimX, params.gridDimY, params.gridDimZ};
  const uint64_t block[] = {params.blockDimX, params.blockDimY, params.blockDimZ};
  if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0 || block[0] == 0 || block[1] == 0 || block[2] == 0)
    return bad("a dimension of the launch is 0");
  if (grid[0] > kMaxGridX || grid[1] > kMaxGridYZ || grid[2] > kMaxGridYZ)
    return bad("the grid is " + number(grid[0]) + "x" + number(grid[1]) + "x" + number(grid[2]) +
               ", at most 2147483647x65535x65535");
  if (block[0] > kMaxBlockXY || block[1] > kMaxBlockXY || block[2] > kMaxBlockZ)
    return bad("the block is " + number(block[0]) + "x" + number(block[1]) + "x" + number(block[2]) +
               ", at most 1024x1024x64");
  if (block[0] * block[1] * block[2] > image.max_threads)
    return bad(number(block[0] * block[1] * block[2]) + " threads a block, built for at most " +
               number(image.max_threads));
  if (params.sharedMemBytes > work.loaded->max_dynamic_shared)
    return bad(number(params.sharedMemBytes) + " bytes of dynamic shared memory, its limit is " +
               number(work.loaded->max_dynamic_shared) + " (CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)");
  work.green = params.ctx == nullptr ? nullptr : state.contexts_of_green.find(params.ctx);
  if (work.green != nullptr && !work.by_kernel)
    return bad("a green context beside a function, which NVIDIA's driver ignores: give the kernel");
  if (params.ctx != nullptr && work.green == nullptr && !state.is_retained(params.ctx))
    return bad("a context that is neither primary nor green");
  if (params.extra != nullptr && params.kernelParams != nullptr) return bad("arguments in two ways");
  work.device =
      work.green != nullptr ? work.green->device : device_of(params.ctx != nullptr ? params.ctx : current_context);
  work.by_extra = params.extra != nullptr;
  if (work.by_extra) {
    const std::byte* from = nullptr;
    size_t bytes = 0;
    if (!read_extra(params.extra, from, bytes)) return bad("`extra` does not name a buffer and its size");
    if (bytes != image.args_bytes)
      return bad(number(bytes) + " argument bytes through `extra`, it takes " + number(image.args_bytes));
    work.args.assign(from, from + image.args_bytes);
  } else {
    work.args.assign(image.args_bytes, std::byte{0});
    for (size_t i = 0; i < image.parameters.size(); ++i) {
      if (params.kernelParams == nullptr || params.kernelParams[i] == nullptr)
        return bad("no parameter " + number(i) + " of " + number(image.parameters.size()));
      memcpy(work.args.data() + image.parameters[i].offset, params.kernelParams[i], image.parameters[i].bytes);
    }
  }
  work.grid = {params.gridDimX, params.gridDimY, params.gridDimZ};
  work.block = {params.blockDimX, params.blockDimY, params.blockDimZ};
  work.shared_bytes = params.sharedMemBytes;
  return check_attributes(state, work);
}

}  // namespace nodewright::cpu
