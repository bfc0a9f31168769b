# cmake -DROOT=<project> -DOUTPUT=<file.cpp> -DLIST=<file> -DHEADER=<path> -DFUNCTION=<name> -P EmbedSources.cmake
# Writes OUTPUT, which defines FUNCTION, declared in HEADER: the files named in LIST (one path from ROOT a line) as
# string literals. A file is cut into literals of 8 KB, since compilers need only take 64 KB.
file(STRINGS ${LIST} paths)
set(arrays "")
set(table "")
set(index 0)
foreach(path IN LISTS paths)
  file(READ ${ROOT}/${path} text)
  string(LENGTH "${text}" length)
  set(literals "")
  set(offset 0)
  while(offset LESS length)
    string(SUBSTRING "${text}" ${offset} 8000 piece)
    string(APPEND literals "\n    R\"NODEWRIGHT(${piece})NODEWRIGHT\"")
    math(EXPR offset "${offset} + 8000")
  endwhile()
  string(APPEND arrays "constexpr char kText${index}[] = \"\"${literals};\n")
  string(APPEND table "    {\"${path}\", {kText${index}, sizeof kText${index} - 1}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUTPUT} "// Made by cmake/EmbedSources.cmake.
#include \"${HEADER}\"

namespace nodewright {
namespace {

${arrays}
constexpr EmbeddedSource kSources[] = {
${table}};

}  // namespace

std::span<const EmbeddedSource> ${FUNCTION}() { return kSources; }

}  // namespace nodewright
")
