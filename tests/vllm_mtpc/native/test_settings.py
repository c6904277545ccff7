"""Every wrong setting for a drafter of vLLM's own is one sentence, before any engine exists."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mtpc.errors import MTPCError
from tests.support.random_fastmtp import make_vocabulary
from tests.support.random_native import make_draft_model, make_eagle
from tests.vllm_mtpc.test_autoregressive_settings import engine_config
from vllm_mtpc import integration_points
from vllm_mtpc.native.settings import check_native, check_native_runner

VOCAB = 258


@pytest.fixture(scope="module")
def eagle(target: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A layer of vLLM's own layout."""
    return make_eagle(tmp_path_factory.mktemp("eagle") / "eagle", target)


@pytest.fixture
def section(tmp_path: Path) -> dict[str, Any]:
    """Good settings of draft vocabularies."""
    return {"vocabulary": str(make_vocabulary(tmp_path / "words.json", VOCAB)), "size": 20}


@pytest.mark.parametrize("method", ["greedy", "probabilistic"])
def test_good_settings_pass(target: Path, eagle: Path, section: dict[str, Any], method: str) -> None:
    config = engine_config(target, eagle, {"mtpc": section}, draft_sample_method=method)
    assert config.speculative_config.method == "eagle"


def test_without_the_section_anything_passes(target: Path, eagle: Path) -> None:
    engine_config(target, eagle, {"other": {}}, use_local_argmax_reduction=True)
    check_native(None, None, {"mtpc": {"size": 20}})


@pytest.mark.parametrize(
    ("changes", "settings", "part"),
    [
        ({"store": 5}, {}, "additional-config mtpc.store requires prompt lookup"),
        ({"adaptive": True}, {}, "additional-config mtpc.adaptive requires prompt lookup with 'eagle'"),
        ({"step_cost": {}}, {}, "additional-config mtpc.step_cost requires prompt lookup with 'eagle'"),
        ({"copy": True}, {"disable_padded_drafter_batch": True}, "disable_padded_drafter_batch is True"),
        ({"vocabulary": "gone.json"}, {}, "gone.json"),
        ({"language": "klingon"}, {}, "unknown language 'klingon'"),
        ({"size": 1000}, {}, "not 1000"),
        ({"colour": 1}, {}, "colour"),
        ({}, {"use_local_argmax_reduction": True}, "use_local_argmax_reduction is True"),
        ({}, {"rejection_sample_method": "block"}, "rejection_sample_method is 'block', which is not lossless"),
        (
            {},
            {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.0},
            "is 'synthetic', which vLLM supports on GPUs only",
        ),
        ({}, {"method": "ngram", "model": None, "prompt_lookup_max": 3}, "not for 'ngram'"),
    ],
)
def test_wrong_settings(
    target: Path, eagle: Path, section: dict[str, Any], changes: dict[str, Any], settings: dict[str, Any], part: str
) -> None:
    with pytest.raises(MTPCError) as caught:
        engine_config(target, eagle, {"mtpc": section | changes}, **settings)
    message = str(caught.value)
    assert part in message
    assert "\n" not in message
    assert message.endswith(".")


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"use_local_argmax_reduction": True}, "use_local_argmax_reduction is True, but with prompt lookup it must be"),
        ({"rejection_sample_method": "block"}, "rejection_sample_method is 'block', which is not lossless"),
        ({"method": "ngram", "model": None, "prompt_lookup_max": 3}, "not for 'ngram'"),
    ],
)
def test_prompt_lookup_alone(target: Path, eagle: Path, settings: dict[str, Any], part: str) -> None:
    engine_config(target, eagle, {"mtpc": {"copy": True, "adaptive": False, "store": 5}})
    engine_config(target, eagle, {"mtpc": {"copy": False}}, use_local_argmax_reduction=True)
    with pytest.raises(MTPCError) as caught:
        engine_config(target, eagle, {"mtpc": {"copy": True}}, **settings)
    assert part in str(caught.value)


