#!/usr/bin/env bash
# What tests/reference/tokenization/check_real_tokenizers.py needs: fetch_tokenizers.sh [OUT=build/tokenizers]. The oracles go into
# OUT/venv, the sdist of llama-cpp-python (77 MB) into OUT/packages, the tokenizers made of it into OUT/files. Nothing is
# fetched or made twice.
set -euo pipefail
cd "$(dirname "$0")/../../.."

out=${1:-build/tokenizers}
python=$out/venv/bin/python
mkdir -p "$out/packages"
[ -x "$python" ] || python3 -m venv "$out/venv"
"$python" -m pip install --quiet -r tests/reference/tokenization/tokenizers_requirements.txt
if ! compgen -G "$out/packages/llama_cpp_python-*.tar.gz" >/dev/null; then
  "$python" -m pip download --quiet --no-deps --no-binary :all: --no-build-isolation --dest "$out/packages" llama-cpp-python==0.3.36
fi
if [ ! -d "$out/files" ]; then
  rm -rf "$out/files.partial"
  "$python" tests/reference/tokenization/real_tokenizers.py "$out/packages" "$out/files.partial"
  mv "$out/files.partial" "$out/files"
fi
