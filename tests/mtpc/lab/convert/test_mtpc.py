"""`mtpc convert mtpc`: circuits in the published layout against their distribution, by enumeration."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import yaml
from torch import Tensor
from typer.testing import CliRunner

from mtpc.errors import MTPCError
from mtpc.lab.cli.main import app
from mtpc.lab.convert.mtpc import convert_mtpc
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.lab.evaluation.texts import GeneratedText, text_features
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.methods.drafter import Drafter, load_drafter
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.target_head.shared import SharedHead
from tests.mtpc.lab.convert.mtpc_checkpoint import (
    LEAVES,
    RANK,
    SIZE,
    SUMS,
    VOCAB,
    publish,
    published_probs,
    windows,
    write,
)
from tests.oracles import circuit_ops
from tests.support.tiny_models import make_target

CIRCUITS = [("ff", 4), ("cp", 4), ("hmm", 2), ("hmm", 4), ("btree", 2), ("btree", 4), ("btree", 8)]
WEIGHTS = "model@900.pt"


@torch.inference_mode()
def joint_probs(drafter: Drafter, state: Tensor, texts: Tensor) -> Tensor:
    """Of the converted circuit, [S]."""
    part = drafter.parallel
    assert isinstance(part, CircuitPart)
    params = part.head(state[None], torch.zeros(1, dtype=torch.int64))
    repeated = type(params)(
        params.leaves.expand(len(texts), -1, -1, -1),
        tuple(weights.expand(len(texts), *weights.shape[1:]) for weights in params.sums),
    )
    return circuit_ops.log_prob(part.circuit, repeated, texts).exp()


@pytest.mark.parametrize(("kind", "window"), CIRCUITS)
def test_the_converted_circuit_is_the_published_distribution(tmp_path: Path, kind: str, window: int) -> None:
    """Of every text of the window, after two states; weights are stored in bfloat16, as they are published."""
    states, texts = torch.randn(2, SIZE, generator=torch.Generator().manual_seed(7)), windows(window)
    for compiled, bias in ((False, False), (True, kind == "hmm")):
        name = f"{compiled}"
        heads = publish(tmp_path / name, kind, window, compiled=compiled, bias=bias)
        converted = convert_mtpc(tmp_path / name, tmp_path / f"{name}-drafter")
        loaded = load_drafter(tmp_path / f"{name}-drafter")
        assert loaded.config == converted.config
        for state in states:
            expected = published_probs(kind, heads, state, texts)
            torch.testing.assert_close(expected.sum(), torch.tensor(1.0, dtype=torch.float64))
            for drafter in (converted, loaded):
                probs = joint_probs(drafter, state, texts).double()
                torch.testing.assert_close(probs, expected, atol=1e-7, rtol=1e-4)


def test_a_draft_is_conditioned_on_the_token_of_the_target(tmp_path: Path) -> None:
    """The first draft token has the published probability given the token before it."""
    heads = publish(tmp_path / "source", "hmm", 4)
    drafter = convert_mtpc(tmp_path / "source", tmp_path / "drafter")
    state, texts = torch.randn(SIZE, generator=torch.Generator().manual_seed(1)), windows(4)
    probs = published_probs("hmm", heads, state, texts)
    reference = ReferenceDrafter(drafter, SharedHead(torch.zeros(VOCAB, SIZE), torch.zeros(VOCAB, SIZE)))
    for token in range(VOCAB):
        draft = reference.draft(
            state[None, None], torch.tensor([[token]]), 3, temperature=torch.ones(1), noise=torch.zeros(1, 3).double()
        )
        expected = torch.stack([probs[(texts[:, 0] == token) & (texts[:, 1] == each)].sum() for each in range(VOCAB)])
        assert draft.probs is not None
        torch.testing.assert_close(draft.probs[0, 0].double(), expected / expected.sum(), atol=1e-5, rtol=1e-4)


def with_adapters(folder: Path, layers: list[int], modules: list[str], **changes: Any) -> tuple[Any, dict[str, Tensor]]:
    """Write a target, and a checkpoint with adapters of peft; return the adapted target and the head's tensors."""
    target = make_target("llama", vocab=VOCAB, hidden_size=SIZE, num_attention_heads=2, num_hidden_layers=3)
    target.save_pretrained(folder / "target")
    settings = {
        "r": 2,
        "lora_alpha": 6,
        "lora_dropout": 0.0,
        "target_modules": modules,
        "layers_to_transform": layers,
        **changes,
    }
    keys = {**settings, "layers_to_transform": [layer for layer in layers if 0 <= layer < 3]}
    adapted = peft.get_peft_model(target, peft.LoraConfig(task_type="CAUSAL_LM", **keys))
    for name, weight in adapted.named_parameters():
        if "lora_" in name:
            weight.data = torch.randn(weight.shape).bfloat16().float()
    tensors = {f"lm._lm.{name}": each if "lora_" in name else None for name, each in adapted.state_dict().items()}
    heads = publish(folder / "source", "btree", 4, adapters=settings, tensors=tensors)
    return adapted.eval(), heads


