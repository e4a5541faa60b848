"""Makes reference values from a pretrained network for `runner verify`, and shows how exact PyTorch itself is on it.

    pip install torch transformers gguf safetensors
    python3 tests/peers/torch_pretrained.py MODEL TEXT OUT [cuda]

MODEL is a Hugging Face folder or a .gguf file, and TEXT any text. The script writes OUT/{config.json, model.safetensors
(bf16), tokenizer.json} and OUT/golden.safetensors: 2 x 64 tokens with the first 9 labels of a row ignored, logits, loss,
every gradient computed in float64 and rounded to fp32, and a greedy continuation.

The loss is computed in float64 too. transformers computes it in fp32, whatever the network's type, and PyTorch's softmax on
a CPU has an exponential with few correct digits. A third line of output says what this does to the gradients.
"""
import json
import os
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

source, text, out = sys.argv[1:4]
device = sys.argv[4] if len(sys.argv) > 4 else "cpu"
folder, name = os.path.split(source) if source.endswith(".gguf") else (source, None)
file = {"gguf_file": name} if name else {}
os.makedirs(out, exist_ok=True)
torch.backends.cuda.matmul.allow_tf32 = False

tokenizer = AutoTokenizer.from_pretrained(folder or ".", **file)
model = AutoModelForCausalLM.from_pretrained(folder or ".", dtype=torch.float32, **file)
tied = model.config.tie_word_embeddings
weights = {k: v for k, v in model.state_dict().items() if not (tied and k == "lm_head.weight")}
weights = {k: v.to(torch.bfloat16).contiguous() for k, v in weights.items()}
save_file(weights, f"{out}/model.safetensors", metadata={"format": "pt"})
config = model.config.to_dict()
config.pop("quantization_config", None)
config["torch_dtype"] = "bfloat16"
with open(f"{out}/config.json", "w") as f:
    json.dump(config, f, indent=1, default=str)
tokenizer.save_pretrained(out)

with open(text) as f:
    ids = tokenizer(f.read(8000), return_tensors="pt").input_ids[0][:128].view(2, 64).contiguous()
labels = ids.clone()
labels[:, :9] = -100
ids, labels = ids.to(device), labels.to(device)
following = F.pad(labels[:, 1:], (0, 1), value=-100).reshape(-1)


def gradients(dtype, own_loss):
    network = AutoModelForCausalLM.from_pretrained(out, dtype=dtype).eval().to(device)
    result = network(input_ids=ids, labels=labels)
    rows = result.logits.reshape(-1, result.logits.shape[-1])
    loss = result.loss if own_loss else F.cross_entropy(rows, following)
    loss.backward()
    found = {name: p.grad.detach().double().cpu() for name, p in network.named_parameters()}
    return found, result.logits.detach().cpu(), loss.detach().cpu()


exact, logits, loss = gradients(torch.float64, own_loss=False)


def distance(found):
    off = sorted(((found[n] - exact[n]).norm() / exact[n].norm()).item() for n in exact)
    return f"largest {off[-1]:.2e}, median {off[len(off) // 2]:.2e}"


ours, ours_logits, _ = gradients(torch.float32, own_loss=True)
print(f"fp32 on {device} against float64: gradients {distance(ours)},", end=" ")
print(f"logits {(ours_logits.double() - logits).abs().max().item():.2e}")
print(f"float64 with the loss in fp32 against float64: {distance(gradients(torch.float64, own_loss=True)[0])}")

golden = {"input_ids": ids.cpu(), "labels": labels.cpu(), "logits": logits.float().contiguous(), "loss": loss.float()}
golden |= {f"grad.{n}": g.float().contiguous() for n, g in exact.items()}
network = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval().to(device)
prompt = ids[:1, :12].clone()
tokens = network.generate(prompt, max_new_tokens=16, do_sample=False, pad_token_id=0, eos_token_id=None)
golden |= {"generate.prompt": prompt.cpu(), "generate.tokens": tokens.cpu().contiguous()}
save_file(golden, f"{out}/golden.safetensors")
