"""The applications for Ray Serve are what Ray's LLM serving and vLLM take, and name what ships.

What SGLang takes is in `tests/sglang_mtpc/test_shipped_configurations.py`.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from mtpc.methods import method_of
from tests.test_shipped import ROOT, Served, read

llm = pytest.importorskip("ray.serve.llm", reason="the environment of vLLM's tests brings Ray")
FOLDER = ROOT / "serve_configs" / "ray"
CONFIGS = sorted(FOLDER.rglob("*.yaml"))
OF_VLLM = sorted(FOLDER.glob("*.yaml"))
each = pytest.mark.parametrize("config", CONFIGS, ids=lambda config: f"{config.parent.name}/{config.stem}")


def models(config: Path) -> list[dict[str, Any]]:
    """What is served, in Ray's words, from the folders of this repository."""
    application = yaml.safe_load(config.read_text().replace("/models", "weights"))["applications"][0]
    assert application["import_path"] == "ray.serve.llm:build_openai_app"
    return list(application["args"]["llm_configs"])


@each
def test_ray_takes_every_setting(config: Path) -> None:
    for model in models(config):
        read_as = llm.LLMConfig.model_validate(model)
        assert read_as.deployment_config == model["deployment_config"]
        if not model["deployment_config"].get("num_replicas"):
            assert read_as.deployment_config["autoscaling_config"]["target_ongoing_requests"] < 64


@pytest.mark.parametrize("config", OF_VLLM, ids=lambda config: config.stem)
def test_vllm_takes_every_argument(config: Path) -> None:
    engine_args = pytest.importorskip("vllm.engine.arg_utils").EngineArgs
    known = {field.name for field in dataclasses.fields(engine_args)}
    for model in models(config):
        assert set(model["engine_kwargs"]) <= known


def served_by(model: dict[str, Any]) -> Served:
    """What one model of an application serves, in either engine's words."""
    kwargs = model["engine_kwargs"]
    source = model["model_loading_config"]["model_source"].replace("weights/smollm2", "runs/smollm2")
    if "server_cls" not in model:
        speculative = kwargs["speculative_config"] or {}
        drafter, drafts = speculative.get("model"), speculative.get("num_speculative_tokens")
        return Served(source, kwargs["max_model_len"], drafter, drafts)
    assert kwargs["model_path"] == model["model_loading_config"]["model_source"]
    drafter, drafts = kwargs["speculative_draft_model_path"], kwargs.get("speculative_num_steps")
    assert kwargs["speculative_algorithm"] == (None if drafter is None else method_of(ROOT / drafter).algorithm)
    return Served(source, kwargs["context_length"], drafter, drafts)


@each
def test_it_serves_what_the_engine_alone_serves(config: Path) -> None:
    engine = "vllm" if config in OF_VLLM else "sglang"
    alone = read(ROOT / "serve_configs" / engine / config.name)
    found = [served_by(model) for model in models(config)]
    assert [one for one in found if one.drafter] == [alone]


def test_each_engine_has_the_same_applications() -> None:
    of_sglang = [FOLDER / "sglang" / file.name for file in OF_VLLM]
    assert sorted([*OF_VLLM, *of_sglang]) == CONFIGS
    for files in zip(OF_VLLM, of_sglang, strict=True):
        drafters, others = ({served_by(model).drafter for model in models(file)} for file in files)
        assert {str(one) for one in drafters} == {str(one) for one in others}
