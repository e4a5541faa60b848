"""What a user would write instead: offload of transformer blocks in PyTorch on the same GPU.

    python3 tests/peers/torch_offload.py 0.5b 4 512 bfloat16 gpu checkpoint naive overlap
    python3 tests/peers/torch_offload.py 7b 8 512 bfloat16 naive overlap

The arguments are the size of Qwen2.5 (with random weights), the batch size, the sequence length, the type, and the ways to
place it: `gpu` (all on the device), `checkpoint` (the same, each block recomputed), `naive` (a block is copied in, computed
and removed, and the host waits for each copy) and `overlap` (three slots, a stream for copies in and one for gradients out,
page-locked flat buffers, events between the streams). The last two recompute each block in backward. Prints one JSON object
per line: medians of forward and backward by the host's clock around synchronised passes, and the peak of PyTorch's
allocator. Absolute times differ from machine to machine: run this and the runner one after the other on the same GPU and
compare ratios.
"""
import gc
import json
import statistics
import sys
import time

import torch
from torch import nn
from transformers import Qwen2Config, Qwen2ForCausalLM

DEVICE = torch.device("cuda")
SIZES = {
    "0.5b": dict(hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
                 num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True),
    "7b": dict(hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28,
               num_key_value_heads=4, vocab_size=152064, tie_word_embeddings=False),
}


class Blocks:
    """Weights and gradients of all blocks in page-locked flat buffers, and slots on the device."""

    def __init__(self, blocks, overlap, slots=3):
        self.blocks, self.overlap = blocks, overlap
        self.weights, self.gradients, self.parts = [], [], []
        for block in blocks:
            parameters = list(block.parameters())
            flat = torch.cat([p.data.reshape(-1) for p in parameters])
            self.weights.append(torch.empty(flat.shape, dtype=flat.dtype, pin_memory=True).copy_(flat))
            self.gradients.append(torch.empty(flat.shape, dtype=flat.dtype, pin_memory=True))
            parts, first = [], 0
            for p in parameters:
                parts.append((p, first, p.shape))
                first += p.numel()
                p.data = torch.empty(0, dtype=p.dtype, device=DEVICE)
            self.parts.append(parts)
        self.slots = [torch.empty_like(flat) for _ in range(slots if overlap else 1)]
        self.out = [torch.empty_like(flat) for _ in range(2)]
        self.stream_in, self.stream_out = torch.cuda.Stream(), torch.cuda.Stream()
        self.read = [torch.cuda.Event() for _ in self.slots]
        self.sent = [torch.cuda.Event() for _ in self.out]
        self.filled, self.holds, self.turns = {}, {}, 0

    def load(self, i, current):
        if not 0 <= i < len(self.blocks) or i in self.holds:
            return
        free = [s for s in range(len(self.slots)) if s not in self.holds.values()]
        if free:
            slot = free[0]
        else:
            slot = self.holds.pop(max((k for k in self.holds if k != current), key=lambda k: abs(k - i)))
        with torch.cuda.stream(self.stream_in):
            self.stream_in.wait_event(self.read[slot])
            self.slots[slot].copy_(self.weights[i], non_blocking=True)
            self.filled[i] = torch.cuda.Event()
            self.filled[i].record(self.stream_in)
        self.holds[i] = slot

    def enter(self, i, then):
        self.load(i, None)
        if self.overlap:
            self.load(then, i)
        torch.cuda.current_stream().wait_event(self.filled[i])
        slot = self.slots[self.holds[i]]
        for p, first, shape in self.parts[i]:
            p.data = slot[first:first + shape.numel()].view(shape)
        if not self.overlap:
            torch.cuda.current_stream().synchronize()

    def leave(self, i):
        self.read[self.holds[i]].record(torch.cuda.current_stream())
        if not self.overlap:
            torch.cuda.current_stream().synchronize()
            self.holds.pop(i)

    def send_gradients(self, i):
        self.turns += 1
        out, sent = self.out[self.turns % 2], self.sent[self.turns % 2]
        torch.cuda.current_stream().wait_event(sent)
        for p, first, shape in self.parts[i]:
            out[first:first + shape.numel()].view(shape).copy_(p.grad)
            p.grad = None
        computed = torch.cuda.Event()
        computed.record()
        with torch.cuda.stream(self.stream_out):
            self.stream_out.wait_event(computed)
            self.gradients[i].copy_(out, non_blocking=True)
            sent.record(self.stream_out)
        if not self.overlap:
            self.stream_out.synchronize()


