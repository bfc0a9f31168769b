# Compiler settings shared by every target, and the function that makes one library of one folder.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

set(NODEWRIGHT_SANITIZE "" CACHE STRING "address, thread, or empty")
option(NODEWRIGHT_FUZZERS "Build tests/fuzz with libFuzzer, which needs clang" OFF)

add_library(nodewright_warnings INTERFACE)
target_compile_options(nodewright_warnings INTERFACE -Wall -Wextra -Wpedantic -Wno-missing-field-initializers)
# Programs and tests carry what they call: all of them together travel to a GPU machine (cmake/carry.sh).
target_compile_options(nodewright_warnings INTERFACE -ffunction-sections -fdata-sections)
if(PROJECT_IS_TOP_LEVEL)
  target_compile_options(nodewright_warnings INTERFACE -Werror)  # a compiler that others bring may warn of more
  target_link_options(nodewright_warnings INTERFACE -Wl,--gc-sections)
endif()
# g++ 12 sees overlapping copies inside std::string's operator+ that are not there (gcc.gnu.org/PR105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(nodewright_warnings INTERFACE -Wno-restrict)
endif()
# g++ 13 takes every reference that a call with a temporary gives for one into the temporary.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  target_compile_options(nodewright_warnings INTERFACE -Wno-dangling-reference)
endif()
if(NODEWRIGHT_SANITIZE STREQUAL "address")
  target_compile_options(nodewright_warnings INTERFACE -fsanitize=address,undefined -fno-omit-frame-pointer)
  target_link_options(nodewright_warnings INTERFACE -fsanitize=address,undefined)
elseif(NODEWRIGHT_SANITIZE STREQUAL "thread")
  target_compile_options(nodewright_warnings INTERFACE -fsanitize=thread)
  target_link_options(nodewright_warnings INTERFACE -fsanitize=thread)
endif()

# Whatever includes headers by their path from the root. The examples do not: they are programs of another project.
add_library(nodewright_options INTERFACE)
target_link_libraries(nodewright_options INTERFACE nodewright_warnings)
target_include_directories(nodewright_options INTERFACE ${PROJECT_SOURCE_DIR})

# The command line and the tests: two thirds of what a compiler spends here, and nothing that is timed runs in them.
add_library(nodewright_quick_options INTERFACE)
target_link_libraries(nodewright_quick_options INTERFACE nodewright_options)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(nodewright_quick_options INTERFACE -O1)
endif()

# Our own headers come before those of a project around this one, which may have a runtime/device.h, too; whoever links
# the library sees those of include/public_headers.txt.
function(nodewright_includes target)
  target_include_directories(${target} BEFORE PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
                                                 $<INSTALL_INTERFACE:include>)
  add_dependencies(${target} nodewright_headers)
endfunction()

# nodewright_library(text FOLDERS chat grammar DEPENDS nodewright::base): every .cpp of this folder and of the named
# subfolders, without those of EXCEPT.
function(nodewright_library name)
  cmake_parse_arguments(ARG "" "" "FOLDERS;EXCEPT;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  set(patterns ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(folder IN LISTS ARG_FOLDERS)
    list(APPEND patterns ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  foreach(source IN LISTS ARG_EXCEPT)
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${source})
  endforeach()
  add_library(nodewright_${name} STATIC ${sources})
  add_library(nodewright::${name} ALIAS nodewright_${name})
  target_link_libraries(nodewright_${name} PUBLIC ${ARG_DEPENDS} PRIVATE $<BUILD_INTERFACE:nodewright_options>
                        ${ARG_PRIVATE_DEPENDS})
  nodewright_includes(nodewright_${name})
  target_compile_features(nodewright_${name} PUBLIC cxx_std_20)
  set_target_properties(nodewright_${name} PROPERTIES EXPORT_NAME ${name} UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
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
