// The bytes of a GGUF file, made by a test.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace nodewright::test {

class GgufWriter {
 public:
  void add(const std::string& key, const std::string& value) { put(entry(key, 8), value); }
  void add(const std::string& key, const char* value) { add(key, std::string(value)); }
  void add(const std::string& key, bool value) { entry(key, 7) += static_cast<char>(value ? 1 : 0); }
  void add(const std::string& key, uint32_t value) { put(entry(key, 4), value); }
  void add(const std::string& key, uint64_t value) { put(entry(key, 10), value); }
  void add(const std::string& key, uint16_t value) { put(entry(key, 2), value); }
  void add(const std::string& key, float value) { put(entry(key, 6), value); }
  void add(const std::string& key, const std::vector<std::string>& values) {
    array(key, 8, values.size());
    for (const std::string& value : values) put(keys_, value);
  }
  void add(const std::string& key, const std::vector<float>& values) {
    array(key, 6, values.size());
    for (const float value : values) put(keys_, value);
  }
  void add(const std::string& key, const std::vector<int32_t>& values) {
    array(key, 5, values.size());
    for (const int32_t value : values) put(keys_, value);
  }

  // A vector of F32.
  void add_tensor(const std::string& name, const std::vector<float>& values) {
    add_tensor(name, {static_cast<int64_t>(values.size())}, 0,
               {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  }
  // A tensor of any type, whose last dimension is that of a row.
  void add_tensor(const std::string& name, const std::vector<int64_t>& shape, uint32_t type, std::string_view data) {
    put(tensors_, name);
    put(tensors_, static_cast<uint32_t>(shape.size()));
    for (auto size = shape.rbegin(); size != shape.rend(); ++size) put(tensors_, static_cast<uint64_t>(*size));
    put(tensors_, type);
    put(tensors_, uint64_t{data_.size()});
    data_ += data;
    data_.resize((data_.size() + 31) / 32 * 32);
    ++tensor_count_;
  }

  std::string bytes() const {
    std::string all = "GGUF";
    put(all, uint32_t{3});
    put(all, tensor_count_);
    put(all, key_count_);
    all += keys_ + tensors_;
    all.resize((all.size() + 31) / 32 * 32);
    return all + data_;
  }

 private:
  template <class T>
  static void put(std::string& to, T value) {
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    to.append(bytes, sizeof value);
  }
  static void put(std::string& to, const std::string& text) {
    put(to, uint64_t{text.size()});
    to += text;
  }
  std::string& entry(const std::string& key, uint32_t type) {
    ++key_count_;
    put(keys_, key);
    put(keys_, type);
    return keys_;
  }
  void array(const std::string& key, uint32_t type, uint64_t count) {
    put(entry(key, 9), type);
    put(keys_, count);
  }

  std::string keys_, tensors_, data_;
  uint64_t key_count_ = 0, tensor_count_ = 0;
};

}  // namespace nodewright::test
