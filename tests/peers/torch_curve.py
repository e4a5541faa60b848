"""PyTorch's loss curve of Qwen2.5-0.5B from random weights with AdamW in bf16, to compare with the runner's.

    python3 tests/peers/torch_curve.py TOKENIZER.json TEXT LR

Trains 200 steps on blocks of 512 tokens of TEXT in random order, 4 per step, and prints one JSON object with the loss of
each step. Weights are drawn as transformers draws them. So the curves agree in the mean over several steps, not step by
step.
"""
import json
import sys

import torch
from tokenizers import Tokenizer
from transformers import Qwen2Config, Qwen2ForCausalLM

STEPS, BATCH, LENGTH = 200, 4, 512

tokenizer, text, rate = sys.argv[1:4]
with open(text) as f:
    ids = Tokenizer.from_file(tokenizer).encode(f.read()).ids
blocks = torch.tensor(ids[: len(ids) // LENGTH * LENGTH]).view(-1, LENGTH)
torch.manual_seed(42)
config = Qwen2Config(
    vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
    num_key_value_heads=2, max_position_embeddings=32768, tie_word_embeddings=True,
    rope_parameters={"rope_type": "default", "rope_theta": 1e6},
)
model = Qwen2ForCausalLM(config).to("cuda", torch.bfloat16).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=float(rate), fused=True)
losses, order = [], []
for _ in range(STEPS):
    if len(order) < BATCH:
        order = torch.randperm(len(blocks)).tolist()
    batch, order = blocks[order[:BATCH]].cuda(), order[BATCH:]
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.detach())
print(json.dumps({"program": f"PyTorch {torch.__version__}", "losses": [round(loss.item(), 4) for loss in losses]}))
