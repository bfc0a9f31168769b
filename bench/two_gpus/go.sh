#!/bin/bash
# Runs the experiments of this folder on two GPUs, or those that are named: JSON lines on standard output, less than 4
# minutes. A program that fails says so in a line of its own, and the others still run.
#   go.sh [flight] [exchange_forms] [launch_skew] [abandoned_step]
here=$(cd "$(dirname "$0")" && pwd)
echo "{\"experiment\": \"machine\", \"date\": \"$(date -u +%F)\", \"driver\": \"$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)\"}"
nvidia-smi topo -m | sed 's/\x1b\[[0-9;]*m//g' >&2
named=" ${*:-flight exchange_forms launch_skew abandoned_step} "
run() {
  local seconds=$1 program=$2 kernels=$3
  [[ "$named" == *" $program "* ]] || return 0
  timeout -k 5 "$seconds" "$here/$program" "$here/$kernels.cubin" ||
    echo "{\"experiment\": \"$program\", \"failed\": true, \"exit\": $?}"
}
run 30 flight probe_kernels
run 90 exchange_forms decode_kernels
run 60 launch_skew probe_kernels
run 40 abandoned_step probe_kernels
