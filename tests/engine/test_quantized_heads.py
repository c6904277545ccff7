"""A target whose output head is in INT8 through `vllm serve`: drafts of FastMTP are those of the dequantized head."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from mtpc.target_head.shared import SharedHead
from mtpc.vocabulary.settings import open_vocabularies
from tests.engine.conftest import CAPACITY, Models
from tests.engine.loop import Loop
from tests.engine.prompts import in_two_languages
from tests.engine.ranks import CORES, RANKS
from tests.engine.server import Server, alone, speculative_config, tokens
from tests.engine.test_runner_v2 import Case, drafts_of, loop_of, session
from tests.oracles.decoding import decode, decode_speculatively
from tests.support.quantized_heads import int8, quantize_head
from tests.support.random_fastmtp import make_fastmtp, make_vocabulary
from tests.support.random_models import make_target

pytestmark = [pytest.mark.engine, pytest.mark.thorough]
RECORDED = Path(__file__).parents[1] / "support" / "recorded_drafts"
VOCABULARY, SIZE, DRAFTS, LENGTH, ASKED = 258, 120, 3, 32, 16


class Int8Head(nn.Module):
    """The head of a target in transformers, which rounds states by token as W8A8 does."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, states: Tensor) -> Tensor:
        """Logits of all tokens."""
        scale = states.abs().amax(-1, keepdim=True) / 127
        return (states / scale).round() * scale @ self.weight.T


class DequantizedHead(SharedHead):
    """Rows of draft vocabularies are dequantized; all tokens are drafted through the head itself."""

    def restricted(self, ids: Tensor) -> SharedHead:
        """The head of a draft vocabulary, or of the vocabulary of all tokens."""
        return self if len(ids) == self.vocab_size else super().restricted(ids)

    def logits(self, states: Tensor) -> Tensor:
        """Logits of all tokens."""
        return Int8Head(self.rows)(states)


class Made(NamedTuple):
    """The models, settings of the draft vocabulary, and the target with the dequantized head in transformers."""

    models: Models
    vocabulary: dict[str, Any]
    plain: Path


def made(folder: Path) -> Made:
    """A target in INT8 and a layer for it."""
    target, plain, drafter = (folder / name for name in ("target", "plain", "drafter"))
    make_fastmtp(drafter, make_target(target, seed=3))
    quantize_head(target, plain, int8)
    file = make_vocabulary(folder / "vocabulary.json", VOCABULARY)
    return Made(Models(target, drafter, DRAFTS), {"vocabulary": str(file), "size": SIZE}, plain)


def with_int8(loop: Loop) -> Loop:
    """The same loop, through a quantized head."""
    loop.head = DequantizedHead(loop.head.embedding, loop.head.rows)
    loop.target.model.lm_head = Int8Head(loop.head.rows)
    return loop


@pytest.mark.parametrize("ranks", [1, 2])
def test_drafts_are_those_of_the_dequantized_head(ranks: int, tmp_path: Path) -> None:
    (target, drafter, _), values, plain = made(tmp_path)
    loop = with_int8(Loop(plain, drafter, open_vocabularies(values, drafter, VOCABULARY, str(target))))
    drafts = tmp_path / "drafts"
    drafts.touch()
    with (
        alone() if ranks > 1 else nullcontext(),
        Server(
            target,
            tmp_path / "log",
            *CAPACITY,
            *speculative_config(drafter, DRAFTS),
            *("--additional-config", json.dumps({"mtpc": {**values, "adaptive": False}})),
            *(RANKS if ranks > 1 else ()),
            path=[RECORDED],
            variables={"RECORDED_DRAFTS": str(drafts), **(CORES if ranks > 1 else {})},
        ) as server,
    ):
        for prompt in in_two_languages(ASKED):
            before, text = len(drafts.read_text().splitlines()), list(prompt.encode())
            (emitted,) = tokens(server.complete(prompt, max_tokens=LENGTH, ignore_eos=True))
            session = loop.recording(text)
            with torch.inference_mode():
                decoded = decode_speculatively(loop.states, session, text, LENGTH, DRAFTS, 0.0)
            assert emitted == decoded.tokens
            found = [json.loads(line)[0] for line in drafts.read_text().splitlines()[before:]]
            assert found[: len(session.drafts)] == session.drafts
        assert server.metric("vllm:spec_decode_num_accepted_tokens_total") > ASKED
    assert min(loop.used[number] for number in range(3)) > 20
    if ranks > 1:
        assert Path(f"{drafts}.1").read_text() == drafts.read_text()
    assert "drafting from letters (120 tokens), capitals (120 tokens), all" in (tmp_path / "log").read_text()


def test_model_runner_v2(tmp_path: Path) -> None:
    models, values, plain = made(tmp_path)
    case = Case(models, plain, 12, 0, values, [list(prompt.encode())[:20] for prompt in in_two_languages(6)])
    arguments = ("--greedy-length", str(case.length), "--replay", "--record", str(tmp_path / "drafts"))
    output = session(models, case.prompts, *arguments, "--additional", json.dumps({"mtpc": values}))
    loop = with_int8(loop_of(case))
    with torch.inference_mode():
        texts = [decode(loop.states, prompt, case.length, 0.0) for prompt in case.prompts]
    assert output["greedy"] == texts
    expected, recorded = drafts_of(tmp_path / "drafts", case, loop)
    assert expected <= recorded
    assert 0 < output["accepted"] < output["drafted"]
