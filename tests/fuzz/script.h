// Numbers out of an input's bytes, then out of nothing: what a fuzzer's walk chooses.
#pragma once

#include <cstdint>
#include <string_view>

namespace nodewright::fuzz {

class Script {
 public:
  explicit Script(std::string_view bytes) : bytes_(bytes) {}
  uint32_t below(uint32_t end) {
    uint32_t byte = 0;
    if (!bytes_.empty()) {
      byte = static_cast<unsigned char>(bytes_[0]);
      bytes_.remove_prefix(1);
    }
    state_ = (state_ + byte) * 1664525u + 1013904223u;  // Numerical Recipes
    return (state_ >> 8) % end;
  }

 private:
  std::string_view bytes_;
  uint32_t state_ = 1;
};

}  // namespace nodewright::fuzz
