// What a kernel of decode_kernels.cu takes: one struct for all of them, read by both compilers.
#pragma once

#include "bench/two_gpus/abort_words.h"

// What a product does with its sums.
enum DecodeEnding : int {
  kPlain,     // y = sum
  kLocalAdd,  // y = residual + sum: the same shard without an exchange
  kExchange,  // push, wait for the peer's, y = residual + both: form (a)
  kPush,      // push and keep its own in `partial`: form (b), whose consumer gathers
  kPartial,   // keep its own in `partial`: form (c), a node of its own exchanges
};

struct DecodeArguments {
  const void* weights;                   // [outputs, K] bf16
  const void* x;                         // [rows, x_stride] bf16
  const void* residual;                  // [rows, outputs] bf16; of a consumer that gathers [rows, K]
  void* y;                               // [rows, outputs] bf16
  void* x_next;                          // [rows, K] bf16, written by block 0 of a consumer that gathers
  const float* own;                      // [rows, K] this rank's partials, of a consumer that gathers
  float* partial;                        // [rows, outputs] where this rank's partials stay
  unsigned long long* out_packets;       // [rows, outputs] in the peer
  const unsigned long long* in_packets;  // the same here
  const unsigned* step;                  // number of the launch
  AbortWords abort;
  unsigned* stamps;  // [blocks] ns from the last push to the last arrival, or null
  int outputs, rows, x_stride;
  int ending;                      // DecodeEnding
  int gathers, starts_early;       // 0 or 1; early: the next kernel may start before this one's wait returns
  unsigned index, gathered_index;  // of the exchange in the launch
};
