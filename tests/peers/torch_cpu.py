"""What a user would run instead on a CPU: PyTorch in fp32, with the networks and steps of tests/peers/cpu/*.toml.

    python3 tests/peers/torch_cpu.py gpt2 smollm2 swiglu

Prints one JSON object per line: forward, backward and update of a step in milliseconds, the minimum and the median over
steps by the host's clock, for eager and, if there is a C++ compiler, for torch.compile. The update is AdamW's fused form,
PyTorch's fastest; for swiglu it is plain SGD. Run this and the runner by turns on one idle machine. Noise only makes a run
slower, so compare the minimum of several runs of each.
"""
import gc
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

STEPS, WARMUP = 20, 4


def emit(**values):
    print(json.dumps(values), flush=True)


def measure(name, loss, parameters, optimizer):
    try:
        times = {"forward": [], "backward": [], "update": []}
        for step in range(WARMUP + STEPS):
            marks = [time.perf_counter()]
            result = loss()
            marks.append(time.perf_counter())
            result.backward()
            marks.append(time.perf_counter())
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            marks.append(time.perf_counter())
            if step >= WARMUP:
                for key, start, end in zip(times, marks, marks[1:]):
                    times[key].append((end - start) * 1e3)
        emit(name=name, parameters=sum(p.numel() for p in parameters),
             **{f"{key}_ms": round(min(values), 2) for key, values in times.items()},
             **{f"{key}_median_ms": round(statistics.median(values), 2) for key, values in times.items()})
    except Exception as error:  # a way that fails says so
        emit(name=name, error=repr(error)[:300])
    gc.collect()
    torch._dynamo.reset()


def language(name, model, batch, length):
    model.train()
    ids = torch.randint(0, model.config.vocab_size, (batch, length))
    for compiled in (False, True):
        call = torch.compile(model) if compiled else model
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
        way = "torch.compile" if compiled else "eager"
        measure(f"{name} {batch}x{length} {way}", lambda: call(input_ids=ids, labels=ids, use_cache=False).loss,
                list(model.parameters()), optimizer)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    config = GPT2Config(vocab_size=4096, n_positions=1024, n_embd=256, n_layer=4, n_head=8, resid_pdrop=0.0,
                        embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="sdpa", bos_token_id=0, eos_token_id=0)
    language("gpt2 4 x 256", GPT2LMHeadModel(config), 8, 128)


def smollm2():
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                         num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=8192,
                         tie_word_embeddings=True, rms_norm_eps=1e-5, attn_implementation="sdpa")
    language("smollm2-135m", LlamaForCausalLM(config), 1, 128)


def swiglu():
    """The shapes of recipes/quickstart.toml: two layers of 256 x 1024, and the mean squared difference to a target."""
    for batch in (4, 8, 16):
        tokens, hidden, inner = batch * 128, 256, 1024
        layers = [[torch.randn(a, b).div_(a**0.5).requires_grad_() for a, b in
                   ((hidden, inner), (hidden, inner), (inner, hidden))] for _ in range(2)]
        parameters = [p for layer in layers for p in layer]
        x, target = torch.randn(tokens, hidden), torch.randn(tokens, hidden)

        def loss(x=x, target=target, layers=layers):
            y = x
            for w, v, u in layers:
                y = (F.silu(y @ w) * (y @ v)) @ u
            return F.mse_loss(y, target)

        for compiled in (False, True):
            way = "torch.compile" if compiled else "eager"
            measure(f"swiglu 2 x 256 x 1024 {batch}x128 {way}", torch.compile(loss) if compiled else loss, parameters,
                    torch.optim.SGD(parameters, 0.1))


if __name__ == "__main__":
    torch.manual_seed(0)
    emit(torch=torch.__version__, threads=torch.get_num_threads(), cpu=torch.backends.cpu.get_cpu_capability())
    for section in sys.argv[1:]:
        globals()[section]()
