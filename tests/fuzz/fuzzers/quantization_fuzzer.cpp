// quantization_config, and behind a zero byte the weight file that it describes. Every module of the file is asked for
// as a matrix of one shape, 16 x 64, and of the shape of what is stored; what is accepted can be decoded.
#include <set>

#include "models/weights/checkpoint.h"
#include "tests/fuzz/encoded_rows.h"

using namespace nodewright;

namespace {

// "m.weight" of "m.weight_packed", "m.qweight" and "m.weight.absmax"; expert 1's of "experts.p_blocks".
std::set<std::string> matrices_of(const Checkpoint& checkpoint) {
  std::set<std::string> names;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    const size_t weight = tensor.name.find(".weight");
    names.insert(tensor.name.substr(0, weight == std::string::npos ? tensor.name.rfind('.') : weight) + ".weight");
    if (const size_t experts = tensor.name.find("experts."); experts != std::string::npos)
      names.insert(tensor.name.substr(0, experts) + "experts.1." +
                   tensor.name.substr(experts + 8, tensor.name.rfind('_') - experts - 8) + ".weight");
  }
  return names;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::ScratchFolder folder;
  const fuzz::TwoParts parts = fuzz::two_parts(data, size);
  folder.write("config.json", "{\"quantization_config\":" + std::string(parts.first) + "}");
  folder.write("model.safetensors", parts.second);
  const std::string_view named = folder.path().native();
  fuzz::expect_refusal_or_success(named, [&] {
    const Checkpoint checkpoint = Checkpoint::open(folder.path());
    for (const std::string& name : matrices_of(checkpoint))
      fuzz::expect_refusal_or_success(named, [&] { fuzz::decode_rows(checkpoint, name, {16, 64}); });
    for (const TensorInfo& tensor : checkpoint.tensors())
      if (tensor.shape.size() == 2)
        fuzz::expect_refusal_or_success(named, [&] { fuzz::decode_rows(checkpoint, tensor.name, tensor.shape); });
  });
  return 0;
}
