"""Conversion of the MTPC authors' published circuits into a drafter checkpoint (`mtpc convert mtpc`).

A checkpoint of april-tools/mtpc is ``config.yaml`` and ``model@STEP.pt``. It holds the head only; the frozen target's
tensors have the value None. Each head tensor ``proj`` is [F, out, in, d], for F layers of the circuit that cirkit
computes at once ("folds"). It maps the target's state after its final norm, without bias.

- Leaves, ``_categorical_log_probs_heads.0``: F positions, R components, V tokens. An HMM has its last position first.
- Sums, ``_sum_weights_heads.k``: k counts from the leaves to the root. A sum layer of an HMM has one fold, the
  transition to the positions that are summed below it. One of a btree has a fold for each node of a level, from left to
  right. The last sum layer is the root's, [1, 1, R, d].

A softmax normalizes V and in. The HMMs of MTPC have a bias at their sums (appendix E), which starts them as a CP.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from mtpc.errors import MTPCError
from mtpc.files.config_model import Strict, short_repr, validated
from mtpc.files.weights import check_tensor, check_type
from mtpc.lab.convert.hydra_config import HydraConfig
from mtpc.lab.convert.mtpc_adapters import published_name, read_lora
from mtpc.lab.convert.tensor_file import read_values
from mtpc.lab.output_paths import check_new_folder
from mtpc.methods.drafter import Drafter, save_drafter
from mtpc.methods.mtpc import MTPC, MTPCConfig

CONFIG, STEP = "config.yaml", re.compile(r"model@(\d+)\.pt")
CIRCUIT, HEAD, TARGET = "circuit.model", "mt_head.hyperparameters", "lm.model.from_huggingface"
STATE = "model_state_dict"
COMPILED = "_orig_mod."  # torch.compile inserts it into names
LEAVES = "mt_head._categorical_log_probs_heads.0.head.proj"
SUMS = "mt_head._sum_weights_heads.{}.head.{}"
SCOPE = "._scope_idx"  # of the leaves: the position of each fold
WITHOUT_EFFECT = "_exp_gamma_weights"  # of the loss
CIRCUIT_INDEX = "circuit."  # tables of indices that belong to the structure
Size = Annotated[int, Field(ge=1)]


class PublishedCircuit(Strict):
    """The keys of a circuit in config.yaml.

    Attributes:
        constructor: The class that the authors' code would construct. It is not read.
        kind: "cp" with one component is FF.
        n_token: n, tokens that are predicted, x_{t+1} included.
        n_component: R.
        n_repetition: Trees in a mixture.
        vocab_size: V.
    """

    constructor: str = Field("", alias="_target_")
    kind: Literal["cp", "hmm", "btree"]
    n_token: Annotated[int, Field(ge=2)]
    n_component: Size
    n_repetition: Literal[1] = 1
    vocab_size: Annotated[int, Field(ge=2)]

    @property
    def circuit(self) -> str:
        """Name of the circuit in a drafter's configuration."""
        return "ff" if self.kind == "cp" and self.n_component == 1 else self.kind

    def sum_shapes(self) -> list[tuple[int, int, int]]:
        """Return [F, out, in] of each sum layer, from the leaves to the root."""
        rank = self.n_component
        match self.circuit:
            case "ff":
                return []
            case "cp":
                inner: list[int] = []
            case "hmm":
                inner = [1] * (self.n_token - 1)
            case _:
                inner = [1 << level for level in range(self.n_token.bit_length() - 2, 0, -1)]
        return [*((folds, rank, rank) for folds in inner), (1, 1, rank)]


class PublishedHead(Strict):
    """The keys of a head in config.yaml. Those without an effect on what it computes have any value.

    Attributes:
        type: The layout of the head's tensors.
        n_embd: d of the target.
        transformer_n_layer: Layers between the target's state and the circuit.
        expander_type: Layers of each component.
        share_sum_weights: Whether an HMM has one transition matrix for all positions.
        contextual_hmm_weights: Whether an HMM's transitions depend on the state.
    """

    type: Literal["evabyte"]
    n_embd: Size
    transformer_n_layer: Literal[0] = 0
    expander_type: Literal["linear"] = "linear"
    share_sum_weights: bool = False
    contextual_hmm_weights: bool = True
    transformer_n_head: Any = None
    expander_n_layer: Any = None
    expander_hidden_size: Any = None
    freeze_vocab_unembedding: Any = None
    init_hmm_identity: Any = None


