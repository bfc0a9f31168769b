# Compiler settings shared by every target, and the function that makes one library of one folder.
option(BUILD_TESTING "Build the test programs" ON)
enable_testing()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

set(NODEWRIGHT_SANITIZE "" CACHE STRING "address, thread, or empty")
option(NODEWRIGHT_FUZZERS "Build tests/fuzz with libFuzzer, which needs clang" OFF)
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

add_library(nodewright_options INTERFACE)
target_compile_options(nodewright_options INTERFACE -Wall -Wextra -Wpedantic -Werror -Wno-missing-field-initializers)
# Programs and tests carry what they call: all of them together travel to a GPU machine (cmake/carry.sh).
target_compile_options(nodewright_options INTERFACE -ffunction-sections -fdata-sections)
target_link_options(nodewright_options INTERFACE -Wl,--gc-sections)
# g++ 12 sees overlapping copies inside std::string's operator+ that are not there (gcc.gnu.org/PR105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(nodewright_options INTERFACE -Wno-restrict)
endif()
if(NODEWRIGHT_SANITIZE STREQUAL "address")
  target_compile_options(nodewright_options INTERFACE -fsanitize=address,undefined -fno-omit-frame-pointer)
  target_link_options(nodewright_options INTERFACE -fsanitize=address,undefined)
elseif(NODEWRIGHT_SANITIZE STREQUAL "thread")
  target_compile_options(nodewright_options INTERFACE -fsanitize=thread)
  target_link_options(nodewright_options INTERFACE -fsanitize=thread)
endif()
target_include_directories(nodewright_options INTERFACE ${PROJECT_SOURCE_DIR})

# The command line and the tests: two thirds of what a compiler spends here, and nothing that is timed runs in them.
add_library(nodewright_quick_options INTERFACE)
target_link_libraries(nodewright_quick_options INTERFACE nodewright_options)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(nodewright_quick_options INTERFACE -O1)
endif()

# <nodewright/nodewright.h>, and <nodewright/version.h> with the version that project() states.
configure_file(${PROJECT_SOURCE_DIR}/include/nodewright/version.h.in
               ${PROJECT_BINARY_DIR}/include/nodewright/version.h @ONLY)
set(NODEWRIGHT_INCLUDE_DIRS ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include)

# nodewright_library(graph DEPENDS nodewright::runtime): every .cpp of this folder, not of its subfolders.
function(nodewright_library name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  add_library(nodewright_${name} STATIC ${sources})
  add_library(nodewright::${name} ALIAS nodewright_${name})
  target_link_libraries(nodewright_${name} PUBLIC ${ARG_DEPENDS} PRIVATE $<BUILD_INTERFACE:nodewright_options>
                        ${ARG_PRIVATE_DEPENDS})
  target_include_directories(nodewright_${name} PUBLIC "$<BUILD_INTERFACE:${NODEWRIGHT_INCLUDE_DIRS}>")
  target_compile_features(nodewright_${name} PUBLIC cxx_std_20)
  set_target_properties(nodewright_${name} PROPERTIES EXPORT_NAME ${name} UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 6)
endfunction()

# nodewright_embed(OUTPUT LIST <file> HEADER <path> FUNCTION <name> FILES <paths from the root>): OUTPUT, a source file,
# is made of FILES by EmbedSources.cmake whenever one of them changes.
function(nodewright_embed output)
  cmake_parse_arguments(ARG "" "LIST;HEADER;FUNCTION" "FILES" ${ARGN})
  string(REPLACE ";" "\n" list_text "${ARG_FILES}")
  file(CONFIGURE OUTPUT ${ARG_LIST} CONTENT "${list_text}\n" @ONLY)  # rewritten only when the list changes
  list(TRANSFORM ARG_FILES PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE paths)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR} -DOUTPUT=${output} -DLIST=${ARG_LIST} -DHEADER=${ARG_HEADER}
            -DFUNCTION=${ARG_FUNCTION} -P ${PROJECT_SOURCE_DIR}/cmake/EmbedSources.cmake
    DEPENDS ${paths} ${ARG_LIST} ${PROJECT_SOURCE_DIR}/cmake/EmbedSources.cmake
    COMMENT "Embedding what ${ARG_FUNCTION}() returns")
endfunction()
