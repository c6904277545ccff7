"""Acceptance by overlap of two models with small tokenizers, against the enumerations of table 3."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import mean

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from benchmarks.overlap import COVERED, RULES, Position, RealDrafter, main, positions
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.vocabulary.token_bytes import TokenBytes
from tests.oracles.heterogeneous import on_intersection, rejection_rate
from tests.support.random_pair import make_pair, make_text_target
from tests.support.small_tokenizers import TEXTS, byte_level, composed

SHARES = (0.2, 0.6, 1.0)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A target, a pair and its draft model."""
    folder = tmp_path_factory.mktemp("overlap")
    target = make_text_target(folder / "target", composed())
    pair = make_pair(folder / "pair", target, "slem", tokenizer=byte_level(), noise=0.5)
    return target, pair, folder / "pair-draft-model"


def drawn(target: Path) -> list[Position]:
    torch.manual_seed(0)
    return list(positions(FrozenTarget(target), [composed().encode(text[:30]) for text in TEXTS], 12, 3))


def named(tokens: TokenBytes, probs: Tensor, ends: Mapping[int, int]) -> dict[str, float]:
    """A distribution by the bytes of tokens, special ones by the target's ids."""
    names = [(each or b"").hex() or f"special {ends.get(number)}" for number, each in enumerate(tokens.tokens)]
    return dict(zip(names, probs.tolist(), strict=False))


def test_rates_are_those_of_the_enumeration(folders: tuple[Path, Path, Path]) -> None:
    """And in the order of the theorems: by the union's rule no more is accepted than by TLI."""
    target, _, draft = folders
    drafter, asked = RealDrafter(draft, target, "cpu", torch.float32), drawn(target)
    pair, model = drafter.pair, AutoModelForCausalLM.from_pretrained(draft, dtype=torch.float32).eval()
    assert len(asked) > 8
    for position in asked:
        rates = list(drafter.acceptance(position, SHARES))
        with torch.inference_mode():
            logits = model(torch.tensor([pair.own.encode(pair.target.tokens.text_of(position.text))])).logits[0, -1]
            probs = logits.double().index_fill(0, drafter.unwritable, -torch.inf).softmax(0)
        p = named(pair.target.tokens, position.probs, {theirs: theirs for theirs in pair.ends.values()})
        q = named(pair.own.tokens, probs, pair.ends)
        union, slem, slrs, tli, served = (rates[-1][name] for name in RULES)
        assert union == pytest.approx(rejection_rate(p, q), abs=1e-4)
        assert tli == pytest.approx(rejection_rate(p, on_intersection(q, [*p])), abs=1e-4)
        assert 0 < slem <= slrs <= 1 and 0 <= served <= 1
        for each in rates:
            assert each[RULES[0]] <= each[RULES[3]] + 1e-9 and 0 < each[COVERED] <= 1 + 1e-9
    means = [mean(list(drafter.acceptance(position, SHARES))[i][COVERED] for position in asked) for i in range(3)]
    assert means[0] < means[1] < means[2]


def test_the_same_models_are_accepted_where_nothing_is_cut(tmp_path: Path) -> None:
    target = make_text_target(tmp_path / "target", byte_level())
    drafter = RealDrafter(target, target, "cpu", torch.float32)
    torch.manual_seed(0)
    (position, *_) = positions(FrozenTarget(target), [byte_level().encode(TEXTS[0][:30])], 4, 3)
    whole, cut = drafter.acceptance(position, (1.0, 0.2))
    written = 1 - float(position.probs[drafter.unwritable].sum())
    assert whole[RULES[0]] == pytest.approx(written, abs=1e-4)
    assert cut[RULES[0]] < whole[RULES[0]] and cut[RULES[0]] == pytest.approx(cut[RULES[3]])


def test_the_command(folders: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, pair, _ = folders
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"text": text[:40]}) + "\n" for text in TEXTS))
    options = ["--max-tokens", "6", "--shares", "0.5,1", "--dtype", "float32", "--out", str(tmp_path / "out")]
    assert main(["--target", str(target), "--drafter", str(pair), "--prompts", str(file), *options]) == 0
    assert "Alg 4 (TLI)" in capsys.readouterr().out
    results = json.loads((tmp_path / "out" / "results.json").read_text())["results"]
    assert [each["share"] for each in results] == [0.5, 1.0]
    assert (tmp_path / "out" / "overlap.png").stat().st_size > 5000
