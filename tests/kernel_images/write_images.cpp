// Compiles every kernel that ships for Hopper, and further ones, and writes a cubin of each: two such folders, of
// before and after a change, tell compare_images.py whether the machine code is the same. Needs no GPU.
//   kernel_images FOLDER [WORD]    WORD: only those whose request has it, "tile_project_add["
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>

#include "runtime/compilers/content_hash.h"
#include "tests/kernels/compiled_kernels.h"
#include "tests/kernels/shipped_steps.h"

int main(int argc, char** argv) try {
  using namespace nodewright;
  using namespace nodewright::test;
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr, "usage: kernel_images FOLDER [WORD]\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  ShippedKernels kernels = kernels_of(steps_on_hopper());
  kernels.merge(kernels_with_adapters(kH100));
  kernels.merge(kernels_of_ranks(kH100));
  if (argc == 3) std::erase_if(kernels, [&](const auto& one) { return one.first.find(argv[2]) == std::string::npos; });
  const auto nvrtc = Nvrtc::load();
  std::ofstream index(folder / "index.txt", std::ios::trunc);
  for (const auto& [key, kernel] : kernels) {
    const NvrtcResult made =
        nvrtc->compile(nvrtc_source(kernel.request), nvrtc_options(kernel.card.cc_major, kernel.card.cc_minor));
    const std::string name = to_hex(hash_of(std::as_bytes(std::span(key)))) + ".cubin";
    std::ofstream(folder / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(made.cubin.data()), static_cast<std::streamsize>(made.cubin.size()));
    index << name << ' ' << key << '\n' << std::flush;
  }
  std::printf("%zu kernels in %s\n", kernels.size(), folder.c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "kernel_images: %s\n", error.what());
  return 1;
}
