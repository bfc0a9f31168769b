// A function of one parameter, where foreign_blend has six.
struct ForeignSource {
  const unsigned* words;
  unsigned long long count;
};

extern "C" __global__ void foreign_whole(ForeignSource) {}
