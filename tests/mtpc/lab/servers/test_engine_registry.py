"""Engines by their names."""

import pytest

from mtpc.errors import MTPCError
from mtpc.lab.servers import engine_registry
from mtpc.lab.servers.engine_registry import ENGINES, find_engine, must_be_installed


def test_both_engines_are_known() -> None:
    assert [find_engine(name).title for name in ("vllm", "sglang")] == ["vLLM", "SGLang"]
    assert find_engine("vllm", offline=True).title == "vLLM, offline"


def test_unknown_engine() -> None:
    with pytest.raises(MTPCError, match=r"'tgi'.*vllm, sglang"):
        find_engine("tgi")


def test_sglang_is_not_measured_offline() -> None:
    with pytest.raises(MTPCError, match=r"^--offline does not support --engine sglang: .* behind its server only\.$"):
        find_engine("sglang", offline=True)


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_that_is_not_installed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_registry, "find_spec", lambda _: None)
    with pytest.raises(MTPCError, match=f"is not installed here.*make_env.sh {name}"):
        must_be_installed(find_engine(name))
