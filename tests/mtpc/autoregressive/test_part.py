"""What autoregressive parts take from their target, and what they bring themselves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mtpc.autoregressive.config import AutoregressiveConfig, layer_of
from mtpc.autoregressive.part import DrafterTokens, TargetInterface
from mtpc.errors import MTPCError
from mtpc.files.config_json import read_config_file
from mtpc.files.target import Target
from mtpc.files.weights import WEIGHTS
from mtpc.methods.drafter import draft_language, draft_vocabularies, load_drafter, save_drafter
from mtpc.target_head.shared import SharedHead
from mtpc.vocabulary.ranking import Ranking, Rankings
from tests.support.tiny_methods import EXAMPLES, VOCAB, tiny_target
from tests.support.tiny_models import SIZE

TOKENS = "serial.own.tokens"


def saved(example: str, folder: Path) -> Path:
    save_drafter(folder, EXAMPLES[example](), {})
    return folder


def test_by_default_everything_is_the_targets() -> None:
    autoregressive = AutoregressiveConfig(**layer_of(tiny_target().config))
    assert isinstance(autoregressive, TargetInterface)
    assert (
        autoregressive.state_below is None
        and autoregressive.own_vocabulary is None
        and not autoregressive.has_own_embedding
    )
    assert DrafterTokens.of(autoregressive) is None
    drafter, target = EXAMPLES["fastmtp-llama"](), SharedHead.of(tiny_target())
    assert drafter.head(target) is target
    assert "eagle_aux_hidden_state_layer_ids" not in drafter.method.to_json(drafter.config)


def test_an_embedding_alone_leaves_the_targets_head() -> None:
    drafter, target = EXAMPLES["subset-eagle"](), SharedHead.of(tiny_target())
    assert drafter.autoregressive is not None
    drafter.autoregressive.own = DrafterTokens(SIZE, VOCAB, embeds=True, count=None)
    restricted = target.restricted(torch.tensor([1, 3]))
    head = drafter.head(restricted)
    assert head.rows is restricted.rows and head.ids is restricted.ids
    assert not torch.equal(head.embedding, target.embedding)


def test_an_own_head_drafts_its_tokens_alone() -> None:
    drafter, states = EXAMPLES["subset-eagle"](), torch.randn(4, SIZE)
    head = drafter.head(SharedHead.of(tiny_target()))
    assert (
        drafter.autoregressive is not None
        and drafter.autoregressive.own is not None
        and drafter.autoregressive.own.rows is not None
    )
    assert head.tokens_of(torch.arange(3)).tolist() == [0, 2, 3]
    torch.testing.assert_close(head.logits(states), states @ drafter.autoregressive.own.rows.T)


def test_the_state_that_is_read_is_named_for_the_engine(tmp_path: Path) -> None:
    folder = saved("between-hmm", tmp_path)
    assert read_config_file(folder)["eagle_aux_hidden_state_layer_ids"] == [1]
    for layers in (None, 2, 30):
        assert load_drafter(folder, Target(SIZE, VOCAB, layers)).config.autoregressive.state_below == 1
    with pytest.raises(
        MTPCError, match="reads the state below layer 1 of its target, but this target has layers 0 to 0"
    ):
        load_drafter(folder, Target(SIZE, VOCAB, 1))


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.tensor([0, 3, 2]), "must be ascending numbers from 0 to 4"),
        (torch.tensor([0, 2, 2]), "must be ascending numbers from 0 to 4"),
        (torch.tensor([-1, 2, 3]), "must be ascending numbers from 0 to 4"),
        (torch.tensor([0, 2, VOCAB]), "must be ascending numbers from 0 to 4"),
        (torch.tensor([0.0, 2.0, 3.0]), "of type torch.float32, not torch.int64"),
        (torch.tensor([0, 2, 3], dtype=torch.int32), "of type torch.int32, not torch.int64"),
        (torch.tensor([0, 2]), r"has shape \[2\], but config.json makes it \[3\]"),
    ],
)
def test_other_numbers_are_no_tokens(tokens: Tensor, message: str, tmp_path: Path) -> None:
    folder = saved("subset-eagle", tmp_path)
    assert load_drafter(folder).autoregressive.own.tokens.tolist() == [0, 2, 3]  # type: ignore[union-attr]
    save_file(load_file(folder / WEIGHTS) | {TOKENS: tokens}, folder / WEIGHTS)
    with pytest.raises(MTPCError, match=message):
        load_drafter(folder)


def test_an_own_head_takes_no_draft_vocabulary(tmp_path: Path) -> None:
    subset, circuit = (EXAMPLES[name]() for name in ("subset-eagle", "mtpc-ff"))
    assert draft_vocabularies({}, tmp_path, subset.method, subset.config) is None
    assert draft_vocabularies({"size": 3}, tmp_path, circuit.method, circuit.config) is None
    with pytest.raises(MTPCError, match=r"restricts the target's output head, but .* has its own\."):
        draft_vocabularies({"size": 3}, tmp_path, subset.method, subset.config)


def test_whoever_drafts_through_the_targets_head_has_draft_vocabularies(tmp_path: Path) -> None:
    Rankings(VOCAB, {"some": Ranking((3, 0))}).save(tmp_path / "vocabulary.json", {})
    for name, restricted in (("fastmtp-llama", True), ("mtpc-hmm-target", True), ("mtpc-hmm", False)):
        drafter = EXAMPLES[name]()
        opened = draft_vocabularies({"size": 2}, tmp_path, drafter.method, drafter.config)
        assert (opened is not None and opened.ids[0].tolist() == [0, 3]) == restricted


def test_the_language_of_the_draft_vocabulary_is_named_where_there_is_one(tmp_path: Path) -> None:
    drafters = {name: EXAMPLES[name]() for name in ("fastmtp-llama", "mtpc-hmm-target", "subset-eagle", "mtpc-ff")}

    def language_of(name: str, values: dict[str, str], folder: Path) -> str:
        return draft_language(values, folder, drafters[name].method, drafters[name].config)

    (tmp_path / "vocabulary.json").write_text("")
    for values, language in (({}, "auto"), ({"language": "french"}, "french"), ({"language": "none"}, "none")):
        found = [language_of(name, values, tmp_path) for name in drafters]
        assert found == [language, language, "none", "none"]
    assert language_of("fastmtp-llama", {}, tmp_path / "without") == "none"
