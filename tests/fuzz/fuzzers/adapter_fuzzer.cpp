// adapter_config.json. What is accepted gives each module a rank and a finite scale, in linear time.
#include <cmath>

#include "models/adapters/adapter_config.h"
#include "tests/fuzz/fuzz_target.h"

using namespace nodewright;

namespace {

constexpr const char* kModules[] = {"model.layers.0.self_attn.q_proj", "model.layers.11.mlp.down_proj",
                                    "transformer.h.3.attn.c_attn", "lm_head", ""};

void check(const AdapterConfig& config) {
  for (const char* module : kModules) {
    (void)config.targets(module);
    fuzz::require(config.rank_of(module) > 0, "a rank is positive");
    fuzz::require(std::isfinite(config.scale_of(module)), "a scale is a number");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::ScratchFolder folder;
  folder.write("adapter_config.json", {reinterpret_cast<const char*>(data), size});
  fuzz::expect_refusal_or_success(folder.path().native(), [&] { check(AdapterConfig::read(folder.path())); });
  return 0;
}
