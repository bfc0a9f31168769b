// Device and pinned host memory with names, and typed views of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels_src/args.h"
#include "runtime/device.h"
#include "runtime/error.h"

namespace nodewright {

class Stream;

// Device memory. Address 0 and no call to the driver when `bytes` is 0.
class DeviceBuffer {
 public:
  // Throws Error with the bytes needed and the bytes free when the device has not enough.
  DeviceBuffer(Device& device, std::string name, uint64_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  CUdeviceptr address() const { return address_; }   // of the first byte
  uint64_t bytes() const { return bytes_; }          // as asked for
  const std::string& name() const { return name_; }  // for plans and errors
  Device& device() const { return *device_; }        // whose memory it is

 private:
  void release() noexcept;

  Device* device_;
  std::string name_;
  uint64_t bytes_ = 0;
  CUdeviceptr address_ = 0;
};

// Page-locked host memory, which asynchronous copies need. Zero bytes make no driver call.
class PinnedBuffer {
 public:
  // Throws Error with the bytes when the system has not enough.
  PinnedBuffer(Device& device, std::string name, uint64_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;

  void* data() const { return data_; }  // for host and device
  // The buffer as elements of T, from byte 0.
  template <class T>
  std::span<T> as() const {
    return {static_cast<T*>(data_), bytes_ / sizeof(T)};
  }
  uint64_t bytes() const { return bytes_; }
  const std::string& name() const { return name_; }

 private:
  void release() noexcept;

  Device* device_;
  std::string name_;
  uint64_t bytes_ = 0;
  void* data_ = nullptr;
};

// A range of device memory that dumps, traces and errors name.
struct NamedRange {
  std::string name;
  uint64_t address = 0, bytes = 0;  // of its first byte, and how many
  std::string kind;                 // "weight", "kv", "activation", "input", "output", "state" or "workspace"
  bool operator==(const NamedRange&) const = default;
};

// Throws Error unless `count` elements from `offset` lie within `have`.
void check_subview(uint64_t offset, uint64_t count, uint64_t have);

// Device memory that nodes may write: `count` elements of T. Becomes the role that an argument struct asks for.
template <class T>
struct View {
  T* data = nullptr;  // a device address: never dereferenced on the host
  uint64_t count = 0;

  // Any role, as the field of an argument struct asks.
  operator In<T>() const { return {data, count}; }
  operator Settled<T>() const { return {data, count}; }
  operator Out<T>() const { return {data, count}; }
  operator PartialOut<T>() const { return {data, count}; }
  operator InOut<T>() const { return {data, count}; }
  operator SettledInOut<T>() const { return {data, count}; }

  uint64_t address() const { return reinterpret_cast<uint64_t>(data); }  // of the first element
  uint64_t bytes() const { return count * sizeof(T); }                   // of all elements
  // `length` elements from element `offset` on. Throws Error when they do not lie within.
  View subview(uint64_t offset, uint64_t length) const {
    check_subview(offset, length, count);
    return {data + offset, length};
  }
  bool operator==(const View&) const = default;
};

// Device memory that nothing writes after load.
template <class T>
struct Weight {
  const T* data = nullptr;  // a device address: never dereferenced on the host
  uint64_t count = 0;       // elements

  // The role of weights.
  operator Frozen<T>() const { return {data, count}; }

  uint64_t address() const { return reinterpret_cast<uint64_t>(data); }  // of the first element
  uint64_t bytes() const { return count * sizeof(T); }                   // of all elements
  // `length` elements from element `offset` on. Throws Error when they do not lie within.
  Weight subview(uint64_t offset, uint64_t length) const {
    check_subview(offset, length, count);
    return {data + offset, length};
  }
  bool operator==(const Weight&) const = default;
};

// The whole of `buffer` as elements of T.
template <class T>
View<T> view_of(const DeviceBuffer& buffer) {
  return {reinterpret_cast<T*>(buffer.address()), buffer.bytes() / sizeof(T)};
}
template <class T>
Weight<T> weight_of(const DeviceBuffer& buffer) {
  return {reinterpret_cast<const T*>(buffer.address()), buffer.bytes() / sizeof(T)};
}

// Blocking copies and fill, for loading and for tests. `name` is what an error calls the memory.
void write_device(Device& device, CUdeviceptr to, std::span<const std::byte> from, std::string_view name);
void read_device(Device& device, std::span<std::byte> to, CUdeviceptr from, std::string_view name);
void fill_device(Device& device, CUdeviceptr to, std::byte value, uint64_t bytes, std::string_view name);

// The first elements of a view, from or to the host: write_device and read_device of as many as the span has.
template <class T>
void write_view(Device& device, View<T> to, std::span<const T> from, std::string_view name) {
  check_subview(0, from.size(), to.count);
  write_device(device, to.address(), std::as_bytes(from), name);
}
template <class T>
void read_view(Device& device, std::span<T> to, View<T> from, std::string_view name) {
  check_subview(0, to.size(), from.count);
  read_device(device, std::as_writable_bytes(to), from.address(), name);
}

// Waits for what `stream` has been given so far, then copies to the host.
void read_device(const Stream& stream, std::span<std::byte> to, CUdeviceptr from, std::string_view name);

// Throws Error when `count` elements of `element_bytes` bytes are more than 2^64 bytes.
uint64_t bytes_of(uint64_t count, uint64_t element_bytes, std::string_view name);

// A DeviceBuffer of `count` elements of T: stands for a view of all of it, and for the field of an argument struct.
template <class T>
class DeviceArray : public DeviceBuffer {
 public:
  // Undefined contents. Throws Error as DeviceBuffer does.
  DeviceArray(Device& device, std::string name, uint64_t count)
      : DeviceBuffer(device, name, bytes_of(count, sizeof(T), name)) {}

  uint64_t count() const { return bytes() / sizeof(T); }    // elements
  View<T> view() const { return view_of<T>(*this); }        // all of it
  Weight<T> weight() const { return weight_of<T>(*this); }  // all of it, which no node writes
  operator View<T>() const { return view(); }               // all of it
  operator In<T>() const { return view(); }                 // for a field of an argument struct
  operator Settled<T>() const { return view(); }            // the same
  operator Out<T>() const { return view(); }                // the same
  operator PartialOut<T>() const { return view(); }         // the same
  operator InOut<T>() const { return view(); }              // the same
  operator SettledInOut<T>() const { return view(); }       // the same

  // Copies `values` over the first elements, and waits. Throws Error when they are more than the array has.
  void write(std::span<const T> values) const { write_view<T>(device(), view(), values, name()); }
  // All elements. No stream may still be writing them.
  std::vector<T> read() const {
    std::vector<T> values(count());
    read_view<T>(device(), values, view(), name());
    return values;
  }
  // All elements, once `stream` has done what it was given so far.
  std::vector<T> read(const Stream& stream) const {
    std::vector<T> values(count());
    read_device(stream, std::as_writable_bytes(std::span(values)), address(), name());
    return values;
  }
};

// Copies submitted to a stream; the host memory must be pinned and stay as it is until the copy has run.
void write_device_async(const Stream& stream, CUdeviceptr to, const void* from, uint64_t bytes, std::string_view name);
void read_device_async(const Stream& stream, void* to, CUdeviceptr from, uint64_t bytes, std::string_view name);
// Within device memory.
void copy_device_async(const Stream& stream, CUdeviceptr to, CUdeviceptr from, uint64_t bytes, std::string_view name);

}  // namespace nodewright
