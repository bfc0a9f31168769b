// A golden checkpoint of quantized weights (tests/reference/make_format_goldens.py), and a copy of one to be edited.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "models/weights/bf16_conversion.h"
#include "models/weights/checkpoint.h"
#include "models/weights/formats/encoded_matrix.h"
#include "tests/models/checkpoint_files.h"
#include "tests/support/test_places.h"

namespace nodewright::test {

inline std::filesystem::path format_folder(const std::string& name) {
  return source_dir() / "tests/golden/formats" / name;
}

inline std::vector<std::string> all_formats() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() / "tests/golden/formats"))
    if (std::filesystem::exists(entry.path() / "config.json")) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

// And the experts of a layer, which stand alone: no family that is read has such ones.
inline std::vector<std::string> formats_and_experts() {
  std::vector<std::string> names = all_formats();
  names.push_back("mxfp4_experts");
  return names;
}

inline nlohmann::json json_of(const std::filesystem::path& file) { return nlohmann::json::parse(read_text(file)); }

// The matrices that the library dequantized, with shape and digest.
inline nlohmann::json expected_matrices(const std::filesystem::path& folder) {
  return json_of(folder / "expected.json");
}

// A matrix in bf16, decoded `step` rows at a time.
inline std::vector<uint16_t> decoded(const TensorInfo& tensor, int64_t step) {
  const int64_t rows = tensor.shape[0], cols = tensor.shape.size() < 2 ? 1 : tensor.shape[1];
  std::vector<float> values(static_cast<size_t>(rows * cols));
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    tensor.encoded->decode(
        first, count, std::span(values).subspan(static_cast<size_t>(first * cols), static_cast<size_t>(count * cols)));
  }
  std::vector<uint16_t> rounded(values.size());
  convert_to_bf16(Dtype::kF32, reinterpret_cast<const std::byte*>(values.data()),
                  reinterpret_cast<bf16*>(rounded.data()), static_cast<int64_t>(values.size()));
  return rounded;
}

// FNV-1a, 64 bits, in hexadecimal.
inline std::string digest_of(const std::vector<uint16_t>& values) {
  uint64_t digest = 0xcbf29ce484222325;
  for (const unsigned char byte : bytes_of(values)) digest = (digest ^ byte) * 0x100000001b3;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(digest));
  return text;
}

// Opens the checkpoint and decodes every matrix that the golden expects. Throws what any of that throws.
inline std::map<std::string, std::vector<uint16_t>> decode_all(const std::filesystem::path& folder,
                                                               int64_t step = 1000) {
  const Checkpoint checkpoint = Checkpoint::open(folder);
  std::map<std::string, std::vector<uint16_t>> all;
  const nlohmann::json expected = expected_matrices(folder);
  for (const auto& [name, about] : expected.items()) {
    const TensorInfo& tensor = checkpoint.require(name, about.at("shape").get<std::vector<int64_t>>());
    if (tensor.encoded == nullptr)
      ADD_FAILURE() << name << " is stored element by element";
    else
      all[name] = decoded(tensor, step);
  }
  return all;
}

// The tensors of a safetensors file.
inline std::vector<TestTensor> tensors_of(const std::filesystem::path& file) {
  const CheckedFile opened(file);
  std::vector<TestTensor> tensors;
  for (const TensorInfo& info : read_safetensors_header(opened)) {
    tensors.push_back({info.name, std::string(dtype_name(info.dtype)), info.shape, std::string(info.bytes, '\0')});
    opened.read(info.offset, std::as_writable_bytes(std::span(tensors.back().data)));
  }
  return tensors;
}

// A copy of a golden, with changes.
class EditedFormat {
 public:
  explicit EditedFormat(const std::string& golden) {
    for (const auto& entry : std::filesystem::directory_iterator(format_folder(golden)))
      std::filesystem::copy(entry.path(), scratch_.path());
    if (std::filesystem::exists(scratch_.path() / "quantization.json"))
      std::filesystem::rename(scratch_.path() / "quantization.json", scratch_.path() / "config.json");
  }

  const std::filesystem::path& path() const { return scratch_.path(); }

  // change(tensor) of the first tensor whose name ends so, or of none.
  template <class Change>
  void tensor(const std::string& ending, const Change& change) {
    std::vector<TestTensor> tensors = tensors_of(file());
    const auto found = std::ranges::find_if(tensors, [&](const TestTensor& t) { return t.name.ends_with(ending); });
    ASSERT_NE(found, tensors.end()) << ending;
    change(*found);
    if (found->name.empty()) tensors.erase(found);
    write_text(file(), safetensors_of(tensors));
  }

  void remove(const std::string& ending) {
    tensor(ending, [](TestTensor& t) { t.name.clear(); });
  }
  // Keeps as many bytes as the new shape and dtype have, or adds zeros.
  void reshape(const std::string& ending, const std::vector<int64_t>& shape, const std::string& dtype = {}) {
    tensor(ending, [&](TestTensor& t) {
      const size_t before = t.data.size();
      uint64_t elements = 1, old = 1;
      for (const int64_t dimension : shape) elements *= static_cast<uint64_t>(dimension);
      for (const int64_t dimension : t.shape) old *= static_cast<uint64_t>(dimension);
      uint64_t element_bytes = old == 0 ? 1 : before / old;
      if (dtype == "F32" || dtype == "I32") element_bytes = 4;
      if (dtype == "BF16" || dtype == "F16") element_bytes = 2;
      if (dtype == "U8" || dtype == "I8") element_bytes = 1;
      if (dtype == "I64") element_bytes = 8;
      t.shape = shape;
      if (!dtype.empty()) t.dtype = dtype;
      t.data.resize(elements * element_bytes);
    });
  }

  // A change of quantization_config as a merge patch: null takes a key out.
  void config(const nlohmann::json& patch) {
    const std::filesystem::path file = scratch_.path() / "config.json";
    nlohmann::json config = json_of(file);
    config["quantization_config"].merge_patch(patch);
    write_text(file, config.dump());
  }

  // Cuts the last bytes of the file off, whose header still speaks of them once `open` has looked.
  std::filesystem::path file() const { return scratch_.path() / "model.safetensors"; }

 private:
  ScratchFolder scratch_;
};

}  // namespace nodewright::test
