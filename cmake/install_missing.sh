#!/usr/bin/env bash
# Makes sure that what a build needs is there: install_missing.sh [clang] [clients] [docs] [format] [fuzz] [page]
# [sanitizers] [spell] [tidy] [zmq]. Silent and quick when nothing is missing. As root it installs Debian packages;
# otherwise it prints the command to run and stops. Where there is no CUDA toolkit it fetches two wheels of the same files
# into build/cuda-wheels (NVRTC and the headers, 90 MB), and where there is a GPU but no cuBLASLt, a third: products on a
# GPU need it, nothing else does.
set -euo pipefail
cd "$(dirname "$0")/.."

cuda_wheels=build/cuda-wheels
cuda_release=13.0  # of the entries that runtime/calls/driver_entries.h asks for; a later 13.x serves as well

main() {
  local packages=()
  need_program g++ g++
  need_program cmake cmake
  need_program ninja ninja-build
  need_program make make
  need_program python3 python3
  need_header fmt/format-inl.h libfmt-dev
  need_header gtest/gtest.h libgtest-dev
  need_header CLI/CLI.hpp libcli11-dev
  need_header nlohmann/json.hpp nlohmann-json3-dev
  need_header oniguruma.h libonig-dev
  need_header utf8proc.h libutf8proc-dev
  need_header histedit.h libedit-dev
  need_header boost/beast.hpp libboost1.81-dev
  for what in "$@"; do
    case $what in
      clang) need_program clang++-16 clang-16 ;;  # 46 MB of packages
      clients) need_venv; need_library libzmq.so.5 libzmq5 ;;
      docs) need_program doxygen doxygen ;;
      format) need_program clang-format clang-format ;;
      fuzz | sanitizers) need_program clang++-16 clang-16; need_clang_runtime ;;  # 46 MB of packages
      page) need_program chromium chromium; need_venv ;;
      spell) need_program codespell codespell ;;
      tidy) need_program clang-tidy-16 clang-tidy-16 ;;  # 14, Debian's default, knows too little C++20
      zmq) need_library libzmq.so.5 libzmq5 ;;  # of `serve --kv-events-endpoint`, which opens it when it is asked for
      *) echo "usage: $0 [clang] [clients] [docs] [format] [fuzz] [page] [sanitizers] [spell] [tidy] [zmq]" >&2; exit 2 ;;
    esac
  done
  local wheels=()
  cuda_is_there || wheels+=(nvidia-cuda-nvrtc nvidia-cuda-runtime)
  if gpu_is_there && ! cublas_is_there; then wheels+=(nvidia-cublas); fi
  if [ ${#wheels[@]} -gt 0 ] && ! python3 -m pip --version >/dev/null 2>&1; then packages+=(python3-pip); fi

  install_packages
  if [ ${#wheels[@]} -gt 0 ]; then fetch_cuda_wheels "${wheels[@]}"; fi
  local version
  version=$(g++ -dumpversion)
  [ "${version%%.*}" -ge 12 ] || stop "g++ $version is too old: the sources are C++20 and need g++ 12 or later"
}

stop() {
  echo "install_missing: $1" >&2
  exit 1
}

need_program() { command -v "$1" >/dev/null || packages+=("$2"); }

need_clang_runtime() {  # libFuzzer and the sanitizers
  compgen -G '/usr/lib/llvm-16/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a' >/dev/null || packages+=(libclang-rt-16-dev)
}

need_library() { [[ $(/sbin/ldconfig -p) == *"$1 "* ]] || packages+=("$2"); }

need_venv() { python3 -m ensurepip --version >/dev/null 2>&1 || packages+=(python3-venv); }

need_header() {
  local folder path=${CPATH:-}
  for folder in /usr/include /usr/local/include ${path//:/ }; do
    [ ! -e "$folder/$1" ] || return 0
  done
  packages+=("$2")
}

install_packages() {
  [ ${#packages[@]} -gt 0 ] || return 0
  local command="apt-get -o DPkg::Lock::Timeout=300 install --yes --no-install-recommends ${packages[*]}"
  if ! command -v apt-get >/dev/null; then
    stop "missing, by the names of Debian's packages: ${packages[*]}; install them with this system's package manager"
  fi
  if [ "$(id -u)" -ne 0 ]; then stop "missing packages; run: sudo $command"; fi
  echo "Installing ${packages[*]}"
  export DEBIAN_FRONTEND=noninteractive
  # The package lists may be absent (a fresh container) or name versions that are gone.
  if ! quietly $command; then
    quietly apt-get update || { cat "$log" >&2; stop "apt-get update failed"; }
    quietly $command || { cat "$log" >&2; stop "could not install them; the command was: $command"; }
  fi
  rm -f "$log"
}

quietly() {
  log=${log:-$(mktemp)}
  "$@" >"$log" 2>&1 </dev/null
}

# CUDA: cuda.h of release 13 or later, nvrtc.h and libnvrtc.so.13, each from whichever place has it.

cuda_places() {  # NODEWRIGHT_CUDA_PLACES replaces the usual folders, to try a machine without a toolkit
  echo $cuda_wheels/nvidia/* ${CUDA_HOME:-} ${CUDA_PATH:-} ${NODEWRIGHT_CUDA_PLACES-/usr/local/cuda* /usr/local /usr}
}

cuda_is_there() {
  local place header=no nvrtc_header=no library=no
  for place in $(cuda_places); do
    if [ $header = no ] && grep -qsE '^#define CUDA_VERSION 1[3-9]' "$place/include/cuda.h"; then header=yes; fi
    if [ -e "$place/include/nvrtc.h" ]; then nvrtc_header=yes; fi
    if compgen -G "$place/lib*/libnvrtc.so.13" >/dev/null || compgen -G "$place/lib/*/libnvrtc.so.13" >/dev/null; then library=yes; fi
  done
  [ $header$nvrtc_header$library = yesyesyes ]
}

gpu_is_there() { [ -e "${NODEWRIGHT_GPU_FILE-/dev/nvidiactl}" ]; }  # the variable, to try a machine with one

# In the places of MatmulLibrary::candidates (runtime/libraries/cuda_library_places.cpp).
cublas_is_there() {
  local place python
  for place in $(cuda_places); do
    if compgen -G "$place/lib*/libcublasLt.so.13" >/dev/null || compgen -G "$place/lib/*/libcublasLt.so.13" >/dev/null; then return 0; fi
  done
  for python in ${VIRTUAL_ENV:-} ${CONDA_PREFIX:-} "$HOME/.local" "$HOME"/.pyenv/versions/* /usr/local /usr; do
    if compgen -G "$python/lib/python3*/*-packages/nvidia/*/lib/libcublasLt.so.13" >/dev/null; then return 0; fi
  done
  return 1
}

fetch_cuda_wheels() {  # the names of the wheels
  echo "Fetching $* $cuda_release into $cuda_wheels"
  local partial wheel
  mkdir -p build
  partial=$(mktemp -d build/cuda-wheels.XXXXXX)
  trap "rm -rf '$partial'" EXIT
  if ! quietly python3 -m pip download --no-deps --only-binary :all: --dest "$partial" "${@/%/==$cuda_release.*}"; then
    cat "$log" >&2
    stop "could not fetch them; install the CUDA toolkit $cuda_release and set CUDA_HOME to its folder"
  fi
  for wheel in "$partial"/*.whl; do
    python3 -m zipfile -e "$wheel" "$partial"
    rm "$wheel"
  done
  if [ -d $cuda_wheels ]; then cp -rn $cuda_wheels/. "$partial"; fi  # what an earlier call fetched
  rm -rf $cuda_wheels "${log:-}"
  chmod 755 "$partial"
  mv "$partial" $cuda_wheels
  cuda_is_there || stop "the wheels lack cuda.h, nvrtc.h or libnvrtc.so.13: see $cuda_wheels"
}

main "$@"
