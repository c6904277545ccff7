"""The applications for Ray Serve are what Ray's LLM serving and vLLM take, and name what ships."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from mtpc.methods import method_of
from tests.test_shipped import ROOT, Served, read

llm = pytest.importorskip("ray.serve.llm", reason="the environment of vLLM's tests brings Ray")
CONFIGS = sorted((ROOT / "serve_configs" / "ray").glob("*.yaml"))
pytestmark = pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.stem)


def models(config: Path) -> list[dict[str, Any]]:
    """What is served, in Ray's words, from the folders of this repository."""
    application = yaml.safe_load(config.read_text().replace("/models", "weights"))["applications"][0]
    assert application["import_path"] == "ray.serve.llm:build_openai_app"
    return list(application["args"]["llm_configs"])


def test_ray_takes_every_setting(config: Path) -> None:
    for model in models(config):
        read_as = llm.LLMConfig.model_validate(model)
        assert read_as.deployment_config == model["deployment_config"]
        if not model["deployment_config"].get("num_replicas"):
            assert read_as.deployment_config["autoscaling_config"]["target_ongoing_requests"] < 64


def test_vllm_takes_every_argument(config: Path) -> None:
    engine_args = pytest.importorskip("vllm.engine.arg_utils").EngineArgs
    known = {field.name for field in dataclasses.fields(engine_args)}
    for model in models(config):
        assert set(model["engine_kwargs"]) <= known


def test_it_serves_what_vllm_alone_serves(config: Path) -> None:
    alone = read(ROOT / "serve_configs" / "vllm" / config.name)
    drafted = [model for model in models(config) if model["engine_kwargs"].get("speculative_config")]
    assert drafted
    for model in drafted:
        speculative, kwargs = model["engine_kwargs"]["speculative_config"], model["engine_kwargs"]
        source = model["model_loading_config"]["model_source"].replace("weights/smollm2", "runs/smollm2")
        served = Served(source, kwargs["max_model_len"], speculative["model"], speculative["num_speculative_tokens"])
        assert served == alone
        assert method_of(ROOT / speculative["model"])