@pytest.mark.parametrize(
    ("layers", "modules"),
    [
        ([1, 2], ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]),
        ([2], ["v_proj", "q_proj"]),
    ],
)
@torch.inference_mode()
def test_a_circuit_with_adapters_reads_the_adapted_state(tmp_path: Path, layers: list[int], modules: list[str]) -> None:
    """The draft's state is that of the adapted target after its final norm."""
    torch.manual_seed(0)
    adapted, heads = with_adapters(tmp_path, layers, modules)
    of_config("lm", last_layers=layers)(tmp_path / "source")
    of_config("adaptor.hyperparameters", layers_to_transform="${lm.last_layers}")(tmp_path / "source")
    arguments = [tmp_path / "source", tmp_path / "drafter", "--target", tmp_path / "target"]
    done = CliRunner().invoke(app, ["convert", "mtpc", *map(str, arguments)])
    assert done.exit_code == 0, done.stderr
    target, drafter = FrozenTarget(tmp_path / "target"), load_drafter(tmp_path / "drafter")
    tokens = torch.randint(VOCAB, (1, 7))
    expected = adapted.base_model.model.model(tokens).last_hidden_state[0]
    assert not torch.allclose(expected, target.features(tokens).hidden[0], atol=0.1)
    read = text_features(target, GeneratedText(tokens[0].tolist(), 3), {layers[0]}).read_by(target.bind(drafter)).hidden
    torch.testing.assert_close(read, expected, atol=1e-4, rtol=1e-4)
    texts = windows(4)
    probs = joint_probs(drafter, read[-1], texts).double()
    torch.testing.assert_close(probs, published_probs("btree", heads, expected[-1], texts), atol=1e-6, rtol=1e-3)


def test_adapters_that_cannot_be_converted(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sources = {name: tmp_path / name / "source" for name in ("first", "beyond", "unknown", "wider", "more")}
    with_adapters(tmp_path / "first", [0], ["q_proj"])
    with_adapters(tmp_path / "beyond", [2, 3], ["q_proj"])
    with_adapters(tmp_path / "unknown", [2], ["q_proj"], use_dora=False)
    for name, changes in (("wider", {"r": 4}), ("more", {"target_modules": ["q_proj", "k_proj"]})):
        with_adapters(tmp_path / name, [2], ["q_proj"])
        of_config("adaptor.hyperparameters", **changes)(sources[name])
    without = tmp_path / "without"
    publish(without, "cp", 4)
    target, wider = tmp_path / "first" / "target", sources["wider"]
    make_target("llama", vocab=VOCAB + 1, hidden_size=SIZE, num_attention_heads=2).save_pretrained(tmp_path / "larger")
    make_target("qwen3_moe", vocab=VOCAB, hidden_size=SIZE).save_pretrained(tmp_path / "experts")
    damaged = shutil.copytree(target, tmp_path / "damaged") / "config.json"
    damaged.write_text(damaged.read_text().replace('"intermediate_size": 24', '"intermediate_size": "x"'))
    convert_mtpc(without, tmp_path / "converted")
    shape = "lora_A.default.weight' has shape [2, 8], but config.yaml with the layers of --target requires [4, 8]"
    for source, given, message in (
        (sources["first"], None, "has LoRA adapters (adaptor.hyperparameters): name their target"),
        (sources["first"], target, "has adapters of layers [0], but only those of the last of the 3 layers"),
        (sources["beyond"], target, "has adapters of layers [2, 3], but only"),
        (sources["unknown"], target, "unknown key 'use_dora'"),
        (wider, target, shape),
        (sources["more"], target, "k_proj.lora_A.default.weight' is missing"),
        (wider, tmp_path / "larger", "has vocab_size 4, but the circuit of"),
        (wider, tmp_path / "experts", "LoRA layers need dense layers"),
        (wider, tmp_path / "damaged", "config.json cannot be read"),
        (wider, tmp_path / "converted", "is an MTPC drafter, but a target was expected"),
        (wider, without, "is not a model folder (no config.json)"),
        (without, target, "has no LoRA adapters, so --target has no effect"),
    ):
        with pytest.raises(MTPCError) as caught:
            convert_mtpc(source, tmp_path / "drafter", given)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "drafter").exists()


