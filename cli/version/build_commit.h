// The commit that the program was built from. A source file of its own defines it, which cmake/BuildCommit.cmake
// writes: a new commit compiles that one again, and nothing else.
#pragma once

namespace nodewright::cli {

// "9a457543", "9a457543-dirty" where a tracked file differed, or "unknown" where there was no repository.
const char* build_commit();

}  // namespace nodewright::cli
