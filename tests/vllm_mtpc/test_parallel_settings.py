"""Every wrong setting of a drafter without an autoregressive part is one sentence, before any engine exists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from vllm.engine.arg_utils import EngineArgs

from mtpc.errors import MTPCError
from tests.support.broken_drafters import BROKEN, Broken, broken_copy
from tests.support.hub_cache import COMMIT, cached, go_offline
from vllm_mtpc.dispatch import drafter_of, folder_of
from vllm_mtpc.settings import drafter_folder


def engine_config(target: Path, settings: dict[str, Any], ranks: int = 1) -> Any:
    """What every way of starting vLLM builds first."""
    arguments = EngineArgs(
        model=str(target), max_model_len=256, speculative_config=settings, tensor_parallel_size=ranks
    )
    return arguments.create_engine_config()


@pytest.mark.parametrize("case", BROKEN, ids=[case.name for case in BROKEN])
def test_one_sentence(case: Broken, target: Path, drafter: Path, tmp_path: Path) -> None:
    settings = broken_copy(case, drafter, tmp_path / "drafter")
    with pytest.raises(MTPCError) as caught:
        engine_config(target, settings)
    message = str(caught.value)
    assert case.sentence in message
    assert "\n" not in message
    assert message.endswith(".")
    assert len(message) < 600


@pytest.mark.parametrize("method", ["greedy", "probabilistic"])
def test_good_settings_pass(target: Path, drafter: Path, method: str) -> None:
    settings = {"method": "eagle", "model": str(drafter), "num_speculative_tokens": 7, "draft-sample-method": method}
    speculative = engine_config(target, settings).speculative_config
    assert speculative.draft_model_config.architectures == ["EagleMTPCForCausalLM"]
    assert speculative.use_eagle()


def test_a_hugging_face_id(target: Path, drafter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_offline(monkeypatch, tmp_path)
    snapshot = cached(tmp_path, "owner/window", drafter)
    tagged = cached(tmp_path, "owner/window", drafter, COMMIT[::-1], ref="v1")
    settings = {"method": "eagle", "model": "owner/window", "num_speculative_tokens": 7}
    for given, found in (({}, snapshot), ({"revision": "v1"}, tagged)):
        config = engine_config(target, settings | given)
        draft = config.speculative_config.draft_model_config
        assert (draft.model, draft.revision) == ("owner/window", found.name)  # the same commit in every process
        assert draft.architectures == ["EagleMTPCForCausalLM"]
        assert folder_of(config) == found
        assert drafter_of(config)[1].num_drafts == 7
    with pytest.raises(MTPCError, match="HF_HUB_OFFLINE is set, and v2 is not complete"):
        engine_config(target, settings | {"revision": "v2"})
    with pytest.raises(MTPCError, match="its method must be 'eagle', not None"):
        engine_config(target, {key: value for key, value in settings.items() if key != "method"})


def test_ids_of_other_drafters_are_none_of_our_business(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_offline(monkeypatch, tmp_path)
    cached(tmp_path, "owner/head", target)
    (tmp_path / "mistral").mkdir()
    cached(tmp_path, "owner/mistral", tmp_path / "mistral")
    for model in ("owner/head", "owner/mistral", "owner/head:Q4_K_M", "s3://owner/head"):
        assert drafter_folder({"method": "eagle", "model": model}) is None, model
    for method in ("draft_model", "eagle3", None):
        assert drafter_folder({"method": method, "model": "owner/nothing"}) is None
    monkeypatch.setenv("VLLM_USE_MODELSCOPE", "1")
    assert drafter_folder({"method": "eagle", "model": "owner/nothing"}) is None


@pytest.mark.parametrize("own", [{}, {"disable_eagle_block_drop": False}])
def test_without_layers_no_cached_block_is_computed_again(target: Path, drafter: Path, own: dict[str, Any]) -> None:
    """Unless the user wants it."""
    settings = {"method": "eagle", "model": str(drafter), "num_speculative_tokens": 7} | own
    assert engine_config(target, settings).speculative_config.use_eagle_block_drop() == bool(own)


@pytest.mark.parametrize("own", [{}, {"draft_tensor_parallel_size": 1}])
def test_a_window_is_whole_on_every_rank(target: Path, drafter: Path, own: dict[str, Any]) -> None:
    settings = {"method": "eagle", "model": str(drafter), "num_speculative_tokens": 7} | own
    config = engine_config(target, settings, ranks=2)
    assert config.parallel_config.tensor_parallel_size == 2
    assert config.speculative_config.draft_parallel_config.tensor_parallel_size == 1


def test_a_window_shared_by_ranks_is_refused(target: Path, drafter: Path) -> None:
    settings = {"method": "eagle", "model": str(drafter), "num_speculative_tokens": 7, "draft_tensor_parallel_size": 2}
    with pytest.raises(MTPCError, match="is not sharded over ranks: set it to 1"):
        engine_config(target, settings, ranks=2)


def test_settings_without_a_drafter_of_ours_are_none_of_our_business(target: Path, tmp_path: Path) -> None:
    assert drafter_folder({"method": "ngram", "num_speculative_tokens": 3}) is None
    assert drafter_folder({"method": "draft_model", "model": str(target)}) is None
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    assert drafter_folder({"method": "eagle", "model": str(tmp_path)}) is None
    assert drafter_folder({"method": "draft_model", "model": str(tmp_path / "none")}) is None
