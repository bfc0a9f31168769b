#!/usr/bin/env bash
# The check of everything that CI cannot run: on a machine with an NVIDIA GPU, from the repository root, with a built or
# carried tree (`make carry`). Needs python3 with numpy, and with torch and transformers for `big`,
# `families` and `bench`.
#   bench/gpu_check.sh OUT [tests] [cli] [sanitizer] [big] [families] [plans] [serve] [http] [decode] [bench] [graph]
# All sections by default.
# BIG_SHAPES and FAMILY_SHAPES choose the checkpoints of `big` (its first is the others') and of `families`;
# DECODE_BATCHES="1 8" times steps of so many rows of each of them, too, into decode-SHAPE.json.
# Writes to OUT: summary.txt and one log a section; bench.json and modes.json (bench); decode.json, context.json, sampling.json,
# steps.json and loop.json (decode); engine.json, serve.json and arriving.json (serve); http.json (http); graph.json and three plots, where there is matplotlib (graph). Exits 1 when
# a check failed or was skipped. Each section ends within SECTION_SECONDS (default 540).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

[ $# -ge 1 ] || { sed -n '2,12s/^# //p' "$0" >&2; exit 2; }
mkdir -p "$1" || exit 2
out=$(cd "$1" && pwd)
shift
sections=${*:-tests cli sanitizer big families plans serve http decode bench graph}

build=${BUILD:-build/carry}
[ -x "$build/nodewright" ] || build=build
[ -x "$build/nodewright" ] || { echo "gpu_check: no built tree at build/carry or build; run make carry" >&2; exit 2; }
build=$(cd "$build" && pwd)
nodewright=$build/nodewright

device=${NODEWRIGHT_GPU_CHECK_DEVICE:-cuda}  # "cpu" tries the script itself where there is no GPU
test_device=$device
torch_device=$device
big_shapes=${BIG_SHAPES:-llama-3.2-1b llama-3.2-3b} family_shapes=${FAMILY_SHAPES:-qwen3-0.6b qwen3-4b gemma-3-1b gpt2}
if [ "$device" = cuda ]; then test_device=cuda:0; else big_shapes=default family_shapes=; fi
modes="explicit captured eager"
section_seconds=${SECTION_SECONDS:-540}
commit=${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}  # what the figures belong to

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export NODEWRIGHT_SOURCE_DIR=$PWD NODEWRIGHT_BINARY_DIR=$build PYTHONDONTWRITEBYTECODE=1
export NODEWRIGHT_CPU_DRIVER=$build/lib/libnodewright_cpu_driver.so
export NODEWRIGHT_CACHE=$scratch/kernel-cache  # nothing compiled earlier is trusted
export NODEWRIGHT_TEST_DEVICE=$test_device

# --- sections ---------------------------------------------------------------------------------------------------------

section_tests() {
  local program
  for program in runtime graph kernel models input engine bench; do
    [ ! -x "$build/tests/${program}_tests" ] || run_tests "${program}_tests"
  done
  [ $checks -gt 0 ] || record "test programs in $build/tests" 0 1 0 0
}

section_cli() {
  local case prompt forced reference first mode bucket example on
  check "doctor" 60 "$nodewright" doctor
  for example in examples/*.cpp; do
    example=$(basename "$example" .cpp)
    case $example in all_reduce) on=cpu:devices=4 ;; *) on=$device ;; esac  # two GPUs: label two_gpus
    check "example $example" 60 "$build/examples/$example" $on
  done
  if [ -x "$build/examples/captured" ] && [ $device != cpu ]; then  # only a build with nvcc and cuBLAS has it
    check "example port" 100 env NODEWRIGHT_EXAMPLES="$build/examples" NODEWRIGHT_TEST_DEVICE=$device \
      python3 tests/examples/test_port.py
  fi
  if [ -x "$build/examples/stranger" ]; then  # tests/package/test_stranger.py leaves it there
    check "somebody else's project" 60 "$build/examples/stranger" $test_device
  fi
  for mode in $modes; do
    check "generate demo, $mode" 120 to_file "$scratch/story.$mode" \
      "$nodewright" generate --model models/demo --prompt "Once upon a time" --max-tokens 64 --greedy --device $device \
      --mode "$mode"
  done
  check "generate demo: the modes agree" 10 agree "$scratch"/story.{explicit,captured,eager}
  check "the modes differ in what they call" 180 modes_are_three_things

  for case in tests/golden/{llama,qwen3,gemma3,gpt2}/*/; do
    while IFS=$'\t' read -r prompt forced reference; do
      first=$scratch/logits
      for mode in $modes; do
        check "logits $case$reference, $mode" 120 "$nodewright" logits --model "$case" --prompt-ids "$prompt" \
          --continue "$forced" --out "$first.$mode.npy" --device $device --mode "$mode"
      done
      check "logits $case$reference: modes bit-equal" 10 agree "$first".{explicit,captured,eager}.npy
      check "logits $case$reference: reference" 30 python3 tests/reference/compare_logits.py "$first.explicit.npy" \
        "$case$reference"
      rm -f "$first".*.npy
    done < <(golden_cases "$case")
    for bucket in 1 2 4 8; do
      check "plan of ${case}b$bucket" 60 checked_plan "$case" $bucket
    done
  done
  for bucket in 1 2 4 8; do check "plan of models/demo, b$bucket" 60 checked_plan models/demo $bucket; done
}

section_sanitizer() {
  local tool sanitizer model
  sanitizer=$(find_sanitizer) || { note "compute-sanitizer: not on this machine"; return; }
  for tool in memcheck racecheck synccheck initcheck; do
    sanitize $tool demo --model models/demo --prompt Once
    for model in llama/odd_sizes qwen3/normed_heads gemma3/window_16 gpt2/learned_positions; do
      sanitize $tool "$model" --model "tests/golden/$model" --prompt-ids 5,4,3,2,1
    done
  done
}

section_big() {
  local shape
  for shape in $big_shapes; do
    big_shape "$shape"
    [ "$shape" = llama-3.2-1b ] || rm -rf "${scratch:?}/$shape"  # bench takes the 1B one
  done
}

section_families() {
  local shape
  for shape in $family_shapes; do
    big_shape "$shape"
    rm -rf "${scratch:?}/$shape"
  done
}

# Every default bucket of the 1B shapes, read back from the driver.
section_plans() {
  local shape=${big_shapes%% *} bucket buckets="1 2 4 $(seq -s ' ' 8 8 248) $(seq -s ' ' 256 16 512)"
  [ "$device" = cuda ] || buckets="1 2"
  make_checkpoint "$shape"
  for bucket in $buckets; do
    check "plan of $shape, b$bucket: as the driver has it" 60 "$nodewright" graph --model "$scratch/$shape" \
      --bucket "$bucket" --verify --device $device
  done
}

section_serve() {
  local shape=${big_shapes%% *} sizes=(--batch 1 8 64 --rounds 2) requests=200
  local traffic=(--requests 256 --prompt-tokens 128,1024,8192:0.1 --output-tokens 64-256) long=8192
  [ "$device" = cuda ] || {
    sizes=(--batch 1 2 --rounds 1 --prompt 4 --output 8) requests=3
    traffic=(--requests 3 --prompt-tokens 4,8 --output-tokens 2-4) long=16
  }
  make_checkpoint "$shape"
  check "bench engine" 180 "$nodewright" bench engine --model "$scratch/$shape" --device $device --commit "$commit" \
    --out "$out/engine.json" "${sizes[@]}"
  check "bench serve, 64 at once" 180 "$nodewright" bench serve --model "$scratch/$shape" --device $device \
    --commit "$commit" --out "$out/serve.json" --concurrency 64 "${traffic[@]}"
  check "bench serve, a prompt beside 8 decoders" 180 "$nodewright" bench serve --model "$scratch/$shape" \
    --device $device --commit "$commit" --out "$out/arriving.json" --decoders 8 --prompt-tokens $long
  check "requests together as alone" 300 python3 tests/reference/check_serving.py --program "$nodewright" \
    --model "$scratch/$shape" --device $device --requests $requests
}

section_http() {
  local shape=${big_shapes%% *} sizes=()
  [ "$device" = cuda ] || sizes=(--concurrency 2 --rounds 1 --prompt-tokens 4 --output-tokens 4 --max-context 64 --crowd 3 --idle 5)
  make_checkpoint "$shape"
  check "the server beside the engine" 300 python3 bench/http_beside_engine.py --program "$nodewright" \
    --model "$scratch/$shape" --device $device --commit "$commit" --out "$out/http.json" "${sizes[@]}"
}

section_decode() {
  local shape=${big_shapes%% *} batches="1 2 4 8 16 32 64" contexts="128 1024 8192 32000" most=32768 few="1 8"
  local keys=1024 samples=12 sampled="1 64"
  [ "$device" = cuda ] || { batches="1 2" contexts="8 16" most=64 few=1 keys=16 samples=1 sampled="1 2"; }
  make_checkpoint "$shape"
  bench_decode "$shape" "batches" decode.json --batch $batches --context $keys --samples $samples
  bench_decode "$shape" "contexts, in graphs for $most keys" context.json --context $contexts --max-context $most \
    --samples $samples
  bench_decode "$shape" "sampling" sampling.json --rows $sampled --context $keys --samples $samples --sampling \
    temperature=1 top_k=50 top_p=0.9 min_p=0.05 top_k=64,top_p=0.95 top_k=64,top_p=0.95,min_p=0.05 \
    mask,repetition_penalty=1.1,logprobs=5
  bench_decode "$shape" "8 steps a launch" steps.json --batch $few --context $keys --steps-per-launch 8 --samples $samples
  bench_decode "$shape" "8 steps a launch, as a loop" loop.json --batch $few --context $keys --steps-per-launch 8 \
    --until-ended --samples $samples
  check "from the start of the process to its first token" 60 bash -c 'time "$@"' timed "$nodewright" generate \
    --model "$scratch/$shape" --prompt-ids "$(seq -s, 1 16)" --max-tokens 1 --ignore-eos --stats --device $device
  ready_to_serve "$shape"
}

# Every graph of an engine, from the start of the process to the first token of one request: twice, the second time with
# warm caches, then with the graphs of second choices.
ready_to_serve() {
  local request='"prompt_ids": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16], "max_tokens": 1, "ignore_eos": true'
  local batch=512 pages=2048 one
  [ "$device" = cuda ] || batch=4 pages=16
  for one in "" "" ', "logprobs": 0'; do
    echo "{$request$one}" >"$scratch/request.jsonl"
    check "ready to serve, batches up to $batch${one:+, second choices}" 60 bash -c 'time "$@"' timed "$nodewright" run \
      --model "$scratch/$1" --requests "$scratch/request.jsonl" --max-batch $batch --pages $pages --stats --device $device
  done
}

bench_decode() {  # bench_decode SHAPE NAME FILE OPTIONS...
  local folder=$scratch/$1 name=$2 file=$3
  shift 3
  check "bench decode, $name" 120 "$nodewright" bench decode --model "$folder" --device $device --commit "$commit" \
    --out "$out/$file" "$@"
}

section_bench() {
  local shape=${big_shapes%% *}
  make_checkpoint "$shape"
  # Ours and the peers take turns; the read bandwidth is measured between our samples.
  check "compare_decode, batch 1, context 1024" 300 python3 bench/peers/compare_decode.py --nodewright "$nodewright" \
    --model "$scratch/$shape" --batch 1 --context 1024 --device $torch_device --commit "$commit" --out "$out/bench.json"
  check "bench decode, three modes" 240 "$nodewright" bench decode --model "$scratch/$shape" --batch 1 2 4 8 \
    --context 128 1024 --modes $modes --out "$out/modes.json" --device $device --commit "$commit"
  check "bench load" 120 "$nodewright" bench load --model "$scratch/$shape" --device $device
  if [ "$device" = cuda ]; then  # the node timer beside ncu
    check "node timer" 120 python3 bench/check_node_timer.py --program "$nodewright" --model "$scratch/$shape"
  fi
}

section_graph() {
  local shape=${big_shapes%% *} sizes=(--check)
  [ "$device" = cuda ] || sizes=(--lengths 1 10 --repetitions 2 --nodes-a-sample 50 --most-rows 2 --context 64)
  make_checkpoint "$shape"
  check "bench graph" 300 "$nodewright" bench graph --model "$scratch/$shape" --buckets --reserve \
    --out "$out/graph.json" --device $device --commit "$commit" "${sizes[@]}"
  if python3 -c "import matplotlib" 2>/dev/null; then
    check "plots of bench graph" 60 python3 bench/plot_graph.py "$out/graph.json" "$out" graph-
  else
    note "plots of bench graph: no matplotlib on this machine; bench/plot_graph.py draws them from graph.json"
  fi
}

# --- what the sections are made of ------------------------------------------------------------------------------------

run_tests() {  # a GoogleTest program, without the suites that only the CPU driver can pass, or that need none or two
  local begin=$SECONDS status passed failed skipped text=$scratch/tests.txt
  with_time_left 480 "$build/tests/$1" '--gtest_filter=-*OnCpuDriver.*:*OnCpuDriver/*:KernelBudgets.*:KernelRules.*:ExchangeKernels.*:TwoDevices*:FourDevices*' --gtest_color=no >"$text" 2>&1
  status=$?
  { echo "=== $1"; cat "$text"; echo "=== exit $status"; } >>"$log"
  passed=$(count_in PASSED "$text")
  failed=$(count_in FAILED "$text")
  skipped=$(count_in SKIPPED "$text")
  if [ $status -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi  # it crashed or ran out of time
  if [ $((passed + failed + skipped)) -eq 0 ]; then failed=1; fi
  record "$1" "$passed" "$failed" "$skipped" $((SECONDS - begin))
}

count_in() {  # the number in GoogleTest's closing "[  PASSED  ] 12 tests"
  local number
  number=$(sed -nE "s/^\[ +$1 +\] ([0-9]+) tests?[.,].*/\1/p" "$2" | tail -1)
  echo "${number:-0}"
}

golden_cases() {  # lines: prompt, forced tokens, reference file
  python3 - "$1/cases.json" <<'PYTHON'
import json, sys
for case in json.load(open(sys.argv[1]))["cases"]:
    print(",".join(map(str, case["prompt"])), ",".join(map(str, case["continuation"])), case["logits"], sep="\t")
PYTHON
}

to_file() {
  local file=$1
  shift
  "$@" >"$file" && cat "$file" && [ -s "$file" ]
}

agree() {
  local first=$1 other
  shift
  for other in "$@"; do cmp "$first" "$other" || return 1; done
}

checked_plan() {
  "$nodewright" graph --model "$1" --bucket "$2" --format json --out "$scratch/plan.json" --device $device &&
    python3 tests/reference/check_plan.py "$scratch/plan.json"
}

# The trace of each mode: explicit adds nodes and captures nothing, captured adds none, eager launches no graph.
modes_are_three_things() {
  local mode
  for mode in $modes; do
    "$nodewright" generate --model tests/golden/llama/odd_sizes --prompt-ids 1,2,3 --max-tokens 4 --ignore-eos --greedy \
      --device $device --mode "$mode" --trace >/dev/null 2>"$scratch/trace.$mode" || { tail -3 "$scratch/trace.$mode"; return 1; }
    echo "$mode: $(calls "$mode" cuGraphAddNode) cuGraphAddNode, $(calls "$mode" cuStreamBeginCapture)" \
      "cuStreamBeginCapture, $(calls "$mode" cuGraphLaunch) cuGraphLaunch, $(calls "$mode" cuLaunchKernelEx) cuLaunchKernelEx"
  done
  [ "$(calls explicit cuGraphAddNode)" -gt 0 ] && [ "$(calls explicit cuStreamBeginCapture)" -eq 0 ] &&
    [ "$(calls explicit cuGraphLaunch)" -gt 0 ] && [ "$(calls captured cuGraphAddNode)" -eq 0 ] &&
    [ "$(calls captured cuStreamBeginCapture)" -gt 0 ] && [ "$(calls captured cuGraphLaunch)" -gt 0 ] &&
    [ "$(calls eager cuGraphLaunch)" -eq 0 ] && [ "$(calls eager cuStreamBeginCapture)" -eq 0 ]
}

calls() { grep -c "$2" "$scratch/trace.$1"; }

find_sanitizer() {
  local place
  for place in "$(command -v compute-sanitizer)" "${CUDA_HOME:-/usr/local/cuda}"/bin/compute-sanitizer \
               /usr/local/cuda*/bin/compute-sanitizer; do
    if [ -x "$place" ]; then echo "$place"; return 0; fi
  done
  return 1
}

sanitize() {  # sanitize TOOL NAME GENERATE-OPTIONS...
  local tool=$1 name=$2 options=()
  shift 2
  [ "$tool" != synccheck ] || options=(--num-cuda-barriers 16384)  # attention alone has up to 64 a block; the tool has no room for 32768
  check "$tool, $name" 240 "$sanitizer" --tool "$tool" "${options[@]}" --error-exitcode 99 "$nodewright" generate "$@" \
    --max-tokens 4 --ignore-eos --device $device
}

# A released shape with random weights: a prompt of 64 tokens, then 32 greedy steps whose tokens the reference is forced
# through as well, so that the greedy choice is compared at each of them.
big_shape() {
  local shape=$1 folder=$scratch/$1 prompt forced mode
  prompt=$(seq -s, 7 15 952)
  make_checkpoint "$shape"
  check "$shape: generate" 180 to_file "$scratch/tokens" "$nodewright" generate --model "$folder" --prompt-ids "$prompt" \
    --max-tokens 32 --greedy --ignore-eos --stats --device $device
  forced=$(tail -1 "$scratch/tokens")
  for mode in $modes; do
    check "$shape: logits, $mode" 120 "$nodewright" logits --model "$folder" --prompt-ids "$prompt" --continue "$forced" \
      --out "$scratch/big.$mode.npy" --device $device --mode "$mode"
  done
  check "$shape: modes bit-equal" 10 agree "$scratch"/big.{explicit,captured,eager}.npy
  check "$shape: transformers" 240 python3 tests/reference/reference_logits.py --model "$folder" --prompt "$prompt" \
    --continue "$forced" --device $torch_device --out "$scratch/reference.npy"
  check "$shape: reference" 30 python3 tests/reference/compare_logits.py "$scratch/big.explicit.npy" \
    "$scratch/reference.npy"
  rm -f "$scratch"/big.*.npy "$scratch/reference.npy" "$scratch/tokens"
  [ -z "${DECODE_BATCHES:-}" ] || bench_decode "$shape" "$shape" "decode-$shape.json" --batch $DECODE_BATCHES --context 1024
}

make_checkpoint() {
  local preset=()
  [ ! -e "$scratch/$1/config.json" ] || return 0
  [ "$1" = default ] || preset=(--preset "$1")
  check "$1: random checkpoint" 240 python3 tests/reference/make_checkpoint.py --out "$scratch/$1" "${preset[@]}" \
    --device $torch_device
}

# --- running and counting ---------------------------------------------------------------------------------------------

checks=0 all_passed=0 all_failed=0 all_skipped=0
summary=$out/summary.txt
: >"$summary"

check() {  # check NAME SECONDS COMMAND...: one row of the table
  local name=$1 limit=$2 begin=$SECONDS status
  shift 2
  echo "=== $name: $*" >>"$log"
  with_time_left "$limit" "$@" >>"$log" 2>&1
  status=$?
  echo "=== exit $status" >>"$log"
  if [ $status -eq 0 ]; then record "$name" 1 0 0 $((SECONDS - begin)); else record "$name" 0 1 0 $((SECONDS - begin)); fi
}

with_time_left() {  # a command or a function of this script, for at most so many seconds of what its section has left
  local limit=$1 left=$((deadline - SECONDS))
  shift
  [ "$left" -gt 0 ] || { echo "no time left in this section"; return 124; }
  [ "$limit" -le "$left" ] || limit=$left
  if [ "$(type -t "$1")" = function ]; then
    timeout --kill-after=10 "$limit" bash -uo pipefail -c '"$@"' gpu_check "$@"
  else
    timeout --kill-after=10 "$limit" "$@"
  fi
}

record() {  # NAME PASSED FAILED SKIPPED SECONDS
  checks=$((checks + 1)) all_passed=$((all_passed + $2)) all_failed=$((all_failed + $3)) all_skipped=$((all_skipped + $4))
  section_passed=$((section_passed + $2)) section_failed=$((section_failed + $3)) section_skipped=$((section_skipped + $4))
  if [ "$3" -gt 0 ] || [ "$4" -gt 0 ]; then note "$section: $1: $3 failed, $4 skipped ($5 s); see $(basename "$log")"; fi
}

note() { echo "$1" | tee -a "$summary"; }

# with_time_left runs these in a shell of their own.
export -f to_file agree checked_plan modes_are_three_things calls
export nodewright device scratch modes out

rows=$(printf '%-10s %7s %7s %7s %8s' section passed failed skipped seconds)
for section in $sections; do
  if [ "$(type -t "section_$section")" != function ]; then
    note "gpu_check: no section is named $section; there are tests, cli, sanitizer, big, families, plans, serve, decode, bench, graph"
    all_failed=$((all_failed + 1))
    continue
  fi
  log=$out/$section.log
  : >"$log"
  section_passed=0 section_failed=0 section_skipped=0 begun=$SECONDS deadline=$((SECONDS + section_seconds))
  "section_$section"
  rows+=$'\n'$(printf '%-10s %7d %7d %7d %8d' "$section" $section_passed $section_failed $section_skipped $((SECONDS - begun)))
done

note ""
note "$rows"
if [ $all_failed -eq 0 ] && [ $all_skipped -eq 0 ] && [ $checks -gt 0 ]; then
  note "green: $all_passed passed on $device"
else
  note "NOT green: $all_failed failed, $all_skipped skipped, $all_passed passed on $device"
  exit 1
fi
