#!/usr/bin/env bash
# Runs the fuzzers of a build of the fuzz preset, one after the other: run_fuzzers.sh BUILD SECONDS [NAME...]
# New inputs go to BUILD/corpus/NAME, what is found to BUILD/findings/NAME-*; exits 1 when there is a finding. Every
# fuzzer runs, also after one that found something.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -ge 2 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
build=$1 seconds=$2
shift 2
names=${*:-$(for f in tests/fuzz/fuzzers/*_fuzzer.cpp; do basename "$f" _fuzzer.cpp; done)}
mkdir -p "$build/findings"
found=0
for name in $names; do
  echo "== $name: $seconds s"
  mkdir -p "$build/corpus/$name"
  words=(-max_total_time="$seconds" -timeout=30 -rss_limit_mb=2048 -malloc_limit_mb=512 -max_len=65536
         -print_final_stats=1 -artifact_prefix="$build/findings/$name-")
  [ ! -e "tests/fuzz/fuzzers/$name.dict" ] || words+=(-dict="tests/fuzz/fuzzers/$name.dict")
  log=$build/findings/$name.log
  "$build/tests/fuzz_$name" "${words[@]}" "$build/corpus/$name" "tests/fuzz/corpus/$name" 2>"$log" || found=1
  grep -E '^(stat::number_of_executed|Done |SUMMARY|fuzzer:)|runtime error:|cov:' "$log" | tail -4 || true
done
exit $found
