#!/usr/bin/env bash
# runtime/ and graph/ as clang 16 compiles them (the clang preset, build-clang/): run_clang.sh build | run PROGRAM
# `run` leaves out what does not depend on the compiler and takes long, and the test that wants a process to itself.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${NODEWRIGHT_CLANG_BUILD:-build-clang}

case ${1:-} in
  build)
    cmake --preset clang -B "$folder" >/dev/null
    cmake --build "$folder" -j"$(nproc)" --target runtime_tests graph_tests nodewright_cpu_driver
    ;;
  run)
    export NODEWRIGHT_CACHE=${NODEWRIGHT_CACHE:-$PWD/$folder/kernel-cache}
    exec "$folder/tests/$2" --gtest_filter='-*Fuzz*:*NodeTimer*:HugeHeap*' --gtest_brief=1
    ;;
  *)
    echo "usage: $0 build | run PROGRAM" >&2
    exit 2
    ;;
esac
