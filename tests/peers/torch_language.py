"""What a user would run instead: the same language models with PyTorch and transformers on the same GPU.

    python3 tests/peers/torch_language.py qwen05 gpt2_large gpt2_small_amp

Prints one JSON object per line: the medians of a step's forward and backward, and of its update if there is an optimizer,
by the host's clock around a synchronised step, and the peak of PyTorch's allocator. Absolute times differ from machine to
machine: run this and the runner one after the other on the same GPU and compare ratios. transformers' GPT-2 trains with
dropout 0.1 by default, and the runner without dropout: the script measures both.
"""
import gc
import json
import statistics
import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

DEVICE = torch.device("cuda")


def emit(**values):
    print(json.dumps(values), flush=True)


def measure(name, model, ids, autocast=None, steps=6, warmup=3):
    model.train()
    forward, backward, peak = [], [], 0
    for step in range(warmup + steps):
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.autocast("cuda", autocast or torch.bfloat16, enabled=autocast is not None):
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
    seconds = statistics.median(forward) + statistics.median(backward)
    emit(name=name, batch=list(ids.shape), forward_ms=round(statistics.median(forward) * 1e3, 2),
         backward_ms=round(statistics.median(backward) * 1e3, 2), sequences_per_s=round(ids.shape[0] / seconds, 2),
         tokens_per_s=round(ids.numel() / seconds), peak_GiB=round(peak / 2**30, 3))
    del model, loss
    gc.collect()
    torch.cuda.empty_cache()


def measure_training(name, model, ids, autocast=None, scaled=False, steps=7, warmup=3):
    """Measures whole steps with AdamW, as recipes/gpt2_small_amp.toml does."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=scaled)
    seconds = []
    for step in range(warmup + steps):
        if step == warmup:
            torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.autocast("cuda", autocast or torch.bfloat16, enabled=autocast is not None):
            loss = model(input_ids=ids, labels=ids).loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if step >= warmup:
            seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    emit(name=name, batch=list(ids.shape), step_ms=round(median * 1e3, 2), tokens_per_s=round(ids.numel() / median),
         peak_GiB=round(torch.cuda.max_memory_allocated() / 2**30, 3))
    del model, optimizer, loss
    gc.collect()
    torch.cuda.empty_cache()


def qwen05():
    config = Qwen2Config(hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
                         num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True, rope_theta=1e6,
                         rms_norm_eps=1e-6, max_position_embeddings=32768, attn_implementation="sdpa", use_cache=False)
    with torch.device(DEVICE):
        torch.set_default_dtype(torch.bfloat16)
        model = Qwen2ForCausalLM(config)
        torch.set_default_dtype(torch.float32)
    ids = torch.randint(0, config.vocab_size, (4, 512), device=DEVICE)
    measure("qwen2.5-0.5b bf16", model, ids)


def gpt2_large():
    for dropout in (0.1, 0.0):
        config = GPT2Config(n_embd=1280, n_layer=36, n_head=20, attn_implementation="sdpa", use_cache=False,
                            resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout)
        with torch.device(DEVICE):
            model = GPT2LMHeadModel(config)
        ids = torch.randint(0, config.vocab_size, (8, 1024), device=DEVICE)
        measure(f"gpt2-large bf16 autocast, dropout {dropout}", model, ids, autocast=torch.bfloat16)


def gpt2_small_amp():
    autocast = {"amp fp16": torch.float16, "amp bf16": torch.bfloat16}
    for precision in ("fp32", "tf32", "fp16", *autocast):
        for dropout in (0.1, 0.0):
            torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
            config = GPT2Config(attn_implementation="sdpa", use_cache=False, resid_pdrop=dropout,
                                embd_pdrop=dropout, attn_pdrop=dropout)
            with torch.device(DEVICE):
                model = GPT2LMHeadModel(config)
            if precision == "fp16":
                model.half()
            ids = torch.randint(0, config.vocab_size, (16, 512), device=DEVICE)
            measure_training(f"gpt2 {precision}, dropout {dropout}", model, ids, autocast.get(precision),
                             scaled=precision == "amp fp16")
    torch.backends.cuda.matmul.allow_tf32 = False


if __name__ == "__main__":
    torch.manual_seed(0)
    emit(gpu=torch.cuda.get_device_name(), torch=torch.__version__)
    for section in sys.argv[1:]:
        globals()[section]()
