// The kernels of the port, as an engine has them: plain CUDA, knowing nothing of graphs. Beside each the same work on
// the host, which is the reference, and the stand-in where there is no GPU.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "examples/port/model.h"

namespace port {

constexpr unsigned kThreads = 256, kWarp = 32;
constexpr unsigned kRows = kThreads / kWarp;     // of matvec: a warp takes a row
constexpr unsigned kWorkspaceBytes = 32u << 20;  // of cuBLAS on Hopper: cuBLAS documentation, cublasSetWorkspace()

// What matvec does with a sum.
enum class Then : unsigned { store, add, clip };

inline void check(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(cudaGetErrorString(result));
}
inline void check(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) throw std::runtime_error(cublasGetStatusString(status));
}

__device__ inline float sum_of_warp(float value) {
  for (unsigned step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

// x = row tokens[position] of the embedding. Grid kWidth / kThreads.
__global__ void embed(const float* embedding, const int* tokens, unsigned position, float* x) {
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  x[i] = embedding[tokens[position] * kWidth + i];
}
inline void embed_on_host(const float* embedding, const int* tokens, unsigned position, float* x) {
  for (unsigned i = 0; i < kWidth; ++i) x[i] = embedding[tokens[position] * kWidth + i];
}

// y = x / sqrt(mean of x^2). One block.
__global__ void norm(const float* x, float* y) {
  __shared__ float of_warp[kRows];
  float sum = 0;
  for (unsigned i = threadIdx.x; i < kWidth; i += kThreads) sum += x[i] * x[i];
  sum = sum_of_warp(sum);
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = sum;
  __syncthreads();
  sum = sum_of_warp(of_warp[threadIdx.x % kRows]) * kRows / kWarp;  // each is there 4 times
  for (unsigned i = threadIdx.x; i < kWidth; i += kThreads) y[i] = x[i] * rsqrtf(sum / kWidth + 1e-6f);
}
inline void norm_on_host(const float* x, float* y) {
  float sum = 0;
  for (unsigned i = 0; i < kWidth; ++i) sum += x[i] * x[i];
  for (unsigned i = 0; i < kWidth; ++i) y[i] = x[i] / std::sqrt(sum / kWidth + 1e-6f);
}

// y = w x, y += w x, or y = max(w x, 0), for w [rows, columns]. A warp a row: grid rows / kRows.
__global__ void matvec(const float* w, const float* x, unsigned rows, unsigned columns, Then then, float* y) {
  const unsigned row = blockIdx.x * kRows + threadIdx.x / kWarp;
  float sum = 0;
  for (unsigned i = threadIdx.x % kWarp; i < columns; i += kWarp) sum += w[row * columns + i] * x[i];
  sum = sum_of_warp(sum);
  if (row < rows && threadIdx.x % kWarp == 0)
    y[row] = then == Then::add ? y[row] + sum : then == Then::store ? sum : fmaxf(sum, 0.0f);
}
inline void matvec_on_host(const float* w, const float* x, unsigned rows, unsigned columns, Then then, float* y) {
  for (unsigned row = 0; row < rows; ++row) {
    float sum = 0;
    for (unsigned i = 0; i < columns; ++i) sum += w[row * columns + i] * x[i];
    y[row] = then == Then::add ? y[row] + sum : then == Then::store ? sum : std::max(sum, 0.0f);
  }
}

// Puts kv [keys kWidth, values kWidth] into the cache [2, kSteps, kWidth] at `position` and attends over all positions
// up to it. A block of kHeadWidth threads a head.
__global__ void attend(const float* q, const float* kv, unsigned position, float* cache, float* y) {
  __shared__ float weight[kSteps];
  float *keys = cache, *values = cache + kSteps * kWidth;
  const unsigned head = blockIdx.x * kHeadWidth, i = head + threadIdx.x;
  keys[position * kWidth + i] = kv[i];
  values[position * kWidth + i] = kv[kWidth + i];
  __syncthreads();
  for (unsigned p = threadIdx.x; p <= position; p += kHeadWidth) {
    float score = 0;
    for (unsigned j = 0; j < kHeadWidth; ++j) score += q[head + j] * keys[p * kWidth + head + j];
    weight[p] = score * rsqrtf(static_cast<float>(kHeadWidth));
  }
  __syncthreads();
  float largest = weight[0], total = 0, sum = 0;
  for (unsigned p = 1; p <= position; ++p) largest = fmaxf(largest, weight[p]);
  for (unsigned p = 0; p <= position; ++p) {
    const float share = expf(weight[p] - largest);
    total += share;
    sum += share * values[p * kWidth + i];
  }
  y[i] = sum / total;
}
inline void attend_on_host(const float* q, const float* kv, unsigned position, float* cache, float* y) {
  float *keys = cache, *values = cache + kSteps * kWidth;
  std::copy(kv, kv + kWidth, keys + position * kWidth);
  std::copy(kv + kWidth, kv + 2 * kWidth, values + position * kWidth);
  for (unsigned head = 0; head < kWidth; head += kHeadWidth) {
    std::array<float, kSteps> weight{};
    for (unsigned p = 0; p <= position; ++p) {
      for (unsigned j = 0; j < kHeadWidth; ++j) weight[p] += q[head + j] * keys[p * kWidth + head + j];
      weight[p] /= std::sqrt(static_cast<float>(kHeadWidth));
    }
    const float largest = *std::max_element(weight.begin(), weight.begin() + position + 1);
    float total = 0;
    for (unsigned p = 0; p <= position; ++p) total += weight[p] = std::exp(weight[p] - largest);
    for (unsigned i = head; i < head + kHeadWidth; ++i) {
      y[i] = 0;
      for (unsigned p = 0; p <= position; ++p) y[i] += weight[p] * values[p * kWidth + i] / total;
    }
  }
}

// logits = head x with cuBLAS, which works with matrices in columns: ours is the transpose of such a one. A handle
// forgets its workspace when its stream changes.
inline void multiply_with_cublas(cublasHandle_t cublas, cudaStream_t stream, void* workspace, const float* head,
                                 const float* x, float* logits) {
  const float one = 1, zero = 0;
  check(cublasSetStream(cublas, stream));
  check(cublasSetWorkspace(cublas, workspace, kWorkspaceBytes));
  check(cublasSgemv(cublas, CUBLAS_OP_T, kWidth, kVocabulary, &one, head, kWidth, x, 1, &zero, logits, 1));
}

// tokens[position + 1] = the first of the largest logits. One block.
__global__ void choose(const float* logits, unsigned position, int* tokens) {
  __shared__ int best[kThreads];
  int mine = static_cast<int>(threadIdx.x);
  for (int i = mine; i < static_cast<int>(kVocabulary); i += kThreads)
    if (logits[i] > logits[mine]) mine = i;
  best[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (const int other : best)
    if (logits[other] > logits[mine] || (logits[other] == logits[mine] && other < mine)) mine = other;
  tokens[position + 1] = mine;
}
inline void choose_on_host(const float* logits, unsigned position, int* tokens) {
  tokens[position + 1] = static_cast<int>(std::max_element(logits, logits + kVocabulary) - logits);
}

// The tokens of the model, on the host alone.
inline std::vector<int> decode_on_host(const Model& model) {
  std::vector<int> tokens(kSteps + 1, kFirstToken);
  std::vector<float> x(kWidth), normed(kWidth), q(kWidth), kv(2 * kWidth), attended(kWidth), hidden(kHidden),
      logits(kVocabulary);
  std::vector<std::vector<float>> caches(kLayers, std::vector<float>(2 * kSteps * kWidth));
  for (unsigned position = 0; position < kSteps; ++position) {
    embed_on_host(model.embedding.data(), tokens.data(), position, x.data());
    for (unsigned l = 0; l < kLayers; ++l) {
      const Layer& layer = model.layers[l];
      norm_on_host(x.data(), normed.data());
      matvec_on_host(layer.kv.data(), normed.data(), 2 * kWidth, kWidth, Then::store, kv.data());
      matvec_on_host(layer.q.data(), normed.data(), kWidth, kWidth, Then::store, q.data());
      attend_on_host(q.data(), kv.data(), position, caches[l].data(), attended.data());
      matvec_on_host(layer.out.data(), attended.data(), kWidth, kWidth, Then::add, x.data());
      norm_on_host(x.data(), normed.data());
      matvec_on_host(layer.up.data(), normed.data(), kHidden, kWidth, Then::clip, hidden.data());
      matvec_on_host(layer.down.data(), hidden.data(), kWidth, kHidden, Then::add, x.data());
    }
    norm_on_host(x.data(), normed.data());
    matvec_on_host(model.head.data(), normed.data(), kVocabulary, kWidth, Then::store, logits.data());
    choose_on_host(logits.data(), position, tokens.data());
  }
  return tokens;
}

}  // namespace port