class PublishedHeads(NamedTuple):
    """Tensors of a checkpoint.

    Attributes:
        leaves: [n, R, V, d] in the file's order of positions.
        sums: [F, out, in, d] of each sum layer, from the leaves to the root.
        biases: [F, out, in] of each sum layer; zero where the file has none.
        adapters: By the names of peft's files.
    """

    leaves: Tensor
    sums: list[Tensor]
    biases: list[Tensor]
    adapters: dict[str, Tensor]


def convert_mtpc(source: Path, folder: Path, target: Path | None = None) -> Drafter:
    """Convert a published circuit.

    Args:
        source: Folder of the published checkpoint. Of several steps the last is converted.
        folder: Drafter checkpoint to write. It must be new or empty.
        target: Folder of the target, whose configuration is read for a checkpoint with LoRA adapters.

    Returns:
        The drafter that was written.

    Raises:
        MTPCError: ``folder`` is not empty, the checkpoint has another layout or unknown keys or tensors, or its circuit
            cannot be represented here.
    """
    check_new_folder(folder)
    published = HydraConfig(source / CONFIG)
    circuit, size = read_config(published)
    lora = read_lora(published, size, circuit.vocab_size, target)
    path = weights_file(source)
    config = validated(
        MTPCConfig,
        {
            "circuit": circuit.circuit,
            "window": circuit.n_token,
            "rank": circuit.n_component,
            "hidden_size": size,
            "vocab_size": circuit.vocab_size,
            "leaves": "table",
            "sum_features": 0,
            "lora": lora,
        },
        str(source / CONFIG),
    )
    planned = Drafter.planned(MTPC(), config, str(source / CONFIG))
    expected, adapters = planned.tensors(), planned.adapters()
    heads = read_heads(path, circuit, size, adapters)
    weights = drafter_tensors(circuit, heads)
    for name, tensor in weights.items():
        check_tensor(path, name, tensor, expected[name])
    drafter = Drafter(MTPC(), config)
    drafter.load_tensors(weights | heads.adapters)
    drafter.requires_grad_(False).eval()
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    facts = {
        "source": source.name,
        "source_config_sha256": hashlib.sha256((source / CONFIG).read_bytes()).hexdigest(),
        "source_weights": path.name,
        "source_weights_sha256": digest,
        "target": published.get(TARGET),
    }
    save_drafter(folder, drafter, facts)
    return drafter


def read_config(published: HydraConfig) -> tuple[PublishedCircuit, int]:
    """Return the circuit and the target's hidden size.

    Args:
        published: Configuration of the checkpoint.

    Raises:
        MTPCError: The circuit or its head is of a type that this project does not have.
    """
    path = published.path
    for section in (CIRCUIT, HEAD):
        if not isinstance(published.get(section), dict):
            raise MTPCError(f"{path} has no section {section!r}, which describes the circuit of an MTPC checkpoint.")
    circuit = validated(PublishedCircuit, published.get(CIRCUIT), f"{path} at {CIRCUIT}")
    head = validated(PublishedHead, published.get(HEAD), f"{path} at {HEAD}")
    if circuit.kind != "cp" and circuit.n_component == 1:
        raise MTPCError(f"{path} has {CIRCUIT}.n_component 1, which {circuit.kind} does not have; expected 2 or more.")
    if circuit.kind == "btree" and circuit.n_token & (circuit.n_token - 1):
        raise MTPCError(
            f"{path} has {CIRCUIT}.n_token {circuit.n_token}, but a published btree is converted only where this is a "
            "power of two, as other windows are split in another way here."
        )
    if circuit.kind == "hmm" and (head.share_sum_weights or not head.contextual_hmm_weights):
        raise MTPCError(
            f"{path} has an HMM with share_sum_weights or without contextual_hmm_weights, of which no checkpoint is "
            "published; only contextual, inhomogeneous HMMs are converted."
        )
    return circuit, head.n_embd


def weights_file(source: Path) -> Path:
    """Return the file of the last step.

    Raises:
        MTPCError: There is none.
    """
    steps = {int(found[1]): path for path in source.glob("model@*.pt") if (found := STEP.fullmatch(path.name))}
    if not steps:
        raise MTPCError(f"{source} holds no weights: model@STEP.pt is missing.")
    return steps[max(steps)]


