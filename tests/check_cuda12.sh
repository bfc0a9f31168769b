#!/usr/bin/env bash
# Builds runtime/, graph/ and the CPU driver with the headers of CUDA 12.8 (build-cuda12/), and runs a graph on the CPU
# driver: check_cuda12.sh. Fetches NVIDIA's wheels of these headers once.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build-cuda12
wheels=$folder/wheels

if [ ! -d $wheels ]; then
  partial=$(mktemp -d)
  trap 'rm -rf "$partial"' EXIT
  python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$partial" \
    'nvidia-cuda-runtime-cu12==12.8.*' 'nvidia-cuda-nvrtc-cu12==12.8.*'
  mkdir -p $wheels
  for wheel in "$partial"/*.whl; do python3 -m zipfile -e "$wheel" $wheels; done
fi
grep -q '^#define CUDA_VERSION 12080' $wheels/nvidia/cuda_runtime/include/cuda.h
cmake --preset release -B $folder -DNODEWRIGHT_GRAPH_ONLY=ON \
  -DNODEWRIGHT_CUDA_INCLUDE_DIR="$PWD/$wheels/nvidia/cuda_runtime/include" \
  -DNODEWRIGHT_NVRTC_INCLUDE_DIR="$PWD/$wheels/nvidia/cuda_nvrtc/include" >/dev/null
cmake --build $folder -j"$(nproc)" --target first_graph nodewright_cpu_driver
$folder/examples/first_graph cpu
