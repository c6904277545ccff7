"""Random circuits in the layout of april-tools/mtpc, and their distribution, layer by layer as cirkit computes them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

VOCAB, SIZE, RANK = 3, 8, 2
LEAVES = "mt_head._categorical_log_probs_heads.0.head.proj"
SUMS = "mt_head._sum_weights_heads.{}.head.{}"
# As Hydra composes and OmegaConf saves it, with references that are not resolved; the training's settings are cut.
CONFIG = """
training: {random_seed: 13, batch_size: 256, learning_rate: 0.0003, expname: llama-lr-3e-4-no-lora}
model:
  name: mtp
  model:
    _target_: mtp.models.mtp.MultiTokenLM
    lm: ${lm.model}
    circuit: ${circuit.model}
    mt_head_kwargs: ${mt_head.hyperparameters}
    init_from_lm_head: true
    kl_type: forward
    beta: 0
    gamma: 0.9
circuit:
  name: cp
  n_token: 4
  n_component: 2
  model:
    _target_: mtp.models.circuits.CircuitModel
    vocab_size: ${data.vocab_size}
    n_token: ${circuit.n_token}
    n_component: ${circuit.n_component}
    kind: cp
mt_head:
  name: linear-evabyte
  hyperparameters:
    type: evabyte
    n_embd: ${lm.n_embd}
    transformer_n_head: ${lm.n_head}
    transformer_n_layer: 0
    expander_type: linear
    expander_n_layer: 1
    freeze_vocab_unembedding: false
    share_sum_weights: false
    contextual_hmm_weights: true
    init_hmm_identity: true
adaptor: {name: none, hyperparameters: null}
lm:
  name: llama3-2-3b-byte
  n_embd: 8
  n_head: 2
  last_1_layers: [27]
  model:
    _target_: mtp.models.lm.LM
    from_huggingface: benjamin/Llama3-2-3B-IT-Byte
    adaptor_kwargs: ${adaptor.hyperparameters}
    freeze: true
data: {name: tulu3-llama3, val_bin: null, vocab_size: 3}
generate: {}
compile: true
device: cuda
from_checkpoint: null
name: ${lm.name}-${now:%Y-%m-%d}
"""


def sum_shapes(kind: str, window: int) -> list[tuple[int, int, int]]:
    """Folds, outputs and inputs of each sum layer in topological order, as the authors' code registers them."""
    match kind:
        case "ff":
            return []
        case "cp":
            return [(1, 1, RANK)]
        case "hmm":
            return [(1, RANK, RANK)] * (window - 1) + [(1, 1, RANK)]
    shapes, folds = [], window // 2
    while folds > 1:
        shapes.append((folds, RANK, RANK))
        folds //= 2
    return [*shapes, (1, 1, RANK)]


def scope(kind: str, window: int) -> list[int]:
    """Position of each fold of the leaves."""
    return [*reversed(range(window))] if kind == "hmm" else [*range(window)]


def publish(
    folder: Path,
    kind: str,
    window: int,
    *,
    compiled: bool = False,
    bias: bool = False,
    adapters: dict[str, Any] | None = None,
    tensors: dict[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Write a random checkpoint; return the head's tensors by name.

    ``adapters`` are the settings of LoRA adapters for peft, and ``tensors`` those of the target and the adapters.
    """
    folder.mkdir()
    config = yaml.safe_load(CONFIG)
    config["circuit"] |= {"name": kind, "n_token": window, "n_component": 1 if kind == "ff" else RANK}
    config["circuit"]["model"]["kind"] = "cp" if kind == "ff" else kind
    if adapters is not None:
        config["adaptor"] = {"name": "lora-last", "hyperparameters": adapters}
    if kind == "btree":
        config["circuit"]["n_repetition"] = 1
        config["circuit"]["model"]["n_repetition"] = "${circuit.n_repetition}"
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    generator = torch.Generator().manual_seed(window)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).bfloat16()

    shapes = sum_shapes(kind, window)
    heads = {LEAVES: random(window, 1 if kind == "ff" else RANK, VOCAB, SIZE)}
    for number, shape in enumerate(shapes):
        heads[SUMS.format(number, "proj")] = random(*shape, SIZE)
        if bias:
            heads[SUMS.format(number, "bias")] = random(*shape)
    others: dict[str, Any] = {
        "_exp_gamma_weights": 0.9 ** torch.arange(window),
        "circuit._autoregressive_mar_mask": torch.ones(window, window, dtype=torch.bool),
        "circuit._univariate_mar_mask": torch.ones(window, window, dtype=torch.bool),
        "circuit._circuit._nodes.0._scope_idx": torch.tensor(scope(kind, window))[:, None],
        "circuit._circuit._address_book._in_fold_idx_1_0": torch.zeros(1, dtype=torch.int64),
        "lm._lm.model.embed_tokens.weight": None,
        "lm._lm.model.layers.0.self_attn.q_proj.weight": None,
    }
    prefix = "_orig_mod." if compiled else ""
    state = {prefix + name: each for name, each in {**others, **heads, **(tensors or {})}.items()}
    write(folder, state)
    return heads


def write(folder: Path, state: dict[str, Any], step: int = 900) -> None:
    """Write weights as the authors' training does."""
    whole = {"global_step": step, "model_state_dict": state}
    optimizer = {"state": {0: {"exp_avg": torch.zeros(2)}}, "param_groups": [{"lr": 3e-4, "params": [0]}]}
    torch.save({**whole, "optimizer_state_dict": optimizer, "scheduler_state_dict": None}, folder / f"model@{step}.pt")


def windows(window: int) -> Tensor:
    """All texts of this length, int64 [V^n, n]."""
    return torch.tensor(list(itertools.product(range(VOCAB), repeat=window)))


def published_probs(kind: str, heads: dict[str, Tensor], state: Tensor, texts: Tensor) -> Tensor:
    """Probabilities of texts [S, n] after a state [d] in float64, [S]: every layer in turn, fold by fold."""
    state, window = state.double(), texts.shape[1]
    phi = torch.softmax(heads[LEAVES].double() @ state, -1)  # [F, R, V]
    leaves = [phi[fold][:, texts[:, position]].T for fold, position in enumerate(scope(kind, window))]  # of [S, R]

    def sum_layer(number: int, folds: list[Tensor]) -> list[Tensor]:
        logits = heads[SUMS.format(number, "proj")].double() @ state
        weights = torch.softmax(logits + heads.get(SUMS.format(number, "bias"), torch.zeros(())).double(), -1)
        return [each @ weight.T for each, weight in zip(folds, weights, strict=True)]

    if kind in ("ff", "cp"):
        product = leaves[0]
        for leaf in leaves[1:]:
            product = product * leaf
        return (product if kind == "ff" else sum_layer(0, [product])[0])[:, 0]
    if kind == "hmm":
        (value,) = sum_layer(0, leaves[:1])  # there is a sum above the last token as well
        for number, leaf in enumerate(leaves[1:], 1):
            (value,) = sum_layer(number, [value * leaf])
        return value[:, 0]
    number, values = 0, leaves
    while len(values) > 1:
        products = [left * right for left, right in zip(values[::2], values[1::2], strict=True)]
        values = sum_layer(number, products)
        number += 1
    return values[0][:, 0]
