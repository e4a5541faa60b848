"""What a user would write for offload in PyTorch, for torch_strong.py: transformer blocks on the host.

A block's weights and gradients are flat page-locked buffers. `naive` copies a block in, computes and removes it, and the
host waits for each copy. `overlap` has three slots on the device, a stream for copies in and one for gradients out, and
events between the streams. Both recompute each block in backward.
"""
import gc

import torch
from torch import nn

DEVICE = torch.device("cuda")


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


def offloaded(net, overlap, compiled):
    """Puts the blocks of a network on the device to the host."""
    layers = list(net.model.layers)
    blocks = Blocks(layers, overlap)
    if compiled:
        # Blocks of one network differ in their number alone, but each may count as a recompilation.
        torch._dynamo.config.recompile_limit = 2 * len(layers)
        blocks.blocks = [torch.compile(layer, dynamic=False) for layer in layers]
    net.model.layers = nn.ModuleList([Moved(blocks, i) for i in range(len(layers))])
    gc.collect()
    torch.cuda.empty_cache()
