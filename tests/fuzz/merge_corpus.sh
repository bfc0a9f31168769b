#!/usr/bin/env bash
# Adds what the fuzzers of a build found to the corpus: merge_corpus.sh BUILD [NAME...]. Keeps of build/corpus/NAME the
# smallest inputs up to 4 KiB that reach code which no input in tests/fuzz/corpus/NAME reaches yet, 40 at most.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -ge 1 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
build=$1
shift
names=${*:-$(for f in tests/fuzz/fuzzers/*_fuzzer.cpp; do basename "$f" _fuzzer.cpp; done)}
for name in $names; do
  corpus=tests/fuzz/corpus/$name
  small=$(mktemp -d) merged=$(mktemp -d)
  find "$build/corpus/$name" -type f -size -9 -exec cp -t "$small" {} +  # 512-byte blocks
  cp "$corpus"/* "$merged"
  "$build/tests/fuzz_$name" -merge=1 -use_value_profile=0 "$merged" "$small" 2>/dev/null
  for file in "$merged"/*; do
    [ -e "$corpus/$(basename "$file")" ] || stat -c '%s %n' "$file"
  done | sort -n | awk 'NR <= 40 {print $2}' | xargs -r cp -t "$corpus"
  echo "$name: $(find "$corpus" -type f | wc -l) inputs, $(du -sb "$corpus" | cut -f1) bytes"
  rm -rf "$small" "$merged"
done
