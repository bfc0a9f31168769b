#!/usr/bin/env bash
# Copies a built tree, stripped, to a folder of the same layout that a machine without compilers can run:
# carry.sh [BUILD=build] [OUT=build/carry]. Packs the folder as OUT.tgz; fails when that exceeds 60 MiB.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
out=${2:-build/carry}
limit_kib=$((60 * 1024))

rm -rf "$out"
mkdir -p "$out/lib" "$out/tests" "$out/examples"
copy() { strip --strip-unneeded -o "$2/$(basename "$1")" "$1"; }

copy "$build/nodewright" "$out"
for library in "$build"/lib/*.so*; do copy "$library" "$out/lib"; done
for program in "$build"/tests/*_tests; do
  case $program in */cpu_driver_tests | */serve_tests) continue ;; esac  # they never run on a GPU
  copy "$program" "$out/tests"
done
for program in "$build"/examples/*; do [ ! -f "$program" ] || [ ! -x "$program" ] || copy "$program" "$out/examples"; done

tar czf "$out.tgz" -C "$(dirname "$out")" "$(basename "$out")"
size_of() { du -sk --apparent-size "$1" | cut -f1; }
in_mib() { echo "$(($1 / 1024)).$(($1 % 1024 * 10 / 1024)) MiB"; }
kib=$(size_of "$out.tgz")
echo "$out: $(find "$out" -type f | wc -l) files, $(in_mib "$(size_of "$out")"); $out.tgz: $(in_mib "$kib")"
if [ "$kib" -gt $limit_kib ]; then
  echo "carry: more than 60 MiB; the largest: $(cd "$out" && du -k --apparent-size -a . | sort -rn | sed -n '2,6s/\t/ KiB /p' | paste -sd,)" >&2
  exit 1
fi
