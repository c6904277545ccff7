"""Whatever drafts on several ranks asks first whether all of them draft with the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mtpc.errors import MTPCError
from mtpc.serving import ranks as alike
from vllm_mtpc import ranks
from vllm_mtpc.native.v1 import NativeProposer
from vllm_mtpc.native.v2 import NativeSpeculator
from vllm_mtpc.v1.proposer import Proposer
from vllm_mtpc.v1.text_proposer import TextProposer
from vllm_mtpc.v2.speculator import Speculator

CPU = torch.device("cpu")
GROUP = SimpleNamespace(world_size=2, cpu_group="those that speak gloo")
WORDS = {"language": "none"}
STARTS: dict[str, Callable[[Any], object]] = {
    "V1": lambda config: Proposer(config, CPU),
    "V1, text": lambda config: TextProposer(config, CPU),
    "V2": lambda config: Speculator(config, CPU, None),
    "native, V1": lambda config: NativeProposer.begin(SimpleNamespace(vllm_config=config)),
    "native, V2": lambda config: NativeSpeculator.begin(SimpleNamespace(vllm_config=config), None),
}


@pytest.mark.parametrize("start", STARTS)
def test_they_ask_before_they_do_anything(start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draft = SimpleNamespace(model=str(tmp_path / "drafter"), architectures=["Other"])
    speculative = SimpleNamespace(draft_model_config=draft)
    config = SimpleNamespace(speculative_config=speculative, additional_config={"mtpc": WORDS})

    def refuse(*asked: Any) -> None:
        assert asked == (GROUP.cpu_group, tmp_path / "drafter", WORDS)
        raise MTPCError("they differ.")

    monkeypatch.setattr(ranks, "get_tp_group", lambda: GROUP)
    monkeypatch.setattr(alike, "check_ranks", refuse)
    with pytest.raises(MTPCError, match="they differ"):
        STARTS[start](config)
