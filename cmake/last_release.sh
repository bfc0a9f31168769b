#!/usr/bin/env bash
# Prints the newest release at or before a commit (HEAD): its tag or, where tags were not fetched, the commit that set
# the project's version.
set -euo pipefail
commit=${1:-HEAD}
git describe --tags --abbrev=0 "$commit" 2>/dev/null ||
  git log -1 --format=%H -G'project\(nodewright VERSION' "$commit" -- CMakeLists.txt
