"""The lines of measurements and their table, for strong.py."""
import json
import statistics
from collections import defaultdict

GIB = 2**30
# Steps of two processes differ by a few hundredths.
NEAR = 1.15


def work(cell):
    """What a step of the cell computes, whatever the method."""
    model, train, precision = cell["model"], cell["train"], cell["precision"]
    if model["kind"] == "swiglu":
        name = f"SwiGLU {model['hidden_size']} x {model['intermediate_size']}, {model['num_hidden_layers']} layers"
    else:
        name = model.get("preset") or f"{model['kind']} {model['num_hidden_layers']} x {model['hidden_size']}"
    types = f"autocast {precision['compute']}" if precision.get("autocast") else precision["compute"]
    micro_batches = train.get("accumulation_steps", 1)
    size = f"{train['batch_size']} x {train['seq_len']}"
    size += f", {micro_batches} micro-batches" if micro_batches > 1 else ""
    kind = train["optimizer"]["kind"]
    done = "forward and backward" if kind == "none" else f"step with {kind}"
    tuning = cell.get("tuning", {}).get("method", "full")
    return f"{name}, {types}, {done}{'' if tuning == 'full' else f' by {tuning}'}, {size}"


def tokens(path):
    """Tokens of a micro-batch of a row."""
    train = json.loads(path.read_text())["cell"]["train"]
    return train["batch_size"] * train["seq_len"]


def method(cell):
    """The cell's own settings, in words."""
    found = [f"checkpoint.{key} = {value}" for key, value in cell.get("checkpoint", {}).items() if value]
    found += ["train.graph = true"] if cell["train"].get("graph") else []
    offload = cell.get("offload", {})
    if offload.get("strategy", "none") != "none":
        found += [f"offload.{key} = {value}" for key, value in offload.items()]
    return ", ".join(found) or "all kept"


def line_of(row):
    """Turns a row of the runner into a line."""
    cell, environment = row["cell"], row["environment"]
    line = {"side": "runner", "work": work(cell), "setup": method(cell), "device": environment["device"]["name"],
            "versions": {"runner": environment["runner_version"], "commit": environment["commit"],
                         "driver": environment["device"].get("driver")}}
    measurement = row.get("measurement")
    if not measurement:
        return line | {"error": f"{row['status']}: {row.get('reason', '')}"[:400]}
    seconds = measurement["step"]["seconds"]
    # Cells without samples have the time of the whole run themselves.
    run = measurement.get("run_seconds") or measurement.get("loading", {}).get("run_seconds")
    return line | {"ms": measurement["step"]["median"] * 1e3, "run_ms": run and run / len(seconds) * 1e3,
                   "peak_bytes": measurement["memory"].get("live_peak"),
                   "reserved_bytes": measurement["memory"].get("reserved_peak"),
                   "prepare_s": measurement.get("prepare_seconds"), "all_ms": [s * 1e3 for s in seconds]}


class Measured:
    """One set-up for one work, over all its processes."""

    def __init__(self, lines):
        self.side, self.setup = lines[0]["side"], lines[0]["setup"]
        done = [line for line in lines if "ms" in line]
        self.error = next((line["error"] for line in lines if "error" in line), None)
        self.medians = sorted(line["ms"] for line in done)
        # PyTorch's compiler chooses kernels by trials, and now and then a process has worse ones than the next.
        of_processes = min if self.side == "PyTorch" else statistics.median
        self.ms = of_processes(self.medians) if done else None
        runs = [line["run_ms"] for line in done if line["run_ms"]]
        self.run_ms = of_processes(runs) if runs else None
        peaks = [line["peak_bytes"] for line in done if line["peak_bytes"]]
        self.peak = max(peaks) if peaks else None

    def cells(self):
        if self.ms is None:
            return f"| {self.side} | {self.setup} | {self.error} | | | |"
        spread = f"{self.medians[0]:.2f} to {self.medians[-1]:.2f} ({len(self.medians)})"
        run = f"{self.run_ms:.2f}" if self.run_ms else ""
        return f"| {self.side} | {self.setup} | {self.ms:.2f} | {spread} | {run} | {gib(self.peak)} |"


def gib(peak):
    return f"{peak / GIB:.2f}" if peak else ""


def by_work(lines):
    """The set-ups of each work, in the order of measuring."""
    found = defaultdict(lambda: defaultdict(list))
    for line in lines:
        found[line["work"]][line["side"], line["setup"]].append(line)
    return {work: [Measured(same) for same in setups.values()] for work, setups in found.items()}


def sides(setups):
    done = [setup for setup in setups if setup.ms is not None]
    fastest = lambda side: sorted((s for s in done if s.side == side), key=lambda s: s.ms)
    return fastest("runner"), fastest("PyTorch")


def within(setups, peak):
    """PyTorch's set-ups that need no more memory, the fastest first."""
    return [setup for setup in setups if peak and setup.peak and setup.peak <= peak]


def contenders(lines):
    """PyTorch's set-ups near the fastest of all, or near the fastest that needs no more memory than the runner."""
    found = set()
    for setups in by_work(lines).values():
        ours, theirs = sides(setups)
        for of in [theirs, *(within(theirs, own.peak) for own in ours)]:
            found |= {setup.setup for setup in of if setup.ms <= of[0].ms * NEAR}
    return found


def ratio(ours, theirs):
    """The ratio of the medians, and that of the whole runs."""
    runs = f" ({ours.run_ms / theirs.run_ms:.2f})" if ours.run_ms and theirs.run_ms else ""
    return f"{ours.ms / theirs.ms:.2f}{runs}"


def table(lines):
    devices = sorted({line["device"] for line in lines})
    groups = dict.fromkeys(line["group"] for line in lines)
    versions = {f"{name} {version}" for line in lines for name, version in line["versions"].items() if version}
    works = by_work(lines)
    text = [
        "# Steps beside the strongest PyTorch", "",
        f"On {', '.join(devices)}, by turns in processes of their own ({', '.join(sorted(versions))}):", "",
        "    python3 tests/peers/strong.py OUT --only " + ",".join(groups), "",
        "Steps run back to back. A step's time is the median of a process's steps by device events. Of several processes the",
        "runner has the median, and PyTorch its fastest. The runner's leaves out what lies between two steps, PyTorch's does",
        "not; the whole run over its steps, in brackets where it is a ratio, has all of it on both sides. The peak is that of",
        "live tensors. `raw.jsonl` has every step. A ratio is the runner's time over PyTorch's.", "",
        "| work | runner | ms | GiB | PyTorch's fastest | ms | GiB | ratio "
        "| fastest that holds no more | ms | GiB | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for work, setups in works.items():
        ours, theirs = sides(setups)
        for own in ours:
            row = [work, own.setup, f"{own.ms:.2f}", gib(own.peak)]
            for other in (theirs[:1], within(theirs, own.peak)[:1]):
                found = [[o.setup, f"{o.ms:.2f}", gib(o.peak), ratio(own, o)] for o in other]
                row += found[0] if found else ["none", "", "", ""]
            text.append(f"| {' | '.join(row)} |")
    for work, setups in works.items():
        text += ["", f"## {work}", "", "| | set-up | ms | processes: from, to (number) | whole run, ms a step | GiB |",
                 "|---|---|---|---|---|---|"]
        ours, theirs = sides(setups)
        text += [setup.cells() for setup in [*ours, *theirs, *(s for s in setups if s.ms is None)]]
    return "\n".join(text) + "\n"
