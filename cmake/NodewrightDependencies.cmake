# Third-party libraries. fmt is linked statically from its own source header, GoogleTest from Debian's archives,
# Oniguruma is copied beside the program, and CUDA is loaded at run time: only its headers are needed here.
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)

find_path(FMT_INCLUDE_DIR fmt/format-inl.h REQUIRED)
add_library(nodewright_fmt STATIC ${PROJECT_SOURCE_DIR}/third_party/fmt/fmt.cc)
target_include_directories(nodewright_fmt SYSTEM PUBLIC $<BUILD_INTERFACE:${FMT_INCLUDE_DIR}>)
set_target_properties(nodewright_fmt PROPERTIES EXPORT_NAME fmt)
add_library(nodewright::fmt ALIAS nodewright_fmt)

find_library(ONIG_LIBRARY NAMES onig REQUIRED)
find_library(UTF8PROC_LIBRARY NAMES libutf8proc.a REQUIRED)

# Debian has no static Oniguruma, and the program is carried to machines without it: a copy under its soname in lib/.
get_filename_component(NODEWRIGHT_ONIG_RUNTIME ${ONIG_LIBRARY} REALPATH)
get_filename_component(onig_soname ${NODEWRIGHT_ONIG_RUNTIME} NAME)
string(REGEX REPLACE "^(libonig\\.so\\.[0-9]+).*" "\\1" onig_soname ${onig_soname})  # libonig.so.5.3.0: libonig.so.5
set(NODEWRIGHT_CARRIED_LIBRARIES ${PROJECT_BINARY_DIR}/lib/${onig_soname})
add_custom_command(
  OUTPUT ${NODEWRIGHT_CARRIED_LIBRARIES}
  COMMAND ${CMAKE_COMMAND} -E copy ${NODEWRIGHT_ONIG_RUNTIME} ${NODEWRIGHT_CARRIED_LIBRARIES}
  DEPENDS ${NODEWRIGHT_ONIG_RUNTIME}
  COMMENT "Copying ${onig_soname}")
add_custom_target(nodewright_carried_libraries ALL DEPENDS ${NODEWRIGHT_CARRIED_LIBRARIES})

# Line editing of `nodewright chat`, linked statically with what it needs: the program is carried to machines without it.
find_path(EDIT_INCLUDE_DIR histedit.h REQUIRED)
set(NODEWRIGHT_EDIT_LIBRARIES)
foreach(name edit tinfo bsd md)
  find_library(NODEWRIGHT_LIB_${name} NAMES lib${name}.a REQUIRED)
  list(APPEND NODEWRIGHT_EDIT_LIBRARIES ${NODEWRIGHT_LIB_${name}})
endforeach()

# cuda.h and nvrtc.h: the pip wheels, which cmake/install_missing.sh fetches only where no toolkit will do; CUDA_HOME;
# the usual folders.
set(cuda_wheels ${PROJECT_SOURCE_DIR}/build/cuda-wheels/nvidia)
file(GLOB cuda_wheel_roots ${cuda_wheels}/*)
file(GLOB usual_cuda_roots /usr/local/cuda*)
set(cuda_roots ${cuda_wheel_roots} $ENV{CUDA_HOME} $ENV{CUDA_PATH} ${usual_cuda_roots})
find_path(CUDA_INCLUDE_DIR NAMES cuda.h PATH_SUFFIXES include HINTS ${cuda_roots} REQUIRED)
find_path(NVRTC_INCLUDE_DIR NAMES nvrtc.h PATH_SUFFIXES include HINTS ${cuda_roots} REQUIRED)
add_library(nodewright_cuda_headers INTERFACE)
# An installed package finds those of its own machine (cmake/nodewrightConfig.cmake.in).
target_include_directories(nodewright_cuda_headers SYSTEM INTERFACE $<BUILD_INTERFACE:${CUDA_INCLUDE_DIR}>
                           $<BUILD_INTERFACE:${NVRTC_INCLUDE_DIR}>)
set_target_properties(nodewright_cuda_headers PROPERTIES EXPORT_NAME cuda_headers)
add_library(nodewright::cuda_headers ALIAS nodewright_cuda_headers)
