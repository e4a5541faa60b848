#!/usr/bin/env bash
# Runs `runner join` over two hosts that are really one machine with two GPUs. Because NCCL_HOSTID differs, NCCL treats
# them as two hosts and uses its network transport; the last lines of the output show this.
#
#   examples/cluster/two_hosts.sh RECIPE RESULTS [more arguments of runner join, for example --cell 5]
set -u

recipe=${1:?usage: two_hosts.sh RECIPE RESULTS}
results=${2:?usage: two_hosts.sh RECIPE RESULTS}
shift 2

# What torchrun sets for a process that is alone on its host.
export WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_WORLD_SIZE=2
export MASTER_ADDR=127.0.0.1 MASTER_PORT="${MASTER_PORT:-29517}" TORCHELASTIC_RUN_ID=$$
# By which ranks on several hosts know each other.
RUNNER_SECRET=$(head -c 32 /dev/urandom | base64)
export RUNNER_SECRET
mkdir -p "$results"
export NCCL_DEBUG=INFO NCCL_DEBUG_FILE="$results/nccl-%h-%p.txt"

RANK=1 CUDA_VISIBLE_DEVICES=1 NCCL_HOSTID=second runner join "$recipe" --results "$results" "$@" &
RANK=0 CUDA_VISIBLE_DEVICES=0 NCCL_HOSTID=first runner join "$recipe" --results "$results" "$@"
code=$?
wait $!; second=$?

echo "the first host ended with $code, the second with $second"
grep -ho "via [A-Z0-9]*/[A-Za-z0-9]*" "$results"/nccl-*.txt 2>/dev/null | sort | uniq -c
exit $code
