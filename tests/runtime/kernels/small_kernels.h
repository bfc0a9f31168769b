// Kernels for tests of the runtime, in the dialect of kernels_src: one that waits, one that does not, one too large
// for its registers, one that does not compile.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"
#include "runtime/kernels/kernel_request.h"

namespace nodewright {

struct Scale {
  In<float> x;
  Out<float> y;
  int64_t count;
};

inline constexpr std::string_view kScaleHeader = R"(#pragma once
#include "kernels_src/args.h"
namespace nodewright {
struct Scale {
  In<float> x;
  Out<float> y;
  int64_t count;
};
}
)";

inline constexpr std::string_view kScaleSource = R"(
#include "kernels_src/scale.h"
#include "kernels_src/device/dialect.cuh"
NODEWRIGHT_KERNEL(scale, Scale, 128) {
  wait_for_inputs();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 128 + threadIdx.x;
  if (i < args.count) args.y.data[i] = args.x.data[i] * static_cast<float>(kFactor);
}
)";

inline constexpr std::string_view kHastySource = R"(
#include "kernels_src/scale.h"
#include "kernels_src/device/dialect.cuh"
NODEWRIGHT_KERNEL(hasty, Scale, 64) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 64 + threadIdx.x;
  if (i < args.count) args.y.data[i] = args.x.data[i];
}
)";

// Sets a condition, without a header of its own.
struct CountDown {
  InOut<uint32_t> left;
  Condition again;
};

inline constexpr std::string_view kCountDownSource = R"(
#include "kernels_src/device/dialect.cuh"
namespace nodewright { struct CountDown { InOut<uint32_t> left; Condition again; }; }
NODEWRIGHT_KERNEL(count_down, CountDown, 32) {
  wait_for_inputs();
  if (threadIdx.x == 0) set_condition(args.again, --*args.left.data != 0);
}
)";

// Every function of device/cluster.cuh, with values of each size.
inline constexpr std::string_view kClusterSource = R"(
#include "kernels_src/scale.h"
#include "kernels_src/device/cluster.cuh"
NODEWRIGHT_KERNEL(cluster, Scale, 64) {
  float4* own = reinterpret_cast<float4*>(shared_memory());
  float2* pairs = reinterpret_cast<float2*>(own + 64);
  int* words = reinterpret_cast<int*>(pairs + 64);
  const int i = static_cast<int>(threadIdx.x), other = cluster_rank() ^ 1;
  wait_for_inputs();
  cluster_arrive();
  cluster_wait();
  const float x = args.x.data[i];
  store_to_block(other, own + i, make_float4(x, x, x, x));
  store_to_block(other, pairs + i, make_float2(x, x));
  store_to_block(other, words + i, i);
  cluster_arrive();
  cluster_wait();
  args.y.data[i] = load_from_block(other, own + i).w + load_from_block(other, pairs + i).y +
                   static_cast<float>(load_from_block(other, words + i));
  cluster_arrive();
  cluster_wait();
}
)";

inline constexpr std::string_view kBrokenSource = R"(
#include "kernels_src/scale.h"
#include "kernels_src/device/dialect.cuh"
NODEWRIGHT_KERNEL(broken, Scale, 64) { this_name_is_not_declared = 1; }
)";

inline const std::vector<EmbeddedSource>& small_kernels() {
  static const std::vector<EmbeddedSource> sources = {
      {"kernels_src/scale.h", kScaleHeader},      {"kernels_src/scale.cu", kScaleSource},
      {"kernels_src/hasty.cu", kHastySource},     {"kernels_src/count_down.cu", kCountDownSource},
      {"kernels_src/cluster.cu", kClusterSource}, {"kernels_src/broken.cu", kBrokenSource}};
  return sources;
}

}  // namespace nodewright
