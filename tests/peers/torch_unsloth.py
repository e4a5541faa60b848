"""Qwen2 with LoRA or QLoRA as Unsloth trains it, for strong_models.py. It must be imported before transformers."""
import pathlib
import tempfile

import unsloth
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast


def network(make, config, tuning, modules, shape, words, dtype, device):
    """The loss function of a batch, the trainable tensors, and a batch. `make` makes the network with random weights."""
    net, _ = unsloth.FastLanguageModel.from_pretrained(
        str(folder(make, config)), max_seq_length=shape[1], dtype=dtype, load_in_4bit=tuning["method"] == "qlora")
    # "unsloth" moves the inputs of blocks to the host; True keeps them on the device.
    kept = "unsloth" if "offload" in words else "checkpoint" in words
    net = unsloth.FastLanguageModel.get_peft_model(
        net, r=tuning["rank"], lora_alpha=tuning["alpha"], lora_dropout=tuning.get("dropout", 0.0), bias="none",
        target_modules=modules, use_gradient_checkpointing=kept)
    unsloth.FastLanguageModel.for_training(net)
    ids = torch.randint(0, config.vocab_size, shape, device=device)

    def loss(ids):
        # Its adapters are fp32, and its trainer runs steps so.
        with torch.autocast(device.type, dtype):
            return net(input_ids=ids, labels=ids).loss

    return loss, [p for p in net.parameters() if p.requires_grad], ids


def folder(make, config):
    """Unsloth loads folders alone. Two set-ups of one model share one."""
    place = pathlib.Path(tempfile.gettempdir()) / f"unsloth-{config.num_hidden_layers}x{config.hidden_size}"
    if not (place / "tokenizer.json").exists():
        make().save_pretrained(place)
        torch.cuda.empty_cache()
        words = Tokenizer(models.WordLevel({"<unk>": 0, "<pad>": 1, "<end>": 2}, unk_token="<unk>"))
        named = {"unk_token": "<unk>", "pad_token": "<pad>", "eos_token": "<end>"}
        PreTrainedTokenizerFast(tokenizer_object=words, **named).save_pretrained(place)
    return place
