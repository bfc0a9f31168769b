// foreign_blend with another factor, which is another function of the same six parameters.
struct ForeignSource {
  const unsigned* words;
  unsigned long long count;
};

extern "C" __global__ void foreign_other(unsigned char shift, ForeignSource a, const unsigned* key, unsigned salt,
                                         unsigned* y, unsigned long long n) {
  const unsigned long long i = blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = y[i] * 17u + ((a.words[i % a.count] << shift) ^ salt) + key[0];
}
