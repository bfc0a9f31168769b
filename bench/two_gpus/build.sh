#!/bin/bash
# Compiles the experiments with nvcc into DIR, with go.sh, so that they can be carried to a machine with two GPUs.
#   bench/two_gpus/build.sh [DIR]    build/peers by default
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
to=${1:-$root/build/peers}
mkdir -p "$to"
for kernels in probe_kernels decode_kernels; do
  nvcc -std=c++20 -arch=sm_90a -cubin -I "$root" -o "$to/$kernels.cubin" "$here/$kernels.cu"
done
cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
stubs=$(dirname "$(find "$cuda/" -name libcuda.so -path '*stubs*' | head -1)")
for program in flight exchange_forms launch_skew abandoned_step; do
  "${CXX:-g++}" -std=c++20 -O2 -Wall -Wextra -Werror -static-libstdc++ -static-libgcc -pthread -I "$root" -I "$cuda/include" \
    -o "$to/$program" "$here/$program.cpp" -L "$stubs" -lcuda
done
install -m 755 "$here/go.sh" "$to/go.sh"
