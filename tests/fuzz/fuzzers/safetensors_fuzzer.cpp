// A safetensors file. What the reader accepts must cover the data exactly, counted here by divisions.
#include <span>
#include <vector>

#include "models/weights/safetensors.h"
#include "tests/fuzz/fuzz_target.h"

using namespace nodewright;

namespace {

void check(const std::vector<TensorInfo>& tensors, const CheckedFile& file) {
  uint64_t end = tensors.empty() ? file.bytes() : tensors.front().offset;
  for (const TensorInfo& tensor : tensors) {
    // In the order of the shape, as the format's own reader multiplies: a zero mends no overflow before it.
    const uint64_t bits = tensor.bytes * 8;
    bool exact = bits / 8 == tensor.bytes;
    uint64_t elements = 1;
    for (const int64_t size : tensor.shape) {
      fuzz::require(size >= 0, "a dimension is not negative");
      exact = exact && (size == 0 || elements <= UINT64_MAX / static_cast<uint64_t>(size));
      elements *= static_cast<uint64_t>(size);
    }
    exact = exact && elements <= UINT64_MAX / dtype_bits(tensor.dtype) && elements * dtype_bits(tensor.dtype) == bits;
    fuzz::require(exact, "shape and bytes agree");
    fuzz::require(tensor.offset == end, "a tensor begins where the one before ends");
    end += tensor.bytes;
    std::vector<std::byte> data(tensor.bytes);
    file.read(tensor.offset, data);
  }
  fuzz::require(end == file.bytes(), "the tensors end with the file");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static fuzz::MemoryFile file("model.safetensors");
  const auto& path = file.holding({reinterpret_cast<const char*>(data), size});
  fuzz::expect_refusal_or_success(path.native(), [&] {
    const CheckedFile opened(path);
    check(read_safetensors_header(opened), opened);
  });
  return 0;
}
