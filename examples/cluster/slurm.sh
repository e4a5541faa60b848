#!/usr/bin/env bash
# Runs a recipe as an array of Slurm jobs. Each measures its part of the cells into one shared folder:
#
#   sbatch --array=1-8 examples/cluster/slurm.sh recipes/overlap.toml /shared/results
#
# The runner reads its part from Slurm's variables. A second submission measures what is missing.
#SBATCH --job-name=runner
#SBATCH --gpus=1
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@60
set -u

recipe=${1:?usage: slurm.sh RECIPE RESULTS}
results=${2:?usage: slurm.sh RECIPE RESULTS}

# A job that is preempted or reaches its time limit ends the running cell; finished cells keep their rows.
runner run "$recipe" --results "$results" &
trap 'kill -TERM $!' TERM
wait $!; code=$?
wait $! 2>/dev/null

# 75: a busy device or a full disk; 130 and 143: stopped from outside. These are worth another try.
case $code in
  75 | 130 | 143)
    if [ "${SLURM_RESTART_COUNT:-0}" -lt 3 ]; then scontrol requeue "$SLURM_JOB_ID"; fi ;;
esac
exit $code