def test_prompt_lookup_on_either_runner(target: Path, eagle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is a setting of one runner is refused once vLLM has chosen the other."""
    config = engine_config(target, eagle, {"mtpc": {"copy": True}})
    chosen: Any = SimpleNamespace(**{name: getattr(config, name) for name in ("speculative_config", "model_config")})
    chosen.scheduler_config, chosen.use_v2_model_runner = SimpleNamespace(async_scheduling=True), True
    cases = {"store": 5, "adaptive": True, "step_cost": {}}
    for key, value in cases.items():
        chosen.additional_config = {"mtpc": {"copy": True, key: value}}
        with pytest.raises(MTPCError, match=f"mtpc.{key} requires the V1 model runner"):
            check_native_runner(chosen)
    chosen.additional_config = {"mtpc": {"copy": True}}
    check_native_runner(chosen)
    chosen.use_v2_model_runner = False
    with pytest.raises(MTPCError, match=r"mtpc.copy requires --no-async-scheduling on the V1 model runner"):
        check_native_runner(chosen)
    chosen.additional_config = {"mtpc": {"size": 20}}
    check_native_runner(chosen)


def test_prompt_lookup_needs_the_targets_tokens(target: Path, eagle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = engine_config(target, eagle, {})
    monkeypatch.setattr(config.speculative_config.draft_model_config, "get_vocab_size", lambda: 40)
    with pytest.raises(MTPCError, match=r"copy requires a drafter with the target's 258 tokens, but .* has 40"):
        check_native(config.speculative_config, config.model_config, {"mtpc": {"copy": True}})


def test_prompt_lookup_needs_all_layers_in_one_stage(target: Path, eagle: Path) -> None:
    config = engine_config(target, eagle, {})
    with pytest.raises(MTPCError, match="pipeline_parallel_size is 2, but with prompt lookup it must be 1"):
        check_native(config.speculative_config, config.model_config, {"mtpc": {"copy": True}}, pipeline_stages=2)


def test_a_quantized_copy_of_the_head(target: Path, eagle: Path, section: dict[str, Any]) -> None:
    """A key of vLLM 0.33."""
    config = engine_config(target, eagle, {})
    config.speculative_config.draft_lm_head_quantization = "fp8"
    with pytest.raises(MTPCError, match="draft_lm_head_quantization is 'fp8', but with a draft vocabulary"):
        check_native(config.speculative_config, config.model_config, {"mtpc": section})
    for section in ({}, {"mtpc": {"copy": True}}):
        check_native(config.speculative_config, config.model_config, section)


def test_no_file(target: Path, eagle: Path) -> None:
    with pytest.raises(MTPCError, match="need a file of rankings"):
        engine_config(target, eagle, {"mtpc": {"size": 20}})


def test_a_vocabulary_of_its_own(target: Path, tmp_path: Path, section: dict[str, Any]) -> None:
    draft = make_draft_model(tmp_path / "draft", target)
    file = draft / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"draft_vocab_size": 40}))
    with pytest.raises(MTPCError, match="draft_vocab_size is 40"):
        engine_config(target, draft, {"mtpc": section}, method="draft_model")
    engine_config(target, draft, {"mtpc": {"copy": True}}, method="draft_model")


def test_language_none_asks_for_nothing(target: Path, eagle: Path, section: dict[str, Any]) -> None:
    engine_config(target, eagle, {"mtpc": section | {"language": "none"}}, use_local_argmax_reduction=True)


def test_a_line_that_does_not_hold(
    monkeypatch: pytest.MonkeyPatch, target: Path, eagle: Path, section: dict[str, Any]
) -> None:
    line = next(line for line in integration_points.TABLE if line.group == integration_points.NATIVE)
    monkeypatch.setattr(integration_points, "TABLE", [line._replace(parameters="self x", how="called")])
    with pytest.raises(MTPCError, match=r"where \(self x\) is expected"):
        engine_config(target, eagle, {"mtpc": section})
