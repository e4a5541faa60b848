#!/usr/bin/env bash
# Runs a recipe whose cells have ranks on several hosts, one GPU per rank, as one Slurm job:
#
#   sbatch --nodes=2 --ntasks-per-node=8 --gpus-per-node=8 examples/cluster/hosts.sh RECIPE /shared/results
#
# The hosts have the recipe, its data and the same runner at the same paths. A second submission measures what is missing.
#SBATCH --job-name=runner
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
set -u

recipe=${1:?usage: hosts.sh RECIPE RESULTS}
results=${2:?usage: hosts.sh RECIPE RESULTS}

# All ranks meet on the host of rank 0, which is the first host.
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
# By this secret they know each other; srun gives it to all of them.
RUNNER_SECRET=${RUNNER_SECRET:-$(head -c 32 /dev/urandom | base64)}
export MASTER_ADDR MASTER_PORT RUNNER_SECRET

exec srun runner join "$recipe" --results "$results"
