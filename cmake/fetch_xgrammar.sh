#!/usr/bin/env bash
# Fetches the sources of xgrammar from PyPI into build/xgrammar: fetch_xgrammar.sh [--try]. Silent and quick when they are
# there. With --try a machine without network or pip is told so, and the script succeeds: xgrammar is optional.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.2.8
sha256=8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80  # of the sdist, 2.7 MB
place=build/xgrammar
fixes=cmake/xgrammar_fixes.py

main() {
  local failed=1 partial mark
  case ${1:-} in
    "") ;;
    --try) failed=0 ;;
    *) echo "usage: $0 [--try]" >&2; exit 2 ;;
  esac
  mark="$sha256 $(sha256sum <$fixes | cut -d' ' -f1)"
  [ "$(cat $place/nodewright-mark 2>/dev/null)" != "$mark" ] || return 0
  echo "Fetching xgrammar $version into $place"
  mkdir -p build
  partial=$(mktemp -d build/xgrammar.XXXXXX)
  trap "rm -rf '$partial'" EXIT
  if ! fetch "$partial" >"$partial/log" 2>&1; then
    [ $failed = 0 ] || cat "$partial/log" >&2
    echo "fetch_xgrammar: could not fetch it from PyPI; without it, schemas and grammars beyond regular expressions are refused" >&2
    exit $failed
  fi
  # A wrong archive is an error even with --try.
  if ! echo "$sha256  $partial/xgrammar-$version.tar.gz" | sha256sum --check --status; then
    echo "fetch_xgrammar: $(sha256sum "$partial/xgrammar-$version.tar.gz") is not the archive that was expected, sha256 $sha256" >&2
    exit 1
  fi
  mkdir "$partial/source"
  tar -xzf "$partial/xgrammar-$version.tar.gz" -C "$partial/source" --strip-components=1 \
    xgrammar-$version/{cpp,include,3rdparty/picojson,3rdparty/dlpack/include,3rdparty/dlpack/LICENSE,LICENSE,NOTICE}
  python3 $fixes "$partial/source"
  echo "$mark" >"$partial/source/nodewright-mark"
  rm -rf $place
  mv "$partial/source" $place
}

# pip also asks the sdist for its metadata, for which it fetches scikit-build-core and tvm-ffi's build needs: 4 s.
fetch() { python3 -m pip download --no-deps --no-binary xgrammar --dest "$1" --timeout 10 --retries 1 "xgrammar==$version"; }

main "$@"
