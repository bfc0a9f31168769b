// y[m, n] = sum_k norm(x[m])[k] * W[n, k] on tensor cores, norm(x) rounded to bf16 before its scale; norm_project of 2
// rows and more, without a bias. Block b: outputs range b, all rows.
#include "kernels_src/device/tile_normed_rows.cuh"
#include "kernels_src/norm_project.h"

NODEWRIGHT_KERNEL(tile_norm_project, NormProject, kThreads) {
  tile_project_normed(args, 1, [&](int n, int m, float first, float second, bool is_last) {
    float* y = args.y.data + m * args.y_stride + n;
    y[0] = first;
    if (!is_last) y[1] = second;
  });
}
