"""Every key of ours, of every wrong type and out of every bound, is one sentence where vLLM reads its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from vllm.engine.arg_utils import EngineArgs

from mtpc.errors import MTPCError
from tests.support.random_fastmtp import make_vocabulary
from vllm_mtpc.additional_config import VLLMDraftSettings, check_section, draft_settings

VALUES: tuple[Any, ...] = (True, 5, 0, -1, 10**30, 1.5, float("nan"), "", "x", "5", [], [5], {}, {"a": 1})
KEYS = sorted(field.alias or name for name, field in VLLMDraftSettings.model_fields.items())
RIGHT: dict[str, tuple[Any, ...]] = {
    "copy": (True,),
    "size": (5,),
    "store": (5,),
    "step_cost": ({},),
    "adaptive": (True,),
}
CURVES: tuple[Any, ...] = ([[0, 1.0]], [[1, -1.0]], [[1, 1e9]], [[1]], [[1.5, 1.0]], [[2, 1.0], [1, 1.0]], [["1", 1.0]])
WRONG_CURVES = [*(value for value in VALUES), *CURVES, [[1, float("inf")]], [[1, 1.0, 1.0]]]


def wrong() -> list[tuple[str, Any]]:
    """Keys and values that no section may hold together."""

    def is_right(key: str, value: Any) -> bool:
        return any(type(value) is type(right) and value == right for right in RIGHT.get(key, ()))

    keys = [(key, value) for key in KEYS for value in VALUES if not is_right(key, value)]
    curves = [("step_cost", {curve: value}) for curve in ("plain", "verifying", "drafting") for value in WRONG_CURVES]
    return [*keys, *curves, ("step_cost", {"sampled": {"sampled": {}}}), ("colour", 5), ("copy_", True)]


def refused(target: Path, drafter: Path, additional: Any, speculative: Any = None) -> str:
    """The sentence."""
    settings = {"method": "eagle", "model": str(drafter), "num_speculative_tokens": 3}
    settings = settings | (speculative or {}) if isinstance(speculative, dict | None) else speculative
    arguments = EngineArgs(str(target), max_model_len=256, speculative_config=settings, additional_config=additional)
    with pytest.raises(MTPCError) as caught:
        arguments.create_engine_config()
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert len(message) < 500
    return message


def test_keys_of_the_section(target: Path, fastmtp: Path, tmp_path: Path) -> None:
    words = str(make_vocabulary(tmp_path / "words.json", 258))
    cases = wrong()
    assert len(cases) > 130
    for key, value in cases:
        given = {"vocabulary": words, "copy": True} | {key: value}
        assert refused(target, fastmtp, {"mtpc": given}), (key, value)


@pytest.mark.parametrize("value", [None, 5, 1.5, True, "x", [], [1]])
def test_what_is_no_section(target: Path, fastmtp: Path, value: Any) -> None:
    assert "'mtpc'" in refused(target, fastmtp, {"mtpc": value})


@pytest.mark.parametrize("value", [5, 1.5, True, "x", [], [1]])
def test_what_is_no_configuration(target: Path, fastmtp: Path, value: Any) -> None:
    assert "additional-config" in refused(target, fastmtp, value)
    assert "speculative-config must be a JSON object" in refused(target, fastmtp, {}, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("method", ["eagle"]),
        ("num_speculative_tokens", "3"),
        ("num_speculative_tokens", True),
        ("draft_sample_method", []),
        ("parallel_drafting", "no"),
        ("draft_tensor_parallel_size", "1"),
        ("max_model_len", "long"),
        ("num_speculative_tokens_per_batch_size", 5),
        ("rejection_sample_method", "guess"),
    ],
)
def test_keys_of_the_speculative_settings(target: Path, fastmtp: Path, key: str, value: Any) -> None:
    assert key in refused(target, fastmtp, {}, {key: value})


def test_other_settings_are_none_of_our_business() -> None:
    class Other:
        def compute_hash(self) -> str:
            return ""

    check_section({"mtpc": {}, "mtp": 1, "size": 2})  # keys of another plugin
    for additional in (None, {}, {"gdn_prefill_backend": [1]}, Other()):
        check_section(additional)
        assert draft_settings(additional) == VLLMDraftSettings()


def test_a_store_is_for_copying(target: Path, drafter: Path) -> None:
    found = refused(target, drafter, {"mtpc": {"store": 5}})
    assert "additional-config mtpc.store requires prompt lookup" in found


@pytest.mark.parametrize("path", ["nul\0", "/dev/null", "."], ids=repr)
def test_paths_that_are_no_file(target: Path, fastmtp: Path, path: str) -> None:
    assert refused(target, fastmtp, {"mtpc": {"vocabulary": path}})
    assert refused(target, fastmtp, {}, {"model": path})


@pytest.mark.parametrize(
    ("additional", "sentence"),
    [
        ({"copy": True}, "additional-config has 'copy' at its top: write it into the section 'mtpc'"),
        ({"size": 20}, "additional-config has 'size' at its top"),
        ({"mtcp": {"copy": True}}, "additional-config has no section 'mtcp': write 'mtpc'"),
        ({"MTPC": {"copy": True}}, "additional-config has no section 'MTPC'"),
    ],
)
def test_settings_outside_of_the_section(
    target: Path, drafter: Path, additional: dict[str, Any], sentence: str
) -> None:
    assert sentence in refused(target, drafter, additional)


def test_the_target_is_no_drafter(target: Path) -> None:
    found = refused(target, target, {})
    assert found.endswith(f"speculative-config is {target}, which is the target: name a drafter there.")
