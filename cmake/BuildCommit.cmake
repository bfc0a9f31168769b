# Writes OUTPUT, the source of build_commit(), where it is not so yet: the short hash of the commit that SOURCE is at, with
# -dirty where a tracked file differs from it. "unknown" where SOURCE is no repository itself, or there is no git.
#   cmake -DSOURCE=<folder> -DOUTPUT=<file> -P BuildCommit.cmake
set(commit unknown)
find_program(git_program git)
if(git_program AND EXISTS ${SOURCE}/.git)
  set(git ${git_program} --no-optional-locks -C ${SOURCE})
  execute_process(COMMAND ${git} rev-parse --short=8 HEAD RESULT_VARIABLE failed OUTPUT_VARIABLE hash ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed)
    set(commit ${hash})
    execute_process(COMMAND ${git} status --porcelain --untracked-files=no OUTPUT_VARIABLE changes ERROR_QUIET)
    if(NOT changes STREQUAL "")
      string(APPEND commit -dirty)
    endif()
  endif()
endif()
set(include "#include")  # a line of this file that begins so would count as one of its own (tests/check_includes.py)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[// Made by cmake/BuildCommit.cmake.
@include@ "cli/version/build_commit.h"

namespace nodewright::cli {

const char* build_commit() { return "@commit@"; }

}  // namespace nodewright::cli
]] @ONLY)  # a file that has this text already stays as old as it is
