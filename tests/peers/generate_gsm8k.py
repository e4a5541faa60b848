"""Has the runner and transformers answer GSM8K's questions greedily, by turns on one GPU.

    pip install torch transformers
    python3 tests/peers/generate_gsm8k.py SMOLLM2 GSM8K [--questions 200] [--examples 3] [--tokens 256]
                                          [--dtype bf16] [--device cuda:0] [--compile] [--rounds 2] [--runner RUNNER]

SMOLLM2 is a folder of weights with its tokenizer; GSM8K is a folder with train.jsonl and test.jsonl. The prompts are those
of the task `gsm8k`: the first problems of train.jsonl as worked examples, and then a question of test.jsonl. They form one
batch, padded on the left. An answer ends at the end token or after --tokens tokens. The script prints a line of JSON for
each run, and at the end one with the medians and the number of equal texts. Each side generates twice in a process; the
second time counts.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("gsm8k", type=pathlib.Path)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--examples", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--runner", default=str(HERE.parent.parent / "target/release/runner"))
    return parser.parse_args()


def problems(path):
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return [(f"Question: {line['question'].strip()}\nAnswer:", f" {line['answer'].strip()}") for line in lines]


def prompts(args):
    examples = problems(args.gsm8k / "train.jsonl")[: args.examples]
    before = "".join(f"{prompt}{answer}\n\n" for prompt, answer in examples)
    return [before + prompt for prompt, _ in problems(args.gsm8k / "test.jsonl")[: args.questions]]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done


def ours(args, options):
    done = run([args.runner, "generate", args.folder, *options, "--compute", args.dtype, "--measure"])
    # 51200 tokens in 2.95 s, 17356 tokens/s; peak memory 3.1 GiB; the first time took 9.21 s
    line = done.stderr.strip().splitlines()[-1]
    tokens, rate = (float(re.search(what, line)[1].replace(",", "")) for what in (r"^([\d,]+) tokens in", r"([\d.,]+) tokens/s"))
    return {"side": "runner", "tokens": int(tokens), "tokens_per_second": rate, "line": line}, done.stdout.rstrip("\n")


def theirs(args, options):
    extra = ["--compile"] if args.compile else []
    script = str(HERE / "torch_generate.py")
    done = run([sys.executable, script, args.folder, *options, "--dtype", args.dtype, *extra])
    line = json.loads(done.stdout.strip().splitlines()[-1])
    texts = line.pop("texts")
    return {"side": "transformers", **line}, "\n".join(texts)


def main():
    args = arguments()
    options = ["--tokens", str(args.tokens), "--device", args.device]
    options += [word for prompt in prompts(args) for word in ("--prompt", prompt)]
    rates, texts = {}, {}
    for _ in range(args.rounds):
        for side in (ours, theirs):
            line, texts[line["side"]] = side(args, options)
            rates.setdefault(line["side"], []).append(line["tokens_per_second"])
            print(json.dumps(line), flush=True)
    medians = {side: statistics.median(of) for side, of in rates.items()}
    # Texts have line ends of their own, and begin with the same prompt.
    first = prompts(args)[0][:40]
    apart = [text.split(first) for text in texts.values()]
    same = sum(a == b for a, b in zip(*apart))
    print(json.dumps({"tokens_per_second": medians, "ratio": medians["runner"] / medians["transformers"],
                      "equal_texts": same, "texts": len(apart[0])}))


if __name__ == "__main__":
    main()
