// Where kernels look whether an exchange is given up: read by both compilers.
#pragma once

// The abort word, in host memory, which the host or a kernel sets, and a word of the kernel's own GPU, in which its
// threads leave what they have found in the other.
struct AbortWords {
  unsigned *far, *near;
};
