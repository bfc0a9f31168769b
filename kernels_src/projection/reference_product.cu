// y[i, j] = round(alpha * sum_p op(a)[i, p] * op(b)[p, j] + beta * c[i, j] + bias[j]), summed in fp32 in the order of
// p, rounded once. Thread t of block b: outputs b * 128 + t, and those a whole grid further on.
#include "kernels_src/device/numeric.cuh"
#include "kernels_src/projection/reference_product.h"

namespace nodewright {

template <long long kElement>
NODEWRIGHT_DEVICE float load_element(const uint8_t* base, int64_t index) {
  if constexpr (kElement == static_cast<long long>(Element::bf16))
    return to_float(reinterpret_cast<const bf16*>(base)[index]);
  else if constexpr (kElement == static_cast<long long>(Element::fp16))
    return to_float(reinterpret_cast<const fp16*>(base)[index]);
  else
    return reinterpret_cast<const float*>(base)[index];
}

template <long long kElement>
NODEWRIGHT_DEVICE void store_element(uint8_t* base, int64_t index, float value) {
  if constexpr (kElement == static_cast<long long>(Element::bf16))
    reinterpret_cast<bf16*>(base)[index] = to_bf16(value);
  else if constexpr (kElement == static_cast<long long>(Element::fp16))
    reinterpret_cast<fp16*>(base)[index] = to_fp16(value);
  else
    reinterpret_cast<float*>(base)[index] = value;
}

}  // namespace nodewright

NODEWRIGHT_KERNEL(reference_product, ReferenceProduct, kReferenceProductThreads) {
  release_dependents();
  wait_for_inputs();
  const int64_t outputs = args.m * args.n, step = static_cast<int64_t>(gridDim.x) * kReferenceProductThreads;
  for (int64_t at = static_cast<int64_t>(blockIdx.x) * kReferenceProductThreads + threadIdx.x; at < outputs;
       at += step) {
    const int64_t i = at / args.n, j = at % args.n;
    float sum = 0.0f;
    for (int64_t p = 0; p < args.k; ++p)
      sum += load_element<kInput>(args.a.data, i * args.a_row + p * args.a_column) *
             load_element<kInput>(args.b.data, p * args.b_row + j * args.b_column);
    float value = args.alpha * sum;
    if (args.beta != 0.0f)
      value += args.beta * (args.c.count != 0 ? load_element<kOutput>(args.c.data, i * args.c_row + j)
                                              : load_element<kOutput>(args.y.data, i * args.y_row + j));
    if (args.bias.count != 0) value += load_element<kOutput>(args.bias.data, j);
    store_element<kOutput>(args.y.data, i * args.y_row + j, value);
  }
}
