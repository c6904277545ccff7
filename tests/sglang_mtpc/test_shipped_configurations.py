"""SGLang's own parser, and our check in it, take every configuration and example that ships: on a CPU and on GPUs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from sglang.srt.arg_groups import memory_hook
from sglang.srt.arg_groups.overrides import resolving_view
from sglang.srt.runtime_context import override_platform
from sglang.srt.server_args import ServerArgs, prepare_server_args
from transformers import LlamaConfig

from sglang_mtpc import served, token_map
from tests.support.example_commands import EXAMPLES, load, recorded

pytestmark = pytest.mark.usefixtures("loaded")
ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "serve_configs" / "sglang").glob("*.yaml"))
CONFIGS += [EXAMPLES / "serve_sglang.sh", EXAMPLES / "offline_sglang.py"]
OVER_RAY = sorted((ROOT / "serve_configs" / "ray" / "sglang").glob("*.yaml"))
CUDA = {"is_cuda": True, "has_flashinfer": True}
# What SGLang asks of a machine, and the attention that it then takes for chains; for trees it takes flashinfer.
MACHINES: dict[str, tuple[dict[str, bool], str]] = {
    "cpu": ({}, "torch_native"),
    "hopper": (CUDA | {"is_hopper_with_cuda_12_3": True}, "fa3"),
    "blackwell": (CUDA | {"is_sm100": True, "is_blackwell": True}, "trtllm_mha"),
    "another GPU": (CUDA, "flashinfer"),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout after `mtpc target smollm2`, but for the target's weights."""
    root = tmp_path_factory.mktemp("root")
    for name in ("weights", "serve_configs"):
        (root / name).symlink_to(ROOT / name)
    LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=8192, architectures=["LlamaForCausalLM"], dtype="bfloat16",
    ).save_pretrained(root / "runs" / "smollm2")  # fmt: skip
    return root


def arguments(file: Path, device: str) -> ServerArgs:
    """Those that a configuration or an example gives, as SGLang's command line or `Engine` makes them."""
    if file.suffix == ".py":
        program = load(file.name)
        return ServerArgs(**program.settings(program.parse([])), device=device)
    words = recorded(file.name)[0][3:] if file.suffix == ".sh" else ["--config", str(file)]
    return prepare_server_args([*words, "--device", device])


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.stem)
def test_it_is_taken(config: Path, machine: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts, attention = MACHINES[machine]
    device = "cuda" if facts else "cpu"
    monkeypatch.chdir(root)
    monkeypatch.setattr(memory_hook, "get_device_memory_capacity", lambda device: 80 << 10)
    with override_platform(**facts):
        given = arguments(config, device)
        given.resolve_once()
        found: Any = resolving_view(given)
    if found.speculative_algorithm is None:
        return
    tree, copies = found.speculative_eagle_topk > 1, token_map.copies(found.speculative_token_map)
    # An example leaves the shape of drafts to us, who are asked later: on Blackwell SGLang then reckons with trees.
    late = config.parent == EXAMPLES and machine == "blackwell"
    assert found.attention_backend == ("flashinfer" if (tree and facts) or late else attention)
    assert found.disable_overlap_schedule == (copies or device == "cpu")
    assert device == "cpu" or found.cuda_graph_config.decode.backend == "full"
    assert found.speculative_use_rejection_sampling == (not tree)

    monkeypatch.setattr(served, "get_spec", lambda: found)
    monkeypatch.setattr(served, "get_device", lambda: SimpleNamespace(device=device))
    monkeypatch.setattr(served, "get_schedule", lambda: found)
    assert served.adapts() == (device == "cpu")


@pytest.mark.parametrize("config", OVER_RAY, ids=lambda config: config.stem)
def test_sglangs_engine_takes_an_application_of_ray(config: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    text = config.read_text().replace("/models/smollm2\n", "runs/smollm2\n").replace("/models", "weights")
    (application,) = yaml.safe_load(text)["applications"]
    for model in application["args"]["llm_configs"]:
        given = ServerArgs(**model["engine_kwargs"], device="cpu")
        given.resolve_once()
        found: Any = resolving_view(given)
        assert found.speculative_algorithm == model["engine_kwargs"]["speculative_algorithm"]
