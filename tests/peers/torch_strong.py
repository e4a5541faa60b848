"""The strongest PyTorch for the cell of a row: the same network, sizes, types and optimizer.

    python3 tests/peers/torch_strong.py ROW.json,ROW.json SETUP...

ROW.json is a row of the runner, whatever it measured: its cell says what a step computes. A set-up is words joined by "+":

    eager                 transformers' modules with its sdpa attention; SwiGLU by plain autograd
    level0, level1        SwiGLU as one autograd function that keeps everything, or only x
    compile               torch.compile around forward and loss
    liger                 Liger's kernels, if the package is installed; later set-ups of the process use them too
    liger_loss            only its fused head and loss
    chunks                the head and its loss in chunks of 2048 tokens, each recomputed in backward
    linear_cross_entropy  torch.nn.functional's function of this name, if PyTorch has it
    checkpoint            torch.utils.checkpoint around each block
    unsloth               LoRA and QLoRA by Unsloth, if the package is installed; with `offload` it keeps the inputs of
                          blocks on the host
    naive, overlap        blocks on the host (torch_offload.py), with `compile` each compiled by itself; a cell's limit of
                          memory does not hold for them
    graph                 (last) the whole step as one CUDA graph

Steps run back to back between device events. `ms` is their median, and `run_ms` the time of all steps divided by their
number. The peak is that of PyTorch's allocator during these steps, and with a graph during its capture. The script prints
one JSON object per line; a set-up that fails says why. On a CPU, for a trial, times are the host's.
"""
import gc
import itertools
import json
import statistics
import sys
import time

if "unsloth" in " ".join(sys.argv[2:]):
    # It changes what is imported after it.
    import torch_unsloth
import torch

from strong_models import TYPES, network

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
MOVED = {"naive", "overlap"}


class Step:
    """One training step: the gradients of all micro-batches, and the update if the cell has an optimizer."""

    def __init__(self, cell, words):
        train, precision = cell["train"], cell["precision"]
        compute = TYPES[precision["compute"]]
        self.autocast = compute if precision.get("autocast") else None
        torch.backends.cuda.matmul.allow_tf32 = precision["compute"] == "tf32"
        self.loss, parameters, self.batch = network(cell, words, DEVICE)
        self.parameters = list(parameters)
        self.micro_batches = train.get("accumulation_steps", 1)
        self.optimizer = None
        rule = train["optimizer"]
        # PyTorch's moments have their parameter's type.
        if rule["kind"] == "adamw" or (rule["kind"] == "adamw_bf16" and self.parameters[0].dtype == torch.bfloat16):
            self.optimizer = torch.optim.AdamW(
                self.parameters, rule["lr"], (rule["beta_1"], rule["beta_2"]), rule["epsilon"], rule["weight_decay"],
                fused=True, capturable=CUDA)
        elif rule["kind"] == "adamw8bit":
            import bitsandbytes
            self.optimizer = bitsandbytes.optim.AdamW8bit(
                self.parameters, rule["lr"], (rule["beta_1"], rule["beta_2"]), rule["epsilon"], rule["weight_decay"])
        elif rule["kind"] != "none":
            raise ValueError(f"no peer has the optimizer {rule['kind']}")
        if "compile" in words and not MOVED & set(words):
            self.loss = torch.compile(self.loss, dynamic=False)

    def __call__(self):
        for _ in range(self.micro_batches):
            with torch.autocast(DEVICE.type, self.autocast or torch.bfloat16, enabled=self.autocast is not None):
                loss = self.loss(self.batch) / self.micro_batches
            loss.backward()
        if self.optimizer:
            self.optimizer.step()
        for parameter in self.parameters:
            parameter.grad = None


def captured(step):
    """The step as a graph, after a warm-up on a side stream, as PyTorch requires."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def back_to_back(step, steps):
    """Milliseconds of each step, and of all steps together."""
    if not CUDA:
        ends = [time.perf_counter()]
        for _ in range(steps):
            step()
            ends.append(time.perf_counter())
        return [(b - a) * 1e3 for a, b in zip(ends, ends[1:])], (ends[-1] - ends[0]) * 1e3
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    torch.cuda.synchronize()
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(events, events[1:])], events[0].elapsed_time(events[-1])


def measured(step, cell, graph):
    start = time.perf_counter()
    if graph and not CUDA:
        raise ValueError("a graph needs CUDA")
    if graph and step.micro_batches > 1:
        raise ValueError("a graph holds one micro-batch")
    for _ in range(cell["measure"]["warmup"]):
        step()
    run, peak, reserved = step, None, None
    if graph:
        run = captured(step)
        # Replays allocate nothing.
        peak = torch.cuda.max_memory_allocated()
        run()
    elif CUDA:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    prepare = time.perf_counter() - start
    times, whole = back_to_back(run, cell["measure"]["steps"])
    if CUDA:
        peak, reserved = peak or torch.cuda.max_memory_allocated(), torch.cuda.memory_reserved()
    return {"ms": round(statistics.median(times), 4), "run_ms": round(whole / len(times), 4), "peak_bytes": peak,
            "reserved_bytes": reserved, "prepare_s": round(prepare, 1), "all_ms": [round(t, 4) for t in times]}


def versions():
    import transformers
    found = {"torch": torch.__version__, "transformers": transformers.__version__, "cuda": torch.version.cuda}
    name = torch.cuda.get_device_name() if CUDA else "CPU"
    return {"device": name, "versions": {k: v for k, v in found.items() if v}}


def main(rows, *setups):
    torch.manual_seed(0)
    for path in rows.split(","):
        with open(path) as file:
            row = json.load(file)
        cell, limit = row["cell"], row["cell"]["measure"].get("memory_limit")
        # A graph takes the step that was measured without one, and what was compiled for it.
        for base, wanted in itertools.groupby(setups, lambda setup: setup.removesuffix("+graph")):
            step = None
            if CUDA:
                total = torch.cuda.get_device_properties(DEVICE).total_memory
                most = total if MOVED & set(base.split("+")) else limit or total
                torch.cuda.set_per_process_memory_fraction(min(1.0, most / total))
            for setup in wanted:
                line = {"side": "PyTorch", "row": row["key"], "setup": setup}
                try:
                    step = step or Step(cell, base.split("+"))
                    line |= measured(step, cell, setup != base)
                except Exception as e:  # What fails is a result too: out of memory, a graph that cannot be captured.
                    line["error"] = " ".join(f"{type(e).__name__}: {e}".split())[:300]
                print(json.dumps(line | versions()), flush=True)
            del step
            torch.compiler.reset()
            gc.collect()
            if CUDA:
                torch.cuda.empty_cache()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
