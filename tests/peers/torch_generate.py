"""Generates a batch greedily with transformers and its cache of keys and values, to compare with `runner generate`.

    pip install torch transformers
    python torch_generate.py FOLDER [--prompt TEXT ...] [--ids 5,6,7 ...] [--tokens 32]
                             [--device cpu] [--dtype fp32] [--compile]
    runner generate FOLDER --prompt TEXT ... --tokens 32 --device cpu --compute fp32 --measure

Both take the same folder, prompts, type and number of tokens. Shorter prompts are padded on the left, and a text ends at
the model's end token. The script generates once to warm up and once by the host's clock, from the prompts on the device to
the last token on the host. It prints one line of JSON: the texts (with --ids the token ids) as `runner generate` prints
them, the number of new tokens (for a text that ended, up to its end), tokens per second, and on CUDA the peak bytes in
tensors.

With --compile the cache has a fixed size, and transformers compiles the forward of one token.
"""

import argparse
import json
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, __version__

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--prompt", action="append", default=[])
    parser.add_argument("--ids", action="append", default=[])
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=TYPES, default="fp32")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    if bool(args.prompt) == bool(args.ids):
        parser.error("give either --prompt or --ids")
    return args


def main():
    args = arguments()
    cuda = args.device.startswith("cuda")
    model = AutoModelForCausalLM.from_pretrained(args.folder, dtype=TYPES[args.dtype]).to(args.device).eval()
    if args.ids:
        tokenizer, end = None, None
        prompts = [[int(number) for number in text.split(",")] for text in args.ids]
    else:
        tokenizer = AutoTokenizer.from_pretrained(args.folder)
        end = tokenizer.eos_token_id
        prompts = [tokenizer(text, add_special_tokens=False).input_ids for text in args.prompt]
    longest = max(map(len, prompts))
    padding = [longest - len(prompt) for prompt in prompts]
    ids = torch.tensor([[0] * pad + prompt for pad, prompt in zip(padding, prompts)], device=args.device)
    mask = torch.tensor([[0] * pad + [1] * len(prompt) for pad, prompt in zip(padding, prompts)], device=args.device)
    # What the folder says of sampling would only be warned about; an end of None is none.
    model.generation_config = type(model.generation_config)(eos_token_id=end, pad_token_id=0 if end is None else end)
    settings = {"max_new_tokens": args.tokens, "do_sample": False, "use_cache": True}
    if args.compile:
        settings["cache_implementation"] = "static"

    def generate():
        with torch.inference_mode():
            return model.generate(input_ids=ids, attention_mask=mask, **settings)[:, longest:].tolist()

    generate()
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    rows = generate()
    seconds = time.perf_counter() - start
    new = [row[: row.index(end) + 1] if end in row else row for row in rows]
    whole = [prompt + row for prompt, row in zip(prompts, new)]
    texts = [tokenizer.decode(row, clean_up_tokenization_spaces=False) if tokenizer else ",".join(map(str, row)) for row in whole]
    count = sum(map(len, new))
    print(json.dumps({
        "texts": texts,
        "tokens": count,
        "seconds": seconds,
        "tokens_per_second": count / seconds,
        "peak_bytes": torch.cuda.max_memory_allocated() if cuda else None,
        "torch": torch.__version__,
        "transformers": __version__,
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "compile": args.compile,
    }))


if __name__ == "__main__":
    main()
