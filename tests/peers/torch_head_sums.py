"""Shows how the length of the fp32 sums over the vocabulary, dh = sum of dlogit * W[entry], affects all gradients below.

    python3 tests/peers/torch_head_sums.py FOLDER

FOLDER is what torch_pretrained.py wrote. Each sum adds entry by entry in fp32 on the CPU, in blocks of a given number of
entries, as a GPU's product without tensor cores does. The rest is PyTorch in fp32. Distances are defined as in that script.
"""
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

folder = sys.argv[1]
golden = load_file(f"{folder}/golden.safetensors")
ids, labels = golden["input_ids"], golden["labels"]
following = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=-100).reshape(-1)
network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
weight = network.lm_head.weight.detach()
below = {f"model.{n}": p for n, p in network.model.named_parameters() if n != "embed_tokens.weight"}
exact = {n: golden[f"grad.{n}"].double() for n in below}
hidden = network.model(input_ids=ids).last_hidden_state

with torch.no_grad():
    logits = (hidden.reshape(-1, weight.shape[1]) @ weight.t()).double()
    factor = (following >= 0).double() / (following >= 0).sum()
    dlogits = logits.softmax(1) * factor[:, None]
    dlogits.scatter_add_(1, following.clamp_min(0)[:, None], -factor[:, None])
    dlogits = dlogits.float()

vocab = weight.shape[0]
for length in (vocab, 4096, 1024, 512):
    dh = torch.zeros(dlogits.shape[0], weight.shape[1])
    for first in range(0, vocab, length):
        block = torch.zeros_like(dh)
        for entry in range(first, min(first + length, vocab)):
            block.addr_(dlogits[:, entry], weight[entry])
        dh += block
    network.zero_grad()
    torch.autograd.backward([hidden], [dh.reshape(hidden.shape)], retain_graph=True, inputs=list(below.values()))
    off = sorted(((p.grad.double() - exact[n]).norm() / exact[n].norm()).item() for n, p in below.items())
    print(f"sums of {length}: largest {off[-1]:.2e}, median {off[len(off) // 2]:.2e}", flush=True)
