"""Runs the runner and the strongest PyTorch by turns on one GPU.

    python3 tests/peers/strong.py OUT --only qwen05,gpt2_small [--setups compile+graph compile] [--rounds 2]
        [--seconds 480] [--runner RUNNER]
    python3 tests/peers/strong.py OUT --recipe recipes/gpt2_large.toml --setups eager "compile compile+graph"
    python3 tests/peers/strong.py OUT --table RAW.jsonl...

In each round, for each group of cells: the runner measures the cells, each in its own process. Then PyTorch measures its
set-ups (torch_strong.py), one process for each line of SETUPS. Later rounds repeat only PyTorch's set-ups within 15 % of its
fastest, or of the fastest that needs no more memory than a cell of the runner. OUT/raw.jsonl has a line for each
measurement, with every step. OUT/PEERS.md has the table; --table makes it from the lines of several calls. Nothing
starts after --seconds; the script says at the end what it left out.
"""
import argparse
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import tomllib

import strong_table

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent

# A group's recipe, which of its grids it has (None: all), and PyTorch's set-ups, most important first, a process a line.
LANGUAGE = ["compile compile+graph", "liger", "liger+graph", "eager eager+graph", "compile+checkpoint",
            "checkpoint checkpoint+graph", "compile+liger_loss", "compile+chunks", "compile+linear_cross_entropy"]
WHOLE = ["compile+liger_loss", "compile", "compile+checkpoint+liger_loss", "compile+chunks"]
SWIGLU = ["compile compile+graph", "level0 level0+graph level1 level1+graph",
          "eager eager+graph checkpoint checkpoint+graph", "compile+checkpoint compile+checkpoint+graph"]
GPT2 = [line for line in LANGUAGE if line not in ("liger", "liger+graph")]
OFFLOAD = ["compile+overlap", "overlap", "naive"]
GROUPS = {
    "qwen05": ("strong", [0], LANGUAGE),
    "gpt2_small": ("strong", [1], GPT2),
    "gpt2_large": ("strong", [2], GPT2),
    "adamw05": ("strong", [3, 4], WHOLE),
    "adamw15": ("strong", [5, 6], WHOLE),
    "adamw7": ("strong", [7], ["compile+checkpoint+liger_loss", "compile+checkpoint+chunks"]),
    "lora05": ("strong", [8], ["compile compile+graph", "eager eager+graph", "compile+chunks", "checkpoint",
                             "compile+checkpoint"]),
    "lora7": ("strong", [9], ["eager", "checkpoint", "compile", "compile+checkpoint", "compile+chunks"]),
    "qlora7": ("qlora_7b", [1], ["eager", "checkpoint", "compile", "compile+checkpoint", "compile+checkpoint+chunks"]),
    "savings7": ("strong", [11], ["checkpoint+liger", "compile+checkpoint+liger_loss", "unsloth+checkpoint",
                                  "unsloth+offload", "compile+checkpoint", "checkpoint"]),
    "offload05": ("overlap", [0], OFFLOAD),
    "offload7": ("qwen7b", [0], OFFLOAD),
    "swiglu": ("swiglu", None, SWIGLU),
    "swiglu_bf16": ("swiglu_bf16", None, SWIGLU),
    "swiglu_graph": ("strong", [10], SWIGLU),
}
# Seconds for a process: four cells are compiled in one.
LIMIT = 300


def cells(recipe, chosen):
    """The numbers of the cells of these grids, as `runner plan` counts them: one cell for each combination of its lists."""
    with open(recipe, "rb") as file:
        grids = tomllib.load(file).get("grid", {})
    grids = [grids] if isinstance(grids, dict) else grids
    counts = [math.prod(len(v) for v in g.values() if isinstance(v, list)) for g in grids]
    return [sum(counts[:g]) + k + 1 for g in chosen or range(len(grids)) for k in range(counts[g])]


