"""Every configuration and example that ships starts vLLM as it is, on a CPU and with the defaults of a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from transformers import LlamaConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser

from tests.support.example_commands import EXAMPLES, load, recorded
from tests.vllm_mtpc.platforms import on_a_gpu
from vllm_mtpc import register

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "serve_configs").glob("vllm/*.yaml")) + sorted((ROOT / "serve_configs").glob("ray/*.yaml"))
FILES += [EXAMPLES / "serve_vllm.sh", EXAMPLES / "offline_vllm.py"]
V1_ALONE = {"chat-copying-cpu"}  # on a GPU with VLLM_USE_V2_MODEL_RUNNER=0


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders that the files name; of the chat target, which is made from a download, nothing but its shapes."""
    (tmp_path / "weights").symlink_to(ROOT / "weights")
    LlamaConfig(
        architectures=["LlamaForCausalLM"],
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        vocab_size=49152,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        dtype="bfloat16",
    ).save_pretrained(tmp_path / "runs" / "smollm2")
    monkeypatch.chdir(tmp_path)
    register()


def arguments(file: Path) -> Iterator[EngineArgs]:
    """Those of every engine that a file starts, as vLLM's command line, `LLM` or Ray's LLM serving makes them."""
    if file.suffix == ".py":
        program = load(file.name)
        yield EngineArgs(**program.settings(program.parse([])))
        return
    if file.suffix == ".sh" or file.parent.name == "vllm":
        words = recorded(file.name)[0][2:] if file.suffix == ".sh" else ["--config", str(file)]
        parser = ServeSubcommand().subparser_init(FlexibleArgumentParser().add_subparsers())
        parsed = parser.parse_args(words)
        parsed.model = parsed.model_tag or parsed.model  # as `vllm serve` does
        yield EngineArgs.from_cli_args(parsed)
        return
    text = file.read_text().replace("/models/smollm2\n", "runs/smollm2\n").replace("/models", "weights")
    (application,) = yaml.safe_load(text)["applications"]
    for served in application["args"]["llm_configs"]:
        yield EngineArgs(model=served["model_loading_config"]["model_source"], **served["engine_kwargs"])


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_it_is_accepted_to_the_end(file: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    v2 = device == "gpu" and file.stem not in V1_ALONE
    if device == "gpu":
        on_a_gpu(monkeypatch)
    if device == "gpu" and not v2:
        monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")
    for engine in arguments(file):
        config = engine.create_engine_config()
        assert config.use_v2_model_runner == v2
        assert config.scheduler_config.async_scheduling == v2
