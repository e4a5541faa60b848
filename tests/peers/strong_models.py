"""The networks of cells in PyTorch, for torch_strong.py. Each is a function from a batch to its loss."""
import math

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from transformers import GPT2Config, GPT2LMHeadModel, Qwen2Config, Qwen2ForCausalLM

from torch_offload import offloaded
from torch_peers import Swiglu, plain

TYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
CHUNK = 2048
# Words of a set-up, besides those for every network.
WORDS = {"swiglu": {"level0", "level1"}, "gpt2": {"liger_loss", "chunks", "linear_cross_entropy"},
         "qwen2": {"liger", "liger_loss", "chunks", "linear_cross_entropy", "naive", "overlap", "unsloth",
                   "offload"}}


def network(cell, words, device):
    """For a cell: the loss function of a batch, the trainable tensors, and a batch."""
    model, train, precision = cell["model"], cell["train"], cell["precision"]
    if model["kind"] not in WORDS:
        raise ValueError(f"there is no peer of {model['kind']}")
    unknown = set(words) - WORDS[model["kind"]] - {"eager", "compile", "checkpoint"}
    if unknown:
        raise ValueError(f"{model['kind']} has no {', '.join(unknown)}")
    if precision.get("scaler"):
        raise ValueError("no peer scales gradients")
    stored = torch.float32 if precision.get("autocast") else TYPES[precision["compute"]]
    shape = (train["batch_size"], train["seq_len"])
    if model["kind"] == "swiglu":
        return swiglu(model, shape, words, stored, device)
    return language_model(model, cell.get("tuning", {}), shape, words, stored, device)


def swiglu(model, shape, words, dtype, device):
    hidden, intermediate = model["hidden_size"], model["intermediate_size"]

    def matrix(rows, columns, spread):
        return (torch.randn(rows, columns, device=device, dtype=dtype) * spread).requires_grad_()

    inwards = lambda: matrix(hidden, intermediate, 1 / math.sqrt(hidden))
    layers = [(inwards(), inwards(), matrix(intermediate, hidden, 1 / math.sqrt(intermediate)))
              for _ in range(model["num_hidden_layers"])]
    x, target = (matrix(math.prod(shape), hidden, 1.0) for _ in range(2))
    target = target.detach()

    def layer(x, weights):
        if "checkpoint" in words:
            return checkpoint(plain, x, *weights, use_reentrant=False, preserve_rng_state=False)
        for level in (0, 1):
            if f"level{level}" in words:
                return Swiglu.apply(x, *weights, level)
        return plain(x, *weights)

    def loss(x):
        for weights in layers:
            x = layer(x, weights)
        return F.mse_loss(x.float(), target.float())

    return loss, [x, *(tensor for weights in layers for tensor in weights)], x


def random(new, config, dtype, device):
    """A network with random weights of this type."""
    with device:
        default = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        net = new(config)
        torch.set_default_dtype(default)
    return net


def language_model(model, tuning, shape, words, dtype, device):
    if "liger" in words:
        from liger_kernel.transformers import apply_liger_kernel_to_qwen2
        apply_liger_kernel_to_qwen2()
    new, config = configured(model)
    if "unsloth" in words:
        from torch_unsloth import network as by_unsloth
        return by_unsloth(lambda: random(new, config, dtype, device), config, tuning, LINEAR, shape, words, dtype, device)
    moved = {"naive", "overlap"} & set(words)
    net = random(new, config, dtype, device)
    if tuning.get("method", "full") != "full":
        adapt(net, tuning)
    net.train()
    if moved:
        offloaded(net, "overlap" in words, "compile" in words)
    if "checkpoint" in words:
        # Without dropout there is no state of random numbers to keep, which a graph could not.
        net.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    ids = torch.randint(0, config.vocab_size, shape, device=device)
    return with_head(net, words), [p for p in net.parameters() if p.requires_grad], ids


# The linear layers of a block, which PEFT's own "all-linear" finds only in a whole PeftModel.
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def adapt(net, tuning):
    """Adds PEFT's adapters to the network. They have the network's type, as in the runner; PEFT's default is fp32."""
    from peft import LoraConfig, inject_adapter_in_model
    if tuning["method"] not in ("lora", "qlora"):
        raise ValueError(f"no peer is tuned by {tuning['method']}")
    dtype = net.dtype
    if tuning["method"] == "qlora":
        pack(net, dtype)
    modules = tuning["target_modules"]
    modules = LINEAR if modules == "all-linear" else modules.split(", ")
    config = LoraConfig(r=tuning["rank"], lora_alpha=tuning["alpha"], lora_dropout=tuning.get("dropout", 0.0),
                        target_modules=modules)
    inject_adapter_in_model(config, net)
    for name, parameter in net.named_parameters():
        parameter.requires_grad_("lora_" in name)
    net.to(dtype)
    # Recomputed blocks need an input that has a gradient.
    net.enable_input_require_grads()


def pack(net, dtype):
    """Stores every linear layer but the head in 4 bits by bitsandbytes: NF4 with double quantization."""
    import bitsandbytes

    for parent in list(net.modules()):
        for name, layer in list(parent.named_children()):
            if not isinstance(layer, torch.nn.Linear) or layer is net.lm_head:
                continue
            packed = bitsandbytes.nn.Linear4bit(layer.in_features, layer.out_features, bias=layer.bias is not None,
                                                compute_dtype=dtype, compress_statistics=True, quant_type="nf4")
            packed.weight = bitsandbytes.nn.Params4bit(layer.weight.data, requires_grad=False,
                                                       compress_statistics=True, quant_type="nf4")
            packed.bias = layer.bias
            # It packs its weight on its way to the device.
            setattr(parent, name, packed.to(layer.weight.device))


def configured(model):
    sizes = {"vocab_size": model["vocab_size"], "tie_word_embeddings": model["tie_word_embeddings"],
             "attn_implementation": "sdpa", "use_cache": False}
    if model["kind"] == "gpt2":
        # The same function as gelu_new, in one kernel.
        return GPT2LMHeadModel, GPT2Config(
            n_embd=model["hidden_size"], n_inner=model["intermediate_size"], n_layer=model["num_hidden_layers"],
            n_head=model["num_attention_heads"], n_positions=model["max_position_embeddings"],
            layer_norm_epsilon=model["layer_norm_eps"], activation_function="gelu_pytorch_tanh", resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, **sizes)
    same = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
            "max_position_embeddings", "rms_norm_eps", "rope_theta")
    return Qwen2ForCausalLM, Qwen2Config(**{key: model[key] for key in same}, **sizes)


def with_head(net, words):
    if not {"chunks", "linear_cross_entropy", "liger_loss"} & set(words):
        return lambda ids: net(input_ids=ids, labels=ids, use_cache=False).loss
    weight = net.lm_head.weight
    if "liger_loss" in words:
        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss
        fused = LigerFusedLinearCrossEntropyLoss()

    def chunk(h, labels):
        return F.cross_entropy(F.linear(h, weight).float(), labels, reduction="sum")

    def loss(ids):
        h = net.base_model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1].flatten(0, 1)
        labels = ids[:, 1:].flatten()
        kind = h.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else h.dtype
        if "liger_loss" in words:
            return fused(weight.to(dtype), h.to(dtype), labels)
        if "linear_cross_entropy" in words:
            return F.linear_cross_entropy(h.to(dtype), weight.to(dtype), labels)
        parts = [checkpoint(chunk, *part, use_reentrant=False, preserve_rng_state=False)
                 for part in zip(h.split(CHUNK), labels.split(CHUNK))]
        return torch.stack(parts).sum() / labels.numel()

    return loss
