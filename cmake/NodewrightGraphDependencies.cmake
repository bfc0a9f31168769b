# What the graph library needs of others: headers alone. fmt is linked statically from its own source header, CUDA is
# loaded at run time.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)

find_path(NODEWRIGHT_FMT_INCLUDE_DIR fmt/format-inl.h REQUIRED)
add_library(nodewright_fmt STATIC ${PROJECT_SOURCE_DIR}/third_party/fmt/fmt.cc)
target_include_directories(nodewright_fmt SYSTEM PUBLIC $<BUILD_INTERFACE:${NODEWRIGHT_FMT_INCLUDE_DIR}>)
set_target_properties(nodewright_fmt PROPERTIES EXPORT_NAME fmt)
add_library(nodewright::fmt ALIAS nodewright_fmt)

# cuda.h and nvrtc.h: the pip wheels, which cmake/install_missing.sh fetches only where no toolkit will do; CUDA_HOME;
# the usual folders.
set(cuda_wheels ${PROJECT_SOURCE_DIR}/build/cuda-wheels/nvidia)
file(GLOB cuda_wheel_roots ${cuda_wheels}/*)
file(GLOB usual_cuda_roots /usr/local/cuda*)
set(cuda_roots ${cuda_wheel_roots} $ENV{CUDA_HOME} $ENV{CUDA_PATH} ${usual_cuda_roots})
find_path(NODEWRIGHT_CUDA_INCLUDE_DIR NAMES cuda.h PATH_SUFFIXES include HINTS ${cuda_roots} REQUIRED)
find_path(NODEWRIGHT_NVRTC_INCLUDE_DIR NAMES nvrtc.h PATH_SUFFIXES include HINTS ${cuda_roots})
add_library(nodewright_cuda_headers INTERFACE)
# An installed package finds those of its own machine (cmake/nodewrightConfig.cmake.in).
target_include_directories(nodewright_cuda_headers SYSTEM INTERFACE $<BUILD_INTERFACE:${NODEWRIGHT_CUDA_INCLUDE_DIR}>)
if(NODEWRIGHT_NVRTC_INCLUDE_DIR)  # runtime/compilers/nvrtc.cpp does without
  target_include_directories(nodewright_cuda_headers SYSTEM INTERFACE $<BUILD_INTERFACE:${NODEWRIGHT_NVRTC_INCLUDE_DIR}>)
endif()
set_target_properties(nodewright_cuda_headers PROPERTIES EXPORT_NAME cuda_headers)
add_library(nodewright::cuda_headers ALIAS nodewright_cuda_headers)
