"""The reference of a LoRA adapter, made by PEFT, and a check of an adapter that the runner has written.

    pip install torch transformers peft
    python torch_adapter.py make FOLDER              writes tests/fixtures/qwen2_lora again
    python torch_adapter.py check BASE ADAPTER MERGED

`make`: a small Qwen2 of odd sizes in Hugging Face's layout, its adapter in FOLDER/adapter, and golden.safetensors with
what PEFT computes in fp32 on a CPU: logits, loss, gradients of A and B, and three AdamW steps (lr 1e-3, betas 0.9 and
0.999, eps 1e-8, weight decay 0.01). B is not zero: that would hide mistakes in A's gradient. golden.json has the numbers of parameters.

`check`: PEFT loads ADAPTER onto BASE; its logits must be those of the merged model in MERGED, to 1e-5 of the largest.
Prints both largest differences, and those of the model without the adapter, which must be larger.
"""

import json
import sys

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

VOCABULARY, BATCH, SEQUENCE = 211, 3, 19


def clone(tensor):
    return tensor.detach().clone().contiguous()


def make(folder):
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=42,
        intermediate_size=101,
        num_hidden_layers=3,
        num_attention_heads=3,
        num_key_value_heads=1,
        max_position_embeddings=53,
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        initializer_range=0.1,
    )
    model = Qwen2ForCausalLM(config)
    for name, parameter in model.named_parameters():
        if name.endswith(".bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(folder)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
    lora = LoraConfig(r=5, lora_alpha=7, lora_dropout=0.0, target_modules=targets, task_type="CAUSAL_LM")
    model = get_peft_model(model, lora)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.05)
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    model.save_pretrained(folder + "/adapter")
    ids = torch.randint(3, VOCABULARY, (BATCH, SEQUENCE))
    labels = ids.clone()
    labels[:, :5] = -100
    labels[1, -3:] = -100
    out = {"input_ids": ids, "labels": labels}
    out |= {f"init.{name}": clone(parameter) for name, parameter in trained}
    with torch.no_grad():
        result = model(input_ids=ids, labels=labels)
    out |= {"logits": clone(result.logits), "loss": clone(result.loss)}
    optimizer = torch.optim.AdamW([parameter for _, parameter in trained], lr=1e-3, weight_decay=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        losses.append(loss.item())
        if step in (0, 2):
            prefix = "grad" if step == 0 else "step3_grad"
            out |= {f"{prefix}.{name}": clone(parameter.grad) for name, parameter in trained}
        optimizer.step()
    out |= {f"step3.{name}": clone(parameter) for name, parameter in trained}
    out["losses"] = torch.tensor(losses)
    save_file(out, folder + "/golden.safetensors")
    parameters = list(model.parameters())
    counts = {
        "r": lora.r,
        "alpha": lora.lora_alpha,
        "trainable": sum(p.numel() for p in parameters if p.requires_grad),
        "total": sum(p.numel() for p in parameters),
    }
    with open(folder + "/golden.json", "w") as file:
        json.dump(counts, file)


def check(base, adapter, merged):
    ids = torch.arange(2 * 24).reshape(2, 24) * 37 % VOCABULARY
    load = lambda folder: AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        plain = load(base)(input_ids=ids).logits
        ours = load(merged)(input_ids=ids).logits
        wrapped = PeftModel.from_pretrained(load(base), adapter)
        peft = wrapped(input_ids=ids).logits
        peft_merged = wrapped.merge_and_unload()(input_ids=ids).logits
    scale = peft.abs().max()
    difference = lambda logits: ((logits - peft).abs().max() / scale).item()
    print(f"merged by the runner {difference(ours):.1e}, by PEFT {difference(peft_merged):.1e}, "
          f"without the adapter {difference(plain):.1e}")
    assert difference(ours) < 1e-5 and difference(plain) > 1e-3


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](*sys.argv[2:])
