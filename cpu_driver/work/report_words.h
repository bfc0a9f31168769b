// Words that several reports of the driver share.
#pragma once

#include <cstdio>
#include <string>

#include "cpu_driver/kernel_abi.h"

namespace nodewright::cpu {

inline std::string index_text(const emulation::Index3& i) {
  char text[48];
  snprintf(text, sizeof text, "(%u,%u,%u)", i.x, i.y, i.z);
  return text;
}

inline std::string hex(uint64_t value) {
  char text[32];
  snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// "node 'l0.qkv', kernel gemv".
inline std::string node_text(const std::string& label, const std::string& kernel) {
  std::string text = label.empty() ? "unnamed node" : "node '";
  if (!label.empty()) text.append(label).append("'");
  return text.append(", kernel ").append(kernel);
}

}  // namespace nodewright::cpu
