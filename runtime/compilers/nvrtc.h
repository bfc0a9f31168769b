// NVIDIA's run-time compiler, found and loaded at run time: CUDA C++ source in, cubin out. Needs no GPU, no toolkit
// headers and no disk.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace nodewright {

struct NvrtcHeader {
  std::string path;  // as the source includes it: "kernels_src/args.h"
  std::string text;
};

struct NvrtcSource {
  std::string path;  // what the compiler's messages call it
  std::string text;
  std::vector<NvrtcHeader> headers;
};

struct NvrtcResult {
  std::vector<std::byte> cubin;
  std::string log;  // warnings; empty when the compiler said nothing
};

class Nvrtc {
 public:
  // Takes the first of candidates() that loads. Throws Error with every place and why it did not do.
  static std::unique_ptr<Nvrtc> load();
  // Files and names to try, in order: $NODEWRIGHT_NVRTC alone if it is set; otherwise the libraries beside the
  // program, $CUDA_HOME, $CUDA_PATH, the loader's path, /usr/local/cuda*, and Python's wheels (nvidia/*/lib).
  static std::vector<std::string> candidates();

  ~Nvrtc();
  Nvrtc(const Nvrtc&) = delete;
  Nvrtc& operator=(const Nvrtc&) = delete;

  int major() const { return major_; }
  int minor() const { return minor_; }
  const std::string& path() const { return path_; }  // the file or name it was loaded by

  // Thread-safe. Throws Error with the first lines of the compiler's log.
  NvrtcResult compile(const NvrtcSource& source, std::span<const std::string> options) const;

 private:
  struct Table;  // one pointer per entry of nvrtc.h that is used
  Nvrtc(std::unique_ptr<Table> table, std::string path);

  std::unique_ptr<Table> table_;
  std::string path_;
  int major_ = 0, minor_ = 0;
};

enum class Spills { warned, refused };

// Options for a device of compute capability `cc_major`.`cc_minor`: the language, the target, and whether a kernel
// that spills registers is compiled with a word in the log or refused.
std::vector<std::string> nvrtc_options(int cc_major, int cc_minor, Spills spills = Spills::warned);

}  // namespace nodewright
