"""Which plugins an engine loads that is measured as it is released."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch

from mtpc.lab.servers import plugins
from mtpc.lab.servers.engine import Engine, ServerSettings
from mtpc.lab.servers.ngram import Ngram
from mtpc.lab.servers.server import Launch
from mtpc.lab.servers.sglang_engine import SGLANG
from mtpc.lab.servers.vllm_engine import VLLM, VLLM_OFFLINE

PLAIN = ServerSettings(Path("target"), max_batch=4, max_length=512)
OURS = {"vllm.general_plugins": ("mtpc", "vllm_mtpc:register"), "sglang.srt.plugins": ("mtpc", "sglang_mtpc:register")}
OTHERS = {
    "vllm.general_plugins": [("resolver", "vllm.plugins.resolver:register")],
    "vllm.platform_plugins": [("npu", "vllm_npu:register")],
    "vllm.endpoint_plugins": [("routes", "vllm_routes:register")],  # loaded only where they are named
    "sglang.srt.platforms": [("npu", "sglang_npu:platform")],
}


def install(monkeypatch: pytest.MonkeyPatch, others: dict[str, list[tuple[str, str]]]) -> None:
    def entry_points(*, group: str) -> list[EntryPoint]:
        found = [*others.get(group, ()), *([OURS[group]] if group in OURS else [])]
        return [EntryPoint(name, value, group) for name, value in found]

    monkeypatch.setattr(plugins, "entry_points", entry_points)


@pytest.mark.parametrize(
    ("engine", "variable", "named"),
    [
        (VLLM, "VLLM_PLUGINS", "npu,resolver"),
        (VLLM_OFFLINE, "VLLM_PLUGINS", "npu,resolver"),
        (SGLANG, "SGLANG_PLUGINS", "npu"),
    ],
    ids=["vllm", "vllm offline", "sglang"],
)
def test_every_plugin_but_ours(engine: Engine, variable: str, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(variable, raising=False)
    install(monkeypatch, OTHERS)
    assert engine.without_plugin() == {variable: named}
    install(monkeypatch, {})
    assert engine.without_plugin() == {variable: plugins.NO_PLUGIN}  # not empty, which stands for all in SGLang
    monkeypatch.setenv(variable, "mtpc, chosen")
    assert engine.without_plugin() == {variable: "chosen"}


def test_the_plugin_as_it_is_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    found = {plugin.name: plugin.value for plugin in plugins.entry_points(group="vllm.general_plugins")}
    assert found["mtpc"] == "vllm_mtpc:register"
    assert "mtpc" not in VLLM.without_plugin()["VLLM_PLUGINS"].split(",")


@pytest.mark.parametrize("plugin", [True, False])
def test_a_server_is_started_so(plugin: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_PLUGINS", raising=False)
    engine = Engine(
        "fake",
        "Fake",
        lambda settings, port: ["bash", "-c", "echo plugins: $SOME_PLUGINS"],
        without_plugin=lambda: {"SOME_PLUGINS": "others"},
    )
    launch = Launch(engine, ServerSettings(Path("target"), 4, 512, plugin=plugin), tmp_path / "log")
    launch.process.wait(60)
    assert (tmp_path / "log").read_text().strip() == ("plugins:" if plugin else "plugins: others")
    assert launch.server.plugin is plugin


@pytest.mark.parametrize(
    ("engine", "gpu", "temperatures", "needed"),
    [
        (VLLM, False, (0.0,), False),
        (VLLM, False, (0.0, 1.0), True),
        (VLLM_OFFLINE, False, (1.0,), True),
        (VLLM, True, (0.0, 1.0), False),
        (SGLANG, False, (0.0, 1.0), False),
    ],
)
def test_vllms_ngram_drafter_needs_the_plugin_to_sample_on_a_cpu(
    engine: Engine, gpu: bool, temperatures: tuple[float, ...], needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    own = ServerSettings(Path("target"), 4, 512, ngram=Ngram(2, 4, 5))
    assert engine.as_released(own, temperatures).plugin is needed
    assert not engine.as_released(PLAIN, temperatures).plugin
