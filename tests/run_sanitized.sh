#!/usr/bin/env bash
# Builds and runs test programs with a sanitizer, in build-asan/ or build-tsan/: run_sanitized.sh build PROGRAM... |
# run PROGRAM [ARG...]. NODEWRIGHT_SANITIZER chooses: asan (default: address and undefined behaviour) or tsan (threads).
# A PROGRAM that ends in .py is a script that runs the preset's nodewright.
# Everything that reads files it should not trust is in these programs.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${NODEWRIGHT_SANITIZER:-asan}
folder=build-$preset
[ "$preset" != asan ] || folder=${NODEWRIGHT_ASAN_BUILD:-build-asan}

case ${1:-} in
  build)
    shift
    cmake --preset "$preset" -B "$folder" >/dev/null
    cmake --build "$folder" -j"$(nproc)" --target "$@"
    ;;
  run)
    program=$2
    shift 2
    # The CPU driver keeps its context for the life of the process, so leaks are not looked for.
    export ASAN_OPTIONS=detect_leaks=0:abort_on_error=0:${ASAN_OPTIONS:-} UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:${TSAN_OPTIONS:-}
    export NODEWRIGHT_CACHE=${NODEWRIGHT_CACHE:-$PWD/$folder/kernel-cache} NODEWRIGHT_BINARY_DIR=$PWD/$folder
    export NODEWRIGHT_CPU_DRIVER=$PWD/$folder/lib/libnodewright_cpu_driver.so
    export NODEWRIGHT_PROGRAM=$PWD/$folder/nodewright
    if [[ $program == *.py ]]; then exec python3 "$program" "$@"; fi
    exec "$folder/tests/$program" "$@"
    ;;
  *)
    echo "usage: $0 build PROGRAM... | run PROGRAM [ARG...]" >&2
    exit 2
    ;;
esac