def test_the_last_step_is_converted(tmp_path: Path) -> None:
    heads = publish(tmp_path / "source", "cp", 4)
    write(tmp_path / "source", {**heads, LEAVES: heads[LEAVES] + 1}, step=1000)
    converted = convert_mtpc(tmp_path / "source", tmp_path / "drafter")
    torch.testing.assert_close(converted.tensors()["head.leaves.weight"], (heads[LEAVES] + 1).float())


def test_the_commands(tmp_path: Path) -> None:
    publish(tmp_path / "source", "hmm", 4)
    out = str(tmp_path / "drafter")
    done = CliRunner().invoke(app, ["convert", "mtpc", str(tmp_path / "source"), out])
    assert done.exit_code == 0, done.stderr
    parameters = 4 * RANK * VOCAB * SIZE + (RANK + 3 * RANK**2) * (SIZE + 1)
    assert done.output.startswith(f"{out}: a circuit hmm of rank {RANK} and {parameters} parameters for a target with")
    assert "hidden size 8 and vocabulary 3, 3 draft tokens per step" in done.output
    shown = CliRunner().invoke(app, ["inspect", out], env={"COLUMNS": "160"})
    assert shown.exit_code == 0, shown.stderr
    for piece in (
        "mtpc: circuits over a window of tokens",
        "4 tokens: the target's next token and 3 draft tokens",
        "evidence of the circuit",
        "table",
        "benjamin/Llama3-2-3B-IT-Byte",
        '"num_speculative_tokens": 3',
        "--speculative-algorithm MTPC",
    ):
        assert piece in shown.output


def of_config(section: str, **changes: Any) -> Callable[[Path], None]:
    """Change keys of a section of config.yaml; None removes one."""

    def change(folder: Path) -> None:
        config = yaml.safe_load((folder / "config.yaml").read_text())
        values = config
        for name in section.split("."):
            values = values[name]
        values.update(changes)
        (folder / "config.yaml").write_text(yaml.safe_dump(config))

    return change


