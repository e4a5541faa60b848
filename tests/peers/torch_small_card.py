"""What a user would write to train GPT-2 Large on a card of 11 GiB: PyTorch with checkpointing, gradient accumulation and an
optimizer that keeps less on the device.

    python3 tests/peers/torch_small_card.py                                  # GPT-2 Large, 64 x 1024 tokens a step, 11 GiB
    python3 tests/peers/torch_small_card.py --model gpt2-xl --gib 16 --micro 1 2 4
    python3 tests/peers/torch_small_card.py --compile                        # the model of recipes/gpt2_large_11gib.toml
    python3 tests/peers/torch_small_card.py --model tiny --device cpu --batch 4 --sequence 32 --micro 2 --steps 3

It uses random weights, and every step trains on the same batch of random tokens, with bf16 autocast and parameters in fp32.
The set-ups:

    forward and backward    without a limit, a checkpoint or an update; the others are compared with it
    adamw                   PyTorch's fused AdamW
    adamw8bit               bitsandbytes' AdamW with 8-bit state
    adamw on the host       torchao's CPUOffloadOptimizer around PyTorch's fused AdamW

All but the first checkpoint every block, and limit PyTorch's allocator to --gib GiB. The script prints one JSON object for
each set-up and number of sequences at once: the median of whole synchronised steps by the host's clock, the losses of the
first and the last step, and the peak of the allocator. With --compile the model is compiled by torch.compile. A set-up that runs out of memory has "oom"; one whose package is not
installed has "missing".
"""
import argparse
import gc
import json
import statistics
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

SIZES = {
    "tiny": dict(n_embd=64, n_layer=2, n_head=2, vocab_size=512),
    "gpt2": dict(n_embd=768, n_layer=12, n_head=12),
    "gpt2-large": dict(n_embd=1280, n_layer=36, n_head=20),
    "gpt2-xl": dict(n_embd=1600, n_layer=48, n_head=25),
}


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)


def adamw8bit(parameters):
    import bitsandbytes

    return bitsandbytes.optim.AdamW8bit(parameters, lr=1e-4)


def adamw_on_the_host(parameters):
    from torchao.optim import CPUOffloadOptimizer

    # With gradients that leave the device at once nothing could be accumulated.
    return CPUOffloadOptimizer(parameters, torch.optim.AdamW, offload_gradients=False, lr=1e-4, fused=True)


SETUPS = {
    "forward and backward": None,
    "adamw": adamw,
    "adamw8bit": adamw8bit,
    "adamw on the host": adamw_on_the_host,
}


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def measure(make, micro, options, device):
    size = dict(SIZES[options.model])
    if options.vocab_size:
        size["vocab_size"] = options.vocab_size
    config = GPT2Config(**size, attn_implementation="sdpa", use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0,
                        attn_pdrop=0.0)
    torch.manual_seed(0)
    with torch.device(device):
        model = GPT2LMHeadModel(config)
        ids = torch.randint(0, config.vocab_size, (options.batch, options.sequence))
    model.train()
    if make:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = make(model.parameters()) if make else None
    if options.compile:
        torch._dynamo.reset()
        model = torch.compile(model)
    seconds, losses = [], []
    for _ in range(options.warmup + options.steps):
        synchronize(device)
        start = time.perf_counter()
        total = torch.zeros((), device=device)
        for part in ids.split(micro):
            with torch.autocast(device.type, torch.bfloat16):
                loss = model(input_ids=part, labels=part).loss * (len(part) / len(ids))
            loss.backward()
            total += loss.detach()
        if optimizer:
            optimizer.step()
            optimizer.zero_grad()
        else:
            model.zero_grad(set_to_none=True)
        synchronize(device)
        seconds.append(time.perf_counter() - start)
        losses.append(total.item())
    step = statistics.median(seconds[options.warmup:])
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    return dict(step_ms=round(step * 1e3, 2), tokens_per_s=round(ids.numel() / step), first_loss=round(losses[0], 4),
                last_loss=round(losses[-1], 4), peak_GiB=round(peak / 2**30, 3))


def limit(gib, device):
    if device.type != "cuda":
        return
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, gib * 2**30 / total) if gib else 1.0)


def result(make, micro, options, device):
    try:
        return measure(make, micro, options, device)
    except torch.OutOfMemoryError:
        return dict(oom=True)
    except ImportError as error:
        return dict(missing=str(error))
    except (RuntimeError, NotImplementedError, ValueError) as error:
        # A package that knows no such device.
        return dict(failed=str(error).splitlines()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SIZES, default="gpt2-large")
    parser.add_argument("--gib", type=float, default=11.0, help="GiB that the allocator may take")
    parser.add_argument("--batch", type=int, default=64, help="sequences of a step")
    parser.add_argument("--sequence", type=int, default=1024, help="tokens of a sequence")
    parser.add_argument("--vocab-size", type=int, help="of the model, in place of its own")
    parser.add_argument("--compile", action="store_true", help="compile the model")
    parser.add_argument("--micro", type=int, nargs="+", default=[4, 8], help="sequences at once")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--setups", nargs="+", choices=SETUPS, default=list(SETUPS))
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    device = torch.device(options.device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    print(json.dumps(dict(device=name, torch=torch.__version__, model=options.model, batch=options.batch,
                          sequence=options.sequence, vocab_size=options.vocab_size, compiled=options.compile)), flush=True)
    for setup in options.setups:
        for micro in options.micro:
            make = SETUPS[setup]
            gib = options.gib if make else None
            limit(gib, device)
            found = result(make, micro, options, device)
            print(json.dumps(dict(setup=setup, micro=micro, limit_GiB=gib, **found)), flush=True)
            if "missing" in found:
                break


if __name__ == "__main__":
    main()
