// The memory of a product node: what GraphBuilder::product takes.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels_src/projection/reference_product.h"
#include "runtime/memory/memory.h"

namespace nodewright {

template <class T>
struct ElementOf;  // defined for what a product can multiply
// `value` is the element's name in a product's shape.
template <>
struct ElementOf<float> {
  static constexpr Element value = Element::f32;
};
template <>
struct ElementOf<fp16> {
  static constexpr Element value = Element::fp16;
};
template <>
struct ElementOf<bf16> {
  static constexpr Element value = Element::bf16;
};

// One matrix or vector. A Weight is frozen: no node of the plan may write it.
struct ProductOperand {
  uint64_t address = 0, bytes = 0;  // on the device; 0 bytes: no operand
  Element element = Element::f32;   // what it holds
  bool frozen = false;              // nothing in the plan writes it

  ProductOperand() = default;
  // The whole of a view or of a weight.
  template <class T>
  ProductOperand(const View<T>& view)
      : address(view.address()), bytes(view.bytes()), element(ElementOf<std::remove_const_t<T>>::value) {}
  template <class T>
  ProductOperand(const DeviceArray<T>& array) : ProductOperand(array.view()) {}
  template <class T>
  ProductOperand(const Weight<T>& weight)
      : address(weight.address()), bytes(weight.bytes()), element(ElementOf<T>::value), frozen(true) {}
};

// a, b, c and bias are read, y is written. Each at least as long as the plan's spans. The workspace may be shared by
// products that need not run at once: each is ordered after the one before it.
struct ProductOperands {
  ProductOperand a, b, c, bias, y;
  View<uint8_t> workspace;
};

}  // namespace nodewright
