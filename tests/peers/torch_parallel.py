"""Data parallel training in PyTorch: whole AdamW steps, for recipes/data_parallel_gpus.toml and zero_gpus.toml.

    NCCL_NVLS_ENABLE=0 torchrun --nproc-per-node 2 tests/peers/torch_parallel.py 16x512 64x512
    NCCL_NVLS_ENABLE=0 torchrun --nproc-per-node 2 tests/peers/torch_parallel.py --divided 4x1024
    NCCL_NVLS_ENABLE=0 torchrun --nproc-per-node 2 tests/peers/torch_parallel.py --only compile 16x512 64x512

A size is the batch of one GPU. By default the script measures GPT-2 small under bf16 autocast: one GPU alone, then
DistributedDataParallel over all GPUs, compiled and eager; and all_reduce of fp32 vectors. With --divided it measures
Qwen2.5-1.5B with fp32 masters: DistributedDataParallel under bf16 autocast, and fully_shard (FSDP2) of each block with bf16
parameters and fp32 sums, which gathers weights again in backward (ZeRO 3) or keeps them (ZeRO 2), eager and with compiled
blocks. "--only compile" leaves out eager set-ups and all_reduce. Steps run back to back, with an event after each. The first
rank prints a JSON line for each measurement. Peaks are those of torch.cuda.max_memory_allocated.
"""
import argparse
import gc
import json
import statistics

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

dist.init_process_group("nccl")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
device = f"cuda:{rank}"


def note(**line):
    if rank == 0:
        print(json.dumps(line), flush=True)


def timed(step, steps, warmup):
    for _ in range(warmup):
        step()
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.reset_peak_memory_stats()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(events, events[1:])]


def train(batch, tokens, replicas, compiled):
    torch.manual_seed(0)
    config = GPT2Config(attn_implementation="sdpa", use_cache=False, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    model = GPT2LMHeadModel(config).to(device)
    if replicas:
        model = DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=True)
    ids = torch.randint(0, config.vocab_size, (batch, tokens), device=device)

    def loss(ids):
        return model(input_ids=ids, labels=ids, use_cache=False).loss

    loss = torch.compile(loss) if compiled else loss

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            value = loss(ids)
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    milliseconds = timed(step, 20, 5)
    median = statistics.median(milliseconds)
    count = ranks if replicas else 1
    note(what="step", gpus=count, batch=batch, tokens=tokens, setup="compile" if compiled else "eager", ms=median,
         all_ms=milliseconds, tokens_per_second=count * batch * tokens / median * 1e3,
         peak_bytes=torch.cuda.max_memory_allocated())
    del model, optimizer, step, loss
    gc.collect()
    torch._dynamo.reset()
    torch.cuda.empty_cache()


def divided(batch, tokens, way, compiled):
    torch.manual_seed(0)
    config = Qwen2Config(hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12,
                         num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True, rope_theta=1e6,
                         attn_implementation="sdpa", use_cache=False)
    model = Qwen2ForCausalLM(config).to(device)
    if compiled:
        for block in model.model.layers:
            block.compile()
    if way == "ddp":
        model = DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=True)
    else:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in model.model.layers:
            fully_shard(block, mp_policy=policy, reshard_after_forward=way == "zero3")
        fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    ids = torch.randint(0, config.vocab_size, (batch, tokens), device=device)

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=way == "ddp"):
            value = model(input_ids=ids, labels=ids, use_cache=False).loss
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    milliseconds = timed(step, 10, 4)
    median = statistics.median(milliseconds)
    note(what="divided", way=way, gpus=ranks, batch=batch, tokens=tokens, setup="compile" if compiled else "eager",
         ms=median, all_ms=milliseconds, tokens_per_second=ranks * batch * tokens / median * 1e3,
         peak_bytes=torch.cuda.max_memory_allocated())
    del model, optimizer, step
    gc.collect()
    torch._dynamo.reset()
    torch.cuda.empty_cache()


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("sizes", nargs="+", help="sequences x tokens")
parser.add_argument("--divided", action="store_true")
parser.add_argument("--only", choices=["compile", "eager"])
options = parser.parse_args()
note(device=torch.cuda.get_device_name(), torch=torch.__version__, nccl=".".join(map(str, torch.cuda.nccl.version())),
     ranks=ranks)
for mebibytes in (16, 64, 256, 1024) if options.only != "compile" else ():
    values = torch.ones(mebibytes << 18, device=device)
    milliseconds = statistics.median(timed(lambda: dist.all_reduce(values), 20, 5))
    note(what="all_reduce", mebibytes=mebibytes, ms=milliseconds,
         bus_gigabytes_per_second=2 * (ranks - 1) / ranks * mebibytes * 2**20 / milliseconds / 1e6)
setups = [compiled for compiled in (True, False) if options.only in (None, "compile" if compiled else "eager")]
for size in options.sizes:
    batch, tokens = map(int, size.split("x"))
    for compiled in setups:
        if options.divided:
            for way in ("ddp", "zero2", "zero3"):
                divided(batch, tokens, way, compiled)
            continue
        if compiled:
            train(batch, tokens, False, compiled)
        train(batch, tokens, True, compiled)
dist.barrier()
dist.destroy_process_group()
