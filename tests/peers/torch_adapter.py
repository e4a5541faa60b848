"""Makes the reference values of adapters with PEFT, and checks an adapter that the runner wrote.

    pip install torch transformers peft
    python torch_adapter.py make FOLDER                    # writes tests/fixtures/qwen2_lora again
    python torch_adapter.py virtual qwen2 prompt FOLDER    # tests/fixtures/qwen2_prompt; also gpt2, and prefix
    python torch_adapter.py check BASE ADAPTER MERGED
    python torch_adapter.py continue BASE ADAPTER IDS COUNT

`make` writes a small Qwen2 of odd sizes in Hugging Face's layout, its adapter in FOLDER/adapter, and golden.safetensors
with what PEFT computes in fp32 on a CPU: logits, loss, gradients of A and B, and three AdamW steps (lr 1e-3, betas 0.9 and
0.999, eps 1e-8, weight decay 0.01). B is not zero, since zeros would hide mistakes in A's gradient. golden.json has the
numbers of parameters.

`virtual` writes the same for PEFT's PromptTuning or PrefixTuning, with a smaller Qwen2 or GPT-2 and a greedy continuation.
The prefix is stored as the runner stores it: for each layer the columns of its keys and then of its values. Logits are
those of the batch's own tokens.

`continue` prints the greedy continuation of a prompt (IDS, separated by commas) by COUNT tokens, from BASE with ADAPTER:
what `runner generate BASE --adapter ADAPTER --ids IDS --tokens COUNT` prints.

`check` loads ADAPTER onto BASE with PEFT. Its logits must equal those of the merged model in MERGED, to 1e-5 of the
largest. It prints both largest differences, and those of the model without the adapter, which must be larger.
"""

import json
import sys

import torch
from peft import LoraConfig, PeftModel, PrefixTuningConfig, PromptTuningConfig, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

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
    model.save_pretrained(folder + "/adapter")
    ids, labels = batch(VOCABULARY)
    out = reference(model, ids, labels, lambda name, tensor: {name: clone(tensor)})
    save_file(out, folder + "/golden.safetensors")
    count(model, {"r": lora.r, "alpha": lora.lora_alpha}, folder)


def batch(vocabulary):
    ids = torch.randint(3, vocabulary, (BATCH, SEQUENCE))
    labels = ids.clone()
    labels[:, :5] = -100
    labels[1, -3:] = -100
    return ids, labels


def reference(model, ids, labels, named):
    """What three AdamW steps read and change. `named` gives a parameter's values by the runner's names."""
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    values = lambda prefix, of: {
        f"{prefix}.{key}": value for name, p in trained for key, value in named(name, of(p)).items()
    }
    out = {"input_ids": ids, "labels": labels} | values("init", lambda p: p)
    with torch.no_grad():
        result = model(input_ids=ids, labels=labels)
    # Virtual tokens come first.
    out |= {"logits": clone(result.logits[:, -ids.shape[1] :]), "loss": clone(result.loss)}
    optimizer = torch.optim.AdamW([parameter for _, parameter in trained], lr=1e-3, weight_decay=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        losses.append(loss.item())
        if step in (0, 2):
            out |= values("grad" if step == 0 else "step3_grad", lambda p: p.grad)
        optimizer.step()
    return out | values("step3", lambda p: p) | {"losses": torch.tensor(losses)}


def count(model, numbers, folder):
    parameters = list(model.parameters())
    counts = {
        "trainable": sum(p.numel() for p in parameters if p.requires_grad),
        "total": sum(p.numel() for p in parameters),
    }
    with open(folder + "/golden.json", "w") as file:
        json.dump(numbers | counts, file)


def virtual(family, method, folder):
    torch.manual_seed(0)
    sizes = {"vocab_size": 263, "tie_word_embeddings": True, "initializer_range": 0.1}
    if family == "qwen2":
        model = Qwen2ForCausalLM(
            Qwen2Config(
                hidden_size=30,
                intermediate_size=53,
                num_hidden_layers=3,
                num_attention_heads=3,
                num_key_value_heads=1,
                max_position_embeddings=53,
                rms_norm_eps=1e-6,
                **sizes,
            )
        )
        layer, columns = "model.layers.{}.self_attn.prefix", 10
    else:
        drop = {"attn_pdrop": 0, "embd_pdrop": 0, "resid_pdrop": 0}
        model = GPT2LMHeadModel(GPT2Config(n_embd=28, n_head=2, n_layer=3, n_positions=53, **drop, **sizes))
        layer, columns = "transformer.h.{}.attn.prefix", 28
    for name, parameter in model.named_parameters():
        if name.endswith(".bias"):
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(folder)
    config = {"prompt": PromptTuningConfig, "prefix": PrefixTuningConfig}[method]
    tokens = 5
    model = get_peft_model(model, config(num_virtual_tokens=tokens, task_type="CAUSAL_LM"))
    torch.nn.init.normal_(model.prompt_encoder["default"].embedding.weight, std=0.3)
    model.save_pretrained(folder + "/adapter")

    def named(name, tensor):
        if method == "prompt":
            return {name: clone(tensor)}
        # Of each layer its keys and then its values.
        return {layer.format(i): clone(part) for i, part in enumerate(tensor.split(2 * columns, dim=1))}

    ids, labels = batch(263)
    prompt = ids[:1, :6]
    generated = {"generate.prompt": clone(prompt), "generate.tokens": continued(model, prompt, 16)}
    save_file(reference(model, ids, labels, named) | generated, folder + "/golden.safetensors")
    # The base is frozen: its parameters are shared, and PEFT's word embeddings are one of them.
    count(model, {"num_virtual_tokens": tokens}, folder)


def continued(model, ids, tokens):
    with torch.no_grad():
        for _ in range(tokens):
            last = model(input_ids=ids).logits[:, -1:].argmax(-1)
            ids = torch.cat([ids, last], 1)
    return ids


def continue_(base, adapter, ids, tokens):
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = PeftModel.from_pretrained(model, adapter).eval()
    ids = torch.tensor([[int(id) for id in ids.split(",")]])
    print(",".join(str(id) for id in continued(model, ids, int(tokens))[0].tolist()))


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
    commands = {"make": make, "virtual": virtual, "check": check, "continue": continue_}
    commands[sys.argv[1]](*sys.argv[2:])
