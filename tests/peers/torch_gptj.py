"""Writes tests/fixtures/gptj: a small GPT-J with random weights, and what transformers computes from it on a CPU.

    pip install torch transformers
    python torch_gptj.py FOLDER

golden.safetensors holds a batch (input_ids, labels; -100 is not counted), the logits and the loss, the gradient of every
parameter, the losses of three AdamW steps on that batch with gradients and parameters of the third step, and the 16 tokens
with which the model continues a prompt.
"""

import os
import sys

import torch
from safetensors.torch import save_file
from transformers import GPTJConfig, GPTJForCausalLM

VOCAB = 512


def batch():
    ids = torch.randint(3, VOCAB, (2, 24))
    labels = ids.clone()
    labels[:, :7] = -100
    labels[1, -4:] = -100
    return ids, labels


def copy(tensor):
    return tensor.detach().clone().contiguous()


def main(folder):
    torch.manual_seed(0)
    config = GPTJConfig(
        vocab_size=VOCAB, n_positions=64, n_embd=48, n_layer=3, n_head=4, rotary_dim=8, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0, initializer_range=0.1, tie_word_embeddings=False, attn_implementation="eager",
    )
    model = GPTJForCausalLM(config)
    # transformers begins them with 0 and 1, which hides mistakes.
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or ".ln_" in name:
            torch.nn.init.normal_(parameter, mean=float(name.endswith("weight")), std=0.1)
    model.save_pretrained(folder, safe_serialization=True)
    os.remove(f"{folder}/generation_config.json")
    model.eval()
    ids, labels = batch()
    golden = {"input_ids": ids, "labels": labels}
    with torch.no_grad():
        result = model(input_ids=ids, labels=labels)
        golden |= {"logits": copy(result.logits), "loss": copy(result.loss)}
        prompt = ids[:1, :6]
        tokens = model.generate(prompt, max_new_tokens=16, do_sample=False, pad_token_id=0, eos_token_id=None)
        golden |= {"generate.prompt": copy(prompt), "generate.tokens": copy(tokens)}
    parameters = list(model.named_parameters())
    optimizer = torch.optim.AdamW([p for _, p in parameters], lr=1e-3, weight_decay=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        losses.append(loss.item())
        if step in (0, 2):
            prefix = "grad." if step == 0 else "step3_grad."
            golden |= {prefix + name: copy(p.grad) for name, p in parameters}
        optimizer.step()
    golden |= {"step3." + name: copy(p) for name, p in parameters}
    golden["losses"] = torch.tensor(losses)
    save_file(golden, f"{folder}/golden.safetensors")


main(sys.argv[1])
