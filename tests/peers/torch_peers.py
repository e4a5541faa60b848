"""What a user would write instead in PyTorch on the same GPU: matrix products, and the SwiGLU study.

    python3 tests/peers/torch_peers.py rates
    python3 tests/peers/torch_peers.py shapes [compile]

Prints one JSON object per line. Times are medians between device events. Absolute times differ from machine to machine: run
this and `cuda_rates` one after the other on the same GPU and compare ratios.
"""
import gc
import json
import math
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

SHAPES = [(16, 128, 512, 2048, 2), (32, 128, 512, 2048, 2), (8, 512, 1024, 4096, 3), (16, 512, 1024, 4096, 3),
          (4, 1024, 4096, 16384, 5)]


def emit(**values):
    print(json.dumps(values), flush=True)


def event():
    e = torch.cuda.Event(enable_timing=True)
    e.record()
    return e


def milliseconds(start, end):
    end.synchronize()
    return start.elapsed_time(end)


def rates(batch=10):
    """Measures TFLOP/s of square products, ten timed together so that the host stays ahead."""
    for name, dtype in (("fp32", torch.float32), ("tf32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
        torch.backends.cuda.matmul.allow_tf32 = name == "tf32"
        for n in (1024, 4096, 8192):
            a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
            for layout, x, y in (("NN", a, b), ("NT", a, b.t()), ("TN", a.t(), b)):
                times = []
                for _ in range(8):
                    start = event()
                    for _ in range(batch):
                        x @ y
                    times.append(milliseconds(start, event()) / batch)
                emit(what=f"matmul {n} {name} {layout}", TFLOPs=round(2 * n**3 / statistics.median(times[3:]) / 1e9, 1))
    torch.backends.cuda.matmul.allow_tf32 = False


class Swiglu(torch.autograd.Function):
    """y = (SiLU(xW) * xV) U; level 0 keeps a, s and b, level 1 keeps only x."""

    @staticmethod
    def forward(ctx, x, w, v, u, level):
        a = x @ w
        s = torch.sigmoid(a) * a
        b = x @ v
        ctx.level = level
        ctx.save_for_backward(*((x, w, v, u, a, s, b) if level == 0 else (x, w, v, u)))
        return (s * b) @ u

    @staticmethod
    def backward(ctx, g):
        if ctx.level == 0:
            x, w, v, u, a, s, b = ctx.saved_tensors
        else:
            x, w, v, u = ctx.saved_tensors
            a = x @ w
            s = torch.sigmoid(a) * a
            b = x @ v
        dh = g @ u.t()
        db, ds = dh * s, dh * b
        sigma = torch.sigmoid(a)
        da = ds * (sigma * (1 + a * (1 - sigma)))
        return da @ w.t() + db @ v.t(), x.t() @ da, x.t() @ db, (s * b).t() @ g, None


def plain(x, w, v, u):
    return (F.silu(x @ w) * (x @ v)) @ u


def shapes(*options):
    methods = {
        "custom level 0": lambda x, w, v, u: Swiglu.apply(x, w, v, u, 0),
        "custom level 1": lambda x, w, v, u: Swiglu.apply(x, w, v, u, 1),
        "plain": plain,
        "checkpoint": lambda *tensors: checkpoint(plain, *tensors, use_reentrant=False),
    }
    if "compile" in options:
        methods["compile"] = torch.compile(plain)
    for dtype in (torch.float32, torch.bfloat16):
        for b, s, h, i, layers in SHAPES:
            for name, layer in methods.items():
                gc.collect()
                torch.cuda.empty_cache()
                matrix = lambda rows, columns, spread=None: (torch.randn(rows, columns, device="cuda", dtype=dtype)
                                                             * (spread or 1 / math.sqrt(rows))).requires_grad_()
                weights = [(matrix(h, i), matrix(h, i), matrix(i, h)) for _ in range(layers)]
                x = matrix(b * s, h, 1.0)
                forward, backward, peak = [], [], 0
                for step in range(12):
                    # As a training step that frees each gradient once it is used.
                    for tensor in [x, *(t for layer_weights in weights for t in layer_weights)]:
                        tensor.grad = None
                    torch.cuda.synchronize()
                    torch.cuda.reset_peak_memory_stats()
                    start = event()
                    y = x
                    for layer_weights in weights:
                        y = layer(y, *layer_weights)
                    middle = event()
                    y.sum().backward()
                    end = event()
                    del y
                    if step >= 4:
                        forward.append(milliseconds(start, middle))
                        backward.append(milliseconds(middle, end))
                        peak = max(peak, torch.cuda.max_memory_allocated())
                emit(shape=[b, s, h, i, layers], dtype=str(dtype)[6:], method=name,
                     forward_ms=round(statistics.median(forward), 3), backward_ms=round(statistics.median(backward), 3),
                     live_peak_GiB=round(peak / 2**30, 3), reserved_GiB=round(torch.cuda.max_memory_reserved() / 2**30, 3))
                del weights, x


if __name__ == "__main__":
    torch.manual_seed(0)
    emit(gpu=torch.cuda.get_device_name(), torch=torch.__version__)
    {"rates": rates, "shapes": shapes}[sys.argv[1]](*sys.argv[2:])
