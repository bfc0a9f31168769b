#!/usr/bin/env bash
# The release as a relocatable archive of a built tree: make_dist.sh [BUILD=build]. Writes
# BUILD/nodewright-<version>-x86_64.tar.gz: program, shared and static libraries, headers, CMake package, demo model,
# tuning files, and the licences of all that is linked or carried.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
name=nodewright-$version-$(uname -m)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cmake --install "$build" --prefix "$folder/$name" --strip >/dev/null
share=$folder/$name/share/nodewright
mkdir -p "$share/tuning" "$share/licenses"
cp models/tuning/*.json "$share/tuning"
cp LICENSE CHANGELOG.md "$share"
# Debian's packages of what is linked statically, and of Oniguruma, which is copied.
for package in libfmt-dev nlohmann-json3-dev libcli11-dev libutf8proc-dev libedit-dev libncurses-dev libbsd-dev libmd-dev \
  libonig-dev libboost1.81-dev; do
  if [ ! -e /usr/share/doc/$package/copyright ]; then
    echo "make_dist: /usr/share/doc/$package/copyright is missing: the archive must carry that licence" >&2
    exit 1
  fi
  cp -L /usr/share/doc/$package/copyright "$share/licenses/$package"
done
if [ -e "$build/archive/libnodewright_xgrammar.a" ]; then  # linked, and changed by cmake/xgrammar_fixes.py
  cat build/xgrammar/LICENSE build/xgrammar/NOTICE cmake/xgrammar_fixes.py >"$share/licenses/xgrammar"
  sed -n '1,/\*\//p' build/xgrammar/3rdparty/picojson/picojson.h >"$share/licenses/picojson"
  cp build/xgrammar/3rdparty/dlpack/LICENSE "$share/licenses/dlpack"
fi
tar --create --sort=name --owner=0 --group=0 --numeric-owner --directory "$folder" "$name" | gzip -n >"$build/$name.tar.gz"
echo "$build/$name.tar.gz: $(tar --list --file "$build/$name.tar.gz" | grep -vc '/$') files, $(du -k "$build/$name.tar.gz" | cut -f1) KiB"