def of_state(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def broken(folder: Path) -> None:
        state = torch.load(folder / WEIGHTS)["model_state_dict"]
        change(state)
        write(folder, state)

    return broken


def text_of(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


HEAD, CIRCUIT = "mt_head.hyperparameters", "circuit.model"
BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), "model@STEP.pt is missing"),
    "no config": (lambda folder: (folder / "config.yaml").unlink(), "config.yaml is missing"),
    "not YAML": (text_of("config.yaml", "a: [b"), "cannot be read as YAML"),
    "code in YAML": (text_of("config.yaml", "a: !!python/object/apply:os.getcwd []"), "cannot be read as YAML"),
    "a list": (text_of("config.yaml", "[1]"), "holds a list, but sections were expected"),
    "another config": (text_of("config.yaml", "a: 1"), "has no section 'circuit.model'"),
    "a large config": (text_of("config.yaml", " " * (1 << 20) + "a: 1"), "larger than 1 MiB"),
    "text": (text_of(WEIGHTS, "weights"), "cannot be read as a file of tensors"),
    "a bare state": (lambda folder: torch.save({LEAVES: torch.ones(1)}, folder / WEIGHTS), "no 'model_state_dict'"),
    "no references": (of_config("data", vocab_size="${nothing}"), "refers to 'nothing'"),
    "a circle": (of_config("data", vocab_size="${data.vocab_size}"), "references in a circle"),
    "an unknown key": (of_config(HEAD, colour="red"), "unknown key 'colour'"),
    "an unknown circuit": (of_config(CIRCUIT, kind="random-btree"), "kind"),
    "several trees": (of_config(CIRCUIT, n_repetition=2), "n_repetition"),
    "an encoder": (of_config(HEAD, transformer_n_layer=1), "transformer_n_layer"),
    "an MLP": (of_config(HEAD, expander_type="mlp"), "expander_type"),
    "another head": (of_config(HEAD, type="vanilla"), "'type'"),
    "adapters": (of_config("adaptor", hyperparameters={"r": 16}), "has LoRA adapters"),
    "shared transitions": (of_config(HEAD, share_sum_weights=True), "only contextual, inhomogeneous HMMs"),
    "fixed transitions": (of_config(HEAD, contextual_hmm_weights=False), "only contextual, inhomogeneous HMMs"),
    "rank 1": (of_config(CIRCUIT, n_component=1), "n_component 1, which hmm does not have"),
    "an odd tree": (of_config(CIRCUIT, kind="btree", n_token=6), "n_token 6, but a published btree"),
    "another window": (
        of_config(CIRCUIT, n_token=5),
        "has the positions [3, 2, 1, 0], but config.yaml requires [4, 3, 2, 1, 0]",
    ),
    "another size": (of_config("lm", n_embd=9), "has shape [1, 2, 2, 8], but config.yaml requires [1, 2, 2, 9]"),
    "another vocabulary": (of_config("data", vocab_size=4), "but config.yaml requires [4, 2, 4, 8]"),
    "no leaves": (of_state(lambda state: state.pop(LEAVES)), f"{LEAVES!r} is missing"),
    "a sum too few": (of_state(lambda state: state.pop(SUMS.format(1, "proj"))), "heads.1.head.proj' is missing"),
    "a sum too many": (
        of_state(lambda state: state.update({SUMS.format(4, "proj"): torch.ones(1)})),
        "heads.4.head.proj' is unknown",
    ),
    "an MLP's weights": (
        of_state(lambda state: state.update({"mt_head._norm.weight": torch.ones(SIZE)})),
        "'mt_head._norm.weight' is unknown",
    ),
    "weights of the circuit": (
        of_state(lambda state: state.update({"circuit._nodes.0.weight": torch.ones(1)})),
        "'circuit._nodes.0.weight' is unknown",
    ),
    "an adapter": (
        of_state(lambda state: state.update({"lm._lm.lora_A.default.weight": torch.ones(1)})),
        "lora_A.default.weight' is unknown",
    ),
    "another order": (
        of_state(lambda state: state.update({"circuit._circuit._nodes.0._scope_idx": torch.arange(4)[:, None]})),
        "has the positions [0, 1, 2, 3], but config.yaml requires [3, 2, 1, 0]",
    ),
    "no tensor": (of_state(lambda state: state.update({LEAVES: "leaves"})), "is not a tensor"),
    "of whole numbers": (
        of_state(lambda state: state.update({LEAVES: state[LEAVES].long()})),
        "of type torch.int64",
    ),
    "not finite": (of_state(lambda state: state[LEAVES].fill_(torch.nan)), "not finite"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_another_checkpoint_is_refused_with_one_sentence(tmp_path: Path, name: str) -> None:
    publish(tmp_path / "source", "hmm", 4)
    change, message = BROKEN[name]
    change(tmp_path / "source")
    with pytest.raises(MTPCError) as caught:
        convert_mtpc(tmp_path / "source", tmp_path / "drafter")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "drafter").exists()
