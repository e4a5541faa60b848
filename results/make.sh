#!/usr/bin/env bash
# Measures the committed results again with one build, on a machine where nothing else runs:
#
#   cargo build --release && results/make.sh [RECIPE...]
#
# The rows of an H100 come from a host with four of them, a recipe on each GPU with 16 of the cores, as
#
#   CUDA_VISIBLE_DEVICES=0 taskset -c 0-15 results/make.sh overlap methods & \
#   CUDA_VISIBLE_DEVICES=1 taskset -c 16-31 results/make.sh amp_wikitext; wait
#
# Copies of several GPUs through the host slow each other down. So cells that copy through the host ran one at a time on one
# GPU, and cells of the same recipes that stay on the GPU (--cell) beside them. The host launches kernels more slowly then, so
# steps that wait for their launches take longer than with one recipe at a time.
#
# All rows are of one build, that of commit dfd0ceaf (e15123b2837d): quickstart, amp, data, data_parallel, pipeline, tensor and zero
# from two CPU cores, the others from four H100; of later ones are qwen3 and chat, from one H100, my_card,
# five_savings, five_savings_loss and quality, from H200, and families, from two CPU cores. lora has the rows of qlora for its cells, which are also qlora's.
#
# The reports also name what the same build was checked with on the same kind of device: runner verify tests/fixtures/MODEL
# --save FOLDER, and runner report FOLDER, with MODEL the recipe's model.kind, with the precision of its cells (--set
# precision.compute=bf16), and the fixtures of adapters, offload (--set offload.strategy=overlap) and loss scalers where it has such
# cells.
#
# If it is interrupted, the same command resumes: rows of this build stay, and rows of other builds are measured again.
# Recipes on WikiText need the folder `wikitext`, those on GSM8K `gsm8k` and `smollm2`, chat `smollm2`. Without a GPU
# only the recipes for a CPU run.
# `git add results` then takes what is committed of it: .gitignore leaves out charts, reports and traces but for a few.
set -u
cd "$(dirname "$0")/.."
runner=${RUNNER:-target/release/runner}

cpu="quickstart families amp data data_parallel pipeline tensor zero"
gpu="overlap methods qwen2_0.5b qwen7b resident_blocks qwen7b_adamw gpt2_large gpt2_small_amp lm swiglu swiglu_bf16 norm operators \
     pipeline_ladder amp_wikitext data_wikitext qlora_7b inference optimizers updates topics_base peft lora qlora \
     gpt2_large_11gib gpt2_xl gptj_6b qwen3 chat my_card five_savings five_savings_loss quality lora_offload advise_space data_parallel_gpus zero_gpus tensor_gpus \
     pipeline_gpus pipeline_four_gpus gptj_6b_gpus"
if [ $# -gt 0 ]; then
  recipes=$*
elif "$runner" devices | grep -q cuda; then
  recipes="$cpu $gpu"
else
  recipes=$cpu
fi

failed=""
for recipe in $recipes; do
  case $recipe in
    *_wikitext) [ -d wikitext ] || { echo "$recipe: skipped, there is no folder wikitext"; continue; } ;;
    chat) [ -d smollm2 ] || { echo "$recipe: skipped, there is no folder smollm2"; continue; } ;;
    lora | qlora | quality | five_savings_loss) [ -d gsm8k ] && [ -d smollm2 ] || { echo "$recipe: skipped, there is no folder gsm8k or smollm2"; continue; } ;;
  esac
  # --trace records one more step of each cell, for the timelines; 71 of advise_space would be 19 MB. 75 is worth another try.
  trace=--trace
  [ "$recipe" = advise_space ] && trace=""
  for try in 1 2 3; do
    "$runner" run "recipes/$recipe.toml" --results results --stale $trace
    code=$?
    [ $code = 75 ] || break
  done
  # 1 and 42: some cells failed, diverged or ran out of memory; 69: some need other hardware. All of these have rows.
  case $code in
    0 | 1 | 42 | 69) ;;
    130) exit 130 ;;
    *) failed="$failed $recipe" ;;
  esac
done
[ -z "$failed" ] || { echo "not made:$failed"; exit 1; }
