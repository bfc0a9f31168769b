# What the command and its engine need of others beside the graph library. Oniguruma is copied beside the program.
find_package(CLI11 REQUIRED)
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

# Event loop and HTTP parser of serve/http: headers alone. Debian's default, 1.74, does not compile with g++ 12's C++20.
find_path(NODEWRIGHT_BOOST_INCLUDE_DIR boost/beast.hpp)
set(boost_version 0)
if(NODEWRIGHT_BOOST_INCLUDE_DIR)
  file(STRINGS ${NODEWRIGHT_BOOST_INCLUDE_DIR}/boost/version.hpp boost_version REGEX "^#define BOOST_VERSION ")
  string(REGEX REPLACE "[^0-9]" "" boost_version "${boost_version}")
endif()
if(boost_version LESS 108100)
  message(FATAL_ERROR "nodewright serve needs the headers of Boost 1.81 or later (boost/beast.hpp); found: "
                      "${NODEWRIGHT_BOOST_INCLUDE_DIR}, BOOST_VERSION ${boost_version}. On Debian: libboost1.81-dev")
endif()