def read_heads(path: Path, circuit: PublishedCircuit, size: int, adapters: Mapping[str, Tensor]) -> PublishedHeads:
    """Read the tensors of the head and the adapters.

    Args:
        path: File of the weights.
        circuit: The circuit.
        size: d of the target.
        adapters: Tensors with the shapes of the adapters, by the names of peft's files.

    Raises:
        MTPCError: The file has another layout, or a tensor is missing or unknown, or has another shape.
    """
    loaded = read_values(path, mapped=True)
    state = loaded.get(STATE) if isinstance(loaded, dict) else None
    if not isinstance(state, dict):
        raise MTPCError(f"{path} has no {STATE!r}, which an MTPC checkpoint has.")
    remaining = {str(name).replace(COMPILED, ""): each for name, each in state.items() if each is not None}
    for name, tensor in remaining.items():
        if not isinstance(tensor, Tensor):
            raise MTPCError(f"{path}: {name!r} in {STATE!r} is not a tensor.")
    check_indices(path, circuit, remaining)

    def take(name: str, *shape: int, by: str = CONFIG) -> Tensor:
        if name not in remaining:
            raise MTPCError(f"{path}: the tensor {name!r} is missing.")
        tensor = remaining.pop(name)
        if tensor.shape != shape:
            raise MTPCError(f"{path}: {name!r} has shape {list(tensor.shape)}, but {by} requires {list(shape)}.")
        check_type(path, name, tensor)
        return tensor.float()

    sums, biases = [], []
    for number, shape in enumerate(circuit.sum_shapes()):
        sums.append(take(SUMS.format(number, "proj"), *shape, size))
        bias = SUMS.format(number, "bias")
        biases.append(take(bias, *shape) if bias in remaining else torch.zeros(shape))
    leaves = take(LEAVES, circuit.n_token, circuit.n_component, circuit.vocab_size, size)
    by, found = f"{CONFIG} with the layers of --target", {}
    for name, like in adapters.items():
        found[name] = take(published_name(name), *like.shape, by=by)
    if remaining:
        raise MTPCError(f"{path}: the tensor {min(remaining)!r} is unknown to an MTPC checkpoint of {CONFIG}.")
    return PublishedHeads(leaves, sums, biases, found)


def check_indices(path: Path, circuit: PublishedCircuit, tensors: dict[str, Tensor]) -> None:
    """Remove tensors that are no weights, and check the order of positions where the file has it.

    Args:
        path: File of the weights, for errors.
        circuit: The circuit.
        tensors: All tensors by name; changed in place.

    Raises:
        MTPCError: Positions are in another order than the circuit's.
    """
    order = circuit_order(circuit)
    for name in [name for name in tensors if name == WITHOUT_EFFECT or name.startswith(CIRCUIT_INDEX)]:
        tensor = tensors[name]
        if name != WITHOUT_EFFECT and tensor.is_floating_point():
            continue  # a weight, which nobody knows
        del tensors[name]
        if name.endswith(SCOPE) and tensor.flatten().tolist() != order:
            found = tensor.flatten().tolist()
            raise MTPCError(f"{path}: {name!r} has the positions {short_repr(found)}, but {CONFIG} requires {order}.")


def circuit_order(circuit: PublishedCircuit) -> list[int]:
    """Return the position of each fold of the leaves."""
    positions = list(range(circuit.n_token))
    return positions[::-1] if circuit.kind == "hmm" else positions


def drafter_tensors(circuit: PublishedCircuit, heads: PublishedHeads) -> dict[str, Tensor]:
    """Return the tensors by their names in a drafter, whose sums are ordered from the root to the leaves.

    Args:
        circuit: The circuit.
        heads: Tensors of the checkpoint.
    """
    weights = {"head.leaves.weight": heads.leaves[torch.tensor(circuit_order(circuit)).argsort()]}
    if heads.sums:
        weights["head.sums.weight"] = torch.cat([each.flatten(0, 2) for each in reversed(heads.sums)])
        weights["head.sums.bias"] = torch.cat([each.flatten() for each in reversed(heads.biases)])
    return weights
