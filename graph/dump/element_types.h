// The C++ type of each element that dumps print, for to_json and for the way back from it.
#pragma once

#include <cstddef>

#include "graph/node.h"

namespace nodewright {

// f(T()) with the type T that `type` stands for; f(nullptr) for `other`.
template <class F>
auto with_element(ElementType type, const F& f) {
  switch (type) {
    case ElementType::boolean:
      return f(bool());
    case ElementType::int8:
      return f(int8_t());
    case ElementType::uint8:
      return f(uint8_t());
    case ElementType::int16:
      return f(int16_t());
    case ElementType::uint16:
      return f(uint16_t());
    case ElementType::int32:
      return f(int32_t());
    case ElementType::uint32:
      return f(uint32_t());
    case ElementType::int64:
      return f(int64_t());
    case ElementType::uint64:
      return f(uint64_t());
    case ElementType::bfloat16:
      return f(bf16());
    case ElementType::float32:
      return f(float());
    case ElementType::float64:
      return f(double());
    case ElementType::other:
      break;
  }
  return f(nullptr);
}

}  // namespace nodewright
