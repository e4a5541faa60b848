"""Times one update of 500 million parameters by PyTorch's fused AdamW and by bitsandbytes' AdamW with 8-bit state on one GPU:
the best of 20, between two events.

    python torch_optimizers.py [millions]

Ours: cargo run --release --example cuda_rates -- updates; and within a training, runner run recipes/updates.toml
"""

import sys

import bitsandbytes
import torch

MILLIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 500
# As large as the matrices of a language model.
SIZE = 4096 * 4096


def parameters(dtype):
    count = max(1, MILLIONS * 1_000_000 // SIZE)
    made = [torch.nn.Parameter(torch.randn(4096, 4096, device="cuda", dtype=dtype)) for _ in range(count)]
    for parameter in made:
        parameter.grad = torch.randn_like(parameter) * 1e-3
    return made


def milliseconds(optimizer):
    times = []
    for _ in range(23):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        optimizer.step()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return min(times[3:])


for dtype in (torch.float32, torch.bfloat16):
    for name, make in (
        ("torch AdamW, fused", lambda made: torch.optim.AdamW(made, lr=1e-4, fused=True)),
        ("bitsandbytes AdamW8bit", lambda made: bitsandbytes.optim.AdamW8bit(made, lr=1e-4)),
    ):
        made = parameters(dtype)
        elements = sum(parameter.numel() for parameter in made)
        print(f"{name} {dtype}: {milliseconds(make(made)):.2f} ms of {elements / 1e6:.0f} million")
        del made
        torch.cuda.empty_cache()
