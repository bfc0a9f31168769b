#include "examples/nanogpt/nanogpt_sources.h"

#include <deque>
#include <string>
#include <vector>

namespace nodewright {
namespace {

struct NanogptSources {
  NanogptSources() {
    for (const EmbeddedSource& file : nanogpt_kernel_files()) {
      EmbeddedSource& source = sources.emplace_back(file);
      if (!file.path.ends_with(".cu")) continue;
      source.path = paths.emplace_back("kernels_src/nanogpt" + std::string(file.path.substr(file.path.rfind('/'))));
    }
  }

  std::deque<std::string> paths;
  std::vector<EmbeddedSource> sources;
};

}  // namespace

std::span<const EmbeddedSource> nanogpt_sources() {
  static const NanogptSources known;
  return known.sources;
}

void add_nanogpt_sources(KernelCache& cache) {
  for (const EmbeddedSource& source : nanogpt_sources()) cache.add(source);
}

}  // namespace nodewright