class Turn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, blocks, i, arguments):
        ctx.blocks, ctx.i, ctx.arguments = blocks, i, arguments
        ctx.save_for_backward(x)
        blocks.enter(i, i + 1)
        with torch.no_grad():
            y = blocks.blocks[i](x, **arguments)
        blocks.leave(i)
        return y[0] if isinstance(y, tuple) else y

    @staticmethod
    def backward(ctx, gradient):
        blocks, i = ctx.blocks, ctx.i
        blocks.enter(i, i - 1)
        x = ctx.saved_tensors[0].detach().requires_grad_(True)
        with torch.enable_grad():
            y = blocks.blocks[i](x, **ctx.arguments)
        torch.autograd.backward(y[0] if isinstance(y, tuple) else y, gradient)
        blocks.send_gradients(i)
        blocks.leave(i)
        return x.grad, None, None, None


class Moved(nn.Module):
    def __init__(self, blocks, i):
        super().__init__()
        object.__setattr__(self, "blocks", blocks)
        self.i, self.attention_type = i, "full_attention"

    def forward(self, x, **arguments):
        return Turn.apply(x, self.blocks, self.i, arguments)


def measure(size, batch, sequence, dtype, way, steps=4, warmup=2):
    config = Qwen2Config(**SIZES[size], rope_theta=1e6, rms_norm_eps=1e-6, max_position_embeddings=32768,
                         attn_implementation="sdpa", use_cache=False)
    with torch.device(DEVICE):
        torch.set_default_dtype(dtype)
        model = Qwen2ForCausalLM(config)
        torch.set_default_dtype(torch.float32)
    model.train()
    if way == "checkpoint":
        model.gradient_checkpointing_enable()
    if way in ("naive", "overlap"):
        blocks = Blocks(list(model.model.layers), way == "overlap")
        model.model.layers = nn.ModuleList([Moved(blocks, i) for i in range(len(blocks.blocks))])
        gc.collect()
        torch.cuda.empty_cache()
    ids = torch.randint(0, config.vocab_size, (batch, sequence), device=DEVICE)
    forward, backward, peak = [], [], 0
    for step in range(warmup + steps):
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = model(input_ids=ids, labels=ids).loss
        torch.cuda.synchronize()
        middle = time.perf_counter()
        loss.backward()
        torch.cuda.synchronize()
        end = time.perf_counter()
        model.zero_grad(set_to_none=True)
        if step >= warmup:
            forward.append(middle - start)
            backward.append(end - middle)
            peak = max(peak, torch.cuda.max_memory_allocated())
    print(json.dumps(dict(
        size=size, way=way, dtype=str(dtype)[6:], batch=[batch, sequence],
        forward_ms=round(statistics.median(forward) * 1e3, 1), backward_ms=round(statistics.median(backward) * 1e3, 1),
        peak_GiB=round(peak / 2**30, 3))), flush=True)
    del model, loss
    gc.collect()
    torch.cuda.empty_cache()


if __name__ == "__main__":
    torch.manual_seed(0)
    print(json.dumps(dict(gpu=torch.cuda.get_device_name(), torch=torch.__version__)), flush=True)
    size, batch, sequence, dtype, *ways = sys.argv[1:]
    for way in ways:
        measure(size, int(batch), int(sequence), getattr(torch, dtype), way)