class Call:
    def __init__(self, options):
        self.options, self.end = options, time.monotonic() + options.seconds
        self.out = pathlib.Path(options.out)
        self.results = tempfile.TemporaryDirectory()
        self.lines, self.left_out = [], []

    def note(self, **line):
        self.lines.append(line)
        with open(self.out / "raw.jsonl", "a") as file:
            print(json.dumps(line), file=file)

    def process(self, what, command, **options):
        """The standard output of a process, even of one that was ended."""
        left = self.end - time.monotonic()
        if left < 15:
            self.left_out.append(what)
            return ""
        print(f"{time.strftime('%X')} {what}", flush=True)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        process = subprocess.Popen(command, **pipes, **options)
        try:
            output, error = process.communicate(timeout=min(LIMIT, left))
            error = error if process.returncode else ""
        except subprocess.TimeoutExpired as e:
            # With the processes of cells and of compilers.
            os.killpg(process.pid, signal.SIGKILL)
            output, error = process.communicate()[0], f"ended after {e.timeout:.0f} s"
            self.left_out.append(f"the rest of {what}")
        if error:
            print(f"  {error.strip()[-600:]}", flush=True)
        return output

    def runner(self, group, round, recipe, numbers):
        """Measures the cells, notes their rows, and returns the rows' files by cell."""
        results = f"{self.results.name}/{group}-{round}"
        chosen = [word for number in numbers for word in ("--cell", str(number))]
        command = [self.options.runner, "run", recipe, "--results", results, *chosen]
        self.process(f"{group}, round {round}: runner", command, cwd=ROOT)
        # Small steps first: where time runs out, the most of them is measured.
        files = sorted(pathlib.Path(results).glob("**/rows/*.json"), key=strong_table.tokens)
        for path in files:
            row = json.loads(path.read_text())
            self.note(group=group, round=round, **strong_table.line_of(row))
        return files

    def torch(self, group, round, files, setups):
        command = [self.options.python, str(HERE / "torch_strong.py"), ",".join(map(str, files)), *setups]
        output = self.process(f"{group}, round {round}: PyTorch {' '.join(setups)}", command)
        works = {json.loads(f.read_text())["key"]: strong_table.work(json.loads(f.read_text())["cell"]) for f in files}
        for text in filter(lambda text: text.startswith("{"), output.splitlines()):
            line = json.loads(text)
            if "ms" not in line:
                print(f"  {line['setup']}: {line['error']}", flush=True)
            self.note(group=group, round=round, work=works[line.pop("row")], **line)

    def group(self, group, recipe, grids, setups):
        numbers = self.options.cells or cells(recipe, grids)
        for round in range(1, self.options.rounds + 1):
            works = {}
            for path in self.runner(group, round, recipe, numbers):
                # Of the cells of one work PyTorch needs one.
                works.setdefault(strong_table.work(json.loads(path.read_text())["cell"]), path)
            if not works:
                continue
            own = [line for line in self.lines if line["group"] == group]
            near = strong_table.contenders(own) if round > 1 else None
            for words in (line.split() for line in setups):
                words = [word for word in words if near is None or word in near]
                if words:
                    self.torch(group, round, list(works.values()), words)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--only", default=",".join(GROUPS), help="groups, the most important first")
    parser.add_argument("--recipe", help="instead of groups: the cells of this recipe")
    parser.add_argument("--setups", nargs="+", help="PyTorch's, a process for each; of groups, those of them with one of these")
    parser.add_argument("--cells", nargs="+", type=int, help="of one group: only these cells of its recipe")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--runner", default=str(ROOT / "target/release/runner"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--table", nargs="+", metavar="RAW.jsonl")
    options = parser.parse_args()
    if options.setups and not options.recipe:
        known = {word for group in options.only.split(",") for line in GROUPS[group][2] for word in line.split()}
        if set(options.setups) - known:
            parser.error(f"no set-ups {sorted(set(options.setups) - known)} in {options.only}, but {sorted(known)}")
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    if options.table:
        lines = [json.loads(text) for path in options.table for text in open(path)]
    else:
        call = Call(options)
        if options.recipe:
            setups = options.setups or ["eager", "compile"]
            call.group(pathlib.Path(options.recipe).stem, options.recipe, None, setups)
        for group in [] if options.recipe else options.only.split(","):
            recipe, grids, setups = GROUPS[group]
            chosen = set(options.setups or " ".join(setups).split())
            setups = [line for line in setups if chosen & set(line.split())]
            call.group(group, str(ROOT / f"recipes/{recipe}.toml"), grids, setups)
        lines = call.lines
        for what in call.left_out:
            print(f"left out: {what}")
    (out / "PEERS.md").write_text(strong_table.table(lines))
    print((out / "PEERS.md").read_text())


if __name__ == "__main__":
    main()
