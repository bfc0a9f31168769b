// A cubin, as it may lie damaged in the kernel cache.
#include "runtime/compilers/cubin_reader.h"
#include "tests/fuzz/fuzz_target.h"

using namespace nodewright;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::expect_refusal_or_success("the.cubin", [&] {
    for (const CubinKernel& kernel : read_cubin({reinterpret_cast<const std::byte*>(data), size}, "the.cubin"))
      fuzz::require(kernel.registers >= 0 && kernel.max_threads >= 0, "a count is not negative");
  });
  return 0;
}
