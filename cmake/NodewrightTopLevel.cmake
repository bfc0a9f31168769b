# What holds when nothing stands above this project: flags of all builds, folders of what is built, tests.
set(tests_by_default ON)
if(NODEWRIGHT_GRAPH_ONLY)
  set(tests_by_default OFF)
endif()
option(BUILD_TESTING "Build the test programs, which need GoogleTest" ${tests_by_default})
enable_testing()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/archive)

# A program finds its shared libraries in lib/ beside it (the build folder) or in ../lib/nodewright (installed).
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN/lib:$ORIGIN/../lib/nodewright")
