// model.safetensors.index.json, beside two sound shards; a third lies outside their folder, where nothing may
// be opened.
#include "models/weights/checkpoint.h"
#include "tests/fuzz/fuzz_target.h"

using namespace nodewright;

namespace {

// One tensor of four bytes named `name`.
std::string shard(char name) {
  const std::string header = std::string(R"({")") + name + R"(":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  return std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header + "data";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::ScratchFolder holder;
  static const std::filesystem::path model = [] {
    std::filesystem::create_directory(holder.path() / "model");
    for (const char* name : {"a.safetensors", "model/a.safetensors"}) holder.write(name, shard('a'));
    holder.write("model/b.safetensors", shard('b'));
    return holder.path() / "model";
  }();
  holder.write("model/model.safetensors.index.json", {reinterpret_cast<const char*>(data), size});
  fuzz::expect_refusal_or_success(model.native(), [&] {
    const Checkpoint checkpoint = Checkpoint::open(model);
    for (const TensorInfo& tensor : checkpoint.tensors())
      fuzz::require(tensor.file->path().parent_path() == model, "a shard lies in the folder");
  });
  return 0;
}
