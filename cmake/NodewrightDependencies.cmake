# Third-party libraries. fmt is linked statically from its own source header, GoogleTest from Debian's archives,
# Oniguruma is copied beside the program, and CUDA is loaded at run time: only its headers are needed here.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)

find_path(FMT_INCLUDE_DIR fmt/format-inl.h REQUIRED)
add_library(nodewright_fmt STATIC ${PROJECT_SOURCE_DIR}/third_party/fmt/fmt.cc)
target_include_directories(nodewright_fmt SYSTEM PUBLIC ${FMT_INCLUDE_DIR})
add_library(nodewright::fmt ALIAS nodewright_fmt)

find_library(ONIG_LIBRARY NAMES onig REQUIRED)
find_library(UTF8PROC_LIBRARY NAMES libutf8proc.a REQUIRED)
get_filename_component(NODEWRIGHT_ONIG_RUNTIME ${ONIG_LIBRARY} REALPATH)

# cuda.h: CUDA_HOME, the usual folder, or the pip wheels that the Makefile fetches into build/cuda-wheels.
file(GLOB cuda_wheel_includes ${PROJECT_SOURCE_DIR}/build/cuda-wheels/nvidia/*/include)
find_path(CUDA_INCLUDE_DIR cuda.h
          HINTS $ENV{CUDA_HOME}/include $ENV{CUDA_PATH}/include /usr/local/cuda/include ${cuda_wheel_includes} REQUIRED)
add_library(nodewright_cuda_headers INTERFACE)
target_include_directories(nodewright_cuda_headers SYSTEM INTERFACE ${CUDA_INCLUDE_DIR})
add_library(nodewright::cuda_headers ALIAS nodewright_cuda_headers)
