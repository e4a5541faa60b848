#!/usr/bin/env bash
# Runs a recipe as an array of HyperQueue tasks. Each measures its part of the cells into one shared folder:
#
#   examples/cluster/hyperqueue.sh recipes/overlap.toml /shared/results 8
#
# A worker that ends is not a failure: HyperQueue starts its tasks again, and finished rows stay.
set -eu

recipe=${1:?usage: hyperqueue.sh RECIPE RESULTS PARTS}
results=${2:?usage: hyperqueue.sh RECIPE RESULTS PARTS}
parts=${3:?usage: hyperqueue.sh RECIPE RESULTS PARTS}

# HyperQueue numbers its tasks in HQ_TASK_ID. 75 means a busy device or a full disk, which is worth another try.
task='for try in 1 2 3; do
  runner run "$1" --results "$2" --shard "$3"; code=$?
  [ $code = 75 ] || break
  sleep "${RETRY_SECONDS:-60}"
done
exit $code'

hq submit --array "1-$parts" --name runner --resource gpus/nvidia=1 --crash-limit 3 --wait -- \
  bash -c "$task" runner "$recipe" "$results" "$parts"
