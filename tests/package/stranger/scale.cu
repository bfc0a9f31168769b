// x *= factor, as an engine wrote it that knows nothing of Nodewright.
extern "C" __global__ void scale(unsigned n, float factor, float* x) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= factor;
}
