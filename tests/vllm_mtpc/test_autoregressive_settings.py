"""Every wrong setting of a drafter with an autoregressive part is one sentence, before any engine exists."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import vllm.config
from safetensors.torch import load_file, save_file
from vllm.config.watermarking import WatermarkConfig
from vllm.engine.arg_utils import EngineArgs

from mtpc.errors import MTPCError
from mtpc.methods import method_of
from tests.support.random_fastmtp import make_vocabulary
from tests.support.random_gumiho import make_gumiho
from tests.vllm_mtpc.platforms import on_a_gpu
from vllm_mtpc import integration_points
from vllm_mtpc.additional_config import v1_uses_prompt_lookup, v2_uses_prompt_lookup, vocabulary_values
from vllm_mtpc.settings import check_complete, check_settings

VOCAB = 258
COST = {"plain": [[1, 1.0]], "verifying": [[1, 1.0]], "drafting": [[1, 0.1]]}


def engine_config(target: Path, drafter: Path, additional: dict[str, Any], ranks: int = 1, **settings: Any) -> Any:
    """What every way of starting vLLM builds first."""
    speculative = {"method": "eagle", "model": str(drafter), "num_speculative_tokens": 3} | settings
    arguments = EngineArgs(
        model=str(target),
        max_model_len=256,
        speculative_config=speculative,
        additional_config=additional,
        tensor_parallel_size=ranks,
    )
    return arguments.create_engine_config()


@pytest.fixture
def copy(fastmtp: Path, tmp_path: Path) -> Path:
    """A drafter checkpoint to break."""
    shutil.copytree(fastmtp, tmp_path / "drafter")
    return tmp_path / "drafter"


def refused(target: Path, drafter: Path, additional: dict[str, Any] | None = None, **settings: Any) -> str:
    """The sentence."""
    with pytest.raises(MTPCError) as caught:
        engine_config(target, drafter, additional or {}, **settings)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


@pytest.mark.parametrize("method", ["greedy", "probabilistic"])
def test_good_settings_pass(target: Path, fastmtp: Path, tmp_path: Path, method: str) -> None:
    file = make_vocabulary(tmp_path / "words.json", VOCAB)
    additional = {"mtpc": {"vocabulary": str(file), "size": 20}}
    config = engine_config(target, fastmtp, additional, draft_sample_method=method, num_speculative_tokens=5)
    assert config.speculative_config.draft_model_config.architectures == ["EagleFastMTPForCausalLM"]
    assert config.speculative_config.use_eagle()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_speculative_tokens": 0}, "must be a whole number from 1 to 256"),
        ({"num_speculative_tokens": 10**9}, "must be a whole number from 1 to 256"),
        ({"num_speculative_tokens": 10**30}, "must be a whole number from 1 to 256"),
        ({"num_speculative_tokens": None}, "num_speculative_tokens is missing"),
        ({"method": "mtp"}, "is a FastMTP drafter: its method must be 'eagle', not 'mtp'"),
        ({"draft_sample_method": "beam"}, "draft_sample_method must be one of"),
        ({"parallel_drafting": True}, "parallel_drafting is True"),
        ({"quantization": "fp8"}, "quantization is 'fp8'"),
        ({"disable_padded_drafter_batch": True}, "disable_padded_drafter_batch is True"),
        ({"rejection_sample_method": "block"}, "rejection_sample_method is 'block', which is not lossless"),
        ({"rejection_sample_method": "fly"}, "is 'fly', which is not known to be lossless: use 'standard'"),
        ({"rejection_sample_method": "synthetic"}, "is 'synthetic', which vLLM supports on GPUs only: use 'standard'"),
        ({"num_speculative_token": 5}, "no key 'num_speculative_token'; did you mean num_speculative_tokens"),
    ],
)
def test_wrong_settings(target: Path, fastmtp: Path, settings: dict[str, Any], message: str) -> None:
    assert message in refused(target, fastmtp, **settings)


@pytest.mark.parametrize("kind", ["drafter", "fastmtp", "gumiho"])
def test_draft_tokens_have_the_watermark_or_the_user_renounces_it(
    kind: str, target: Path, drafter: Path, fastmtp: Path, tmp_path: Path
) -> None:
    """Those of a parallel part have none."""
    folders = {"drafter": drafter, "fastmtp": fastmtp}
    gumiho = {"num_hidden_layers": 2, "normed": False}
    folder = folders.get(kind) or make_gumiho(tmp_path / kind, target, {"positions": 2, "blocks": 1}, **gumiho)
    config = engine_config(target, folder, {}, draft_sample_method="probabilistic")
    config.watermark_config = WatermarkConfig(key=1, algorithm="dual_key_gumbel")
    if kind == "fastmtp":
        check_complete(config)
        return
    with pytest.raises(
        MTPCError, match=r'does not mark all draft tokens of .*: add "allow_target_only_watermarking": true'
    ):
        check_complete(config)
    config.watermark_config.allow_target_only_watermarking = True
    check_complete(config)


def test_prompts_of_embeddings_need_model_runner_v2(target: Path, fastmtp: Path) -> None:
    config = engine_config(target, fastmtp, {})
    config.model_config.enable_prompt_embeds = True
    with pytest.raises(MTPCError, match=r"--enable-prompt-embeds does not fit drafters on vLLM's V1"):
        check_complete(config)


@pytest.mark.parametrize("copies", [False, True])
def test_batches_without_an_autoregressive_part_are_padded(target: Path, drafter: Path, copies: bool) -> None:
    message = refused(target, drafter, {"mtpc": {"copy": copies}}, disable_padded_drafter_batch=True)
    assert "disable_padded_drafter_batch is True, but with this drafter it must be False" in message


@pytest.mark.parametrize("kind", ["drafter", "fastmtp"])
def test_a_quantized_copy_of_the_head(
    kind: str, target: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """A key of vLLM 0.33."""
    more = [("draft_lm_head_quantization", Any, None)]
    made = dataclasses.make_dataclass("Newer", more, bases=(vllm.config.SpeculativeConfig,))
    monkeypatch.setattr(vllm.config, "SpeculativeConfig", made)
    message = refused(target, request.getfixturevalue(kind), {}, draft_lm_head_quantization="fp8")
    assert "draft_lm_head_quantization is 'fp8', but with this drafter it must be None" in message


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"sizes": 20},
            "wrong at 'mtpc.sizes': unknown key 'sizes'; the keys are vocabulary, size",
        ),
        ({"copy": "yes"}, "additional-config is wrong at 'mtpc.copy': it is 'yes', but should be true or false"),
        ({"size": 20}, "need a file of rankings"),
        ({"vocabulary": "gone.json"}, "gone.json is missing"),
        ({"vocabulary": "words.json", "size": 9999}, "must be 1 to 258 tokens, not 9999"),
        ({"vocabulary": "words.json", "language": "german"}, "unknown language 'german'"),
        ({"vocabulary": "other.json"}, "ranks a vocabulary of 300 tokens, but the target's has 258"),
        ("words.json", "additional-config is wrong at 'mtpc'"),
        ({"copy": "yes"}, "additional-config is wrong at 'mtpc.copy'"),
    ],
)
def test_a_wrong_draft_vocabulary(
    target: Path, fastmtp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: Any, message: str
) -> None:
    make_vocabulary(tmp_path / "words.json", VOCAB)
    make_vocabulary(tmp_path / "other.json", 300)
    monkeypatch.chdir(tmp_path)
    assert message in refused(target, fastmtp, {"mtpc": values})


@pytest.mark.parametrize("drafting", ["", "target", "fastmtp"])
@pytest.mark.parametrize("target_is", ["fastmtp", "drafter"])
def test_a_drafter_is_no_target(target_is: str, drafting: str, request: pytest.FixtureRequest) -> None:
    """Whatever is to draft: vLLM would say that it finds no tokenizer."""
    model, drafter = (str(request.getfixturevalue(name)) if name else None for name in (target_is, drafting))
    speculative = {"method": "eagle", "model": drafter, "num_speculative_tokens": 3} if drafter else None
    with pytest.raises(MTPCError, match=f"^--model {model} is an? .* drafter, but a target was expected"):
        EngineArgs(model, speculative_config=speculative).create_engine_config()


def test_the_drafters_own_vocabulary_is_checked_unless_switched_off(target: Path, copy: Path) -> None:
    make_vocabulary(copy / "vocabulary.json", VOCAB)
    assert "not 1000" in refused(target, copy, {"mtpc": {"size": 1000}})
    engine_config(target, copy, {"mtpc": {"size": 40}})
    engine_config(target, copy, {"mtpc": {"language": "none"}})


def test_copying_makes_drafts_longer_than_the_drafters_own(target: Path, drafter: Path) -> None:
    longer = {"num_speculative_tokens": 12}
    config = engine_config(target, drafter, {"mtpc": {"copy": True}}, **longer)
    assert config.speculative_config.num_speculative_tokens == 12
    assert "from 1 to 7" in refused(target, drafter, {"mtpc": {"copy": False}}, **longer)
    assert "from 1 to 256" in refused(target, drafter, {"mtpc": {"copy": True}}, num_speculative_tokens=0)
    assert "requires a drafter that drafts through the target's output head" in refused(
        target, drafter, {"mtpc": {"copy": True, "size": 40}}
    )


def test_what_vllm_decides_itself_is_checked_before_an_engine_starts(
    target: Path, fastmtp: Path, drafter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_gpu(monkeypatch)  # vLLM lets no steps overlap on a CPU
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")
    for folder in (fastmtp, drafter):
        assert "requires --no-async-scheduling" in refused(target, folder, {"mtpc": {"copy": True}})
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER")
    assert "mtpc.store requires the V1 model runner" in refused(target, fastmtp, {"mtpc": {"copy": True, "store": 5}})


def test_the_v1_runner_copies_where_steps_do_not_overlap(fastmtp: Path) -> None:
    own = method_of(fastmtp).read_config(fastmtp).own_drafts
    assert v1_uses_prompt_lookup({"mtpc": {"copy": True}}, own, async_scheduling=False, on_cpu=False)
    assert not v1_uses_prompt_lookup({}, own, async_scheduling=True, on_cpu=False)
    for key, value in (("copy", True), ("step_cost", {})):
        with pytest.raises(MTPCError, match=rf"^additional-config mtpc.{key} requires --no-async-scheduling on the V1"):
            v1_uses_prompt_lookup({"mtpc": {key: value}}, own, async_scheduling=True, on_cpu=False)


def test_the_v1_runner_has_drafts_of_any_length_on_a_cpu_and_with_copying(fastmtp: Path) -> None:
    own = method_of(fastmtp).read_config(fastmtp).own_drafts
    for key, value in (("adaptive", True), ("step_cost", {})):
        assert not v1_uses_prompt_lookup({"mtpc": {key: value}}, own, async_scheduling=False, on_cpu=True)
        assert v1_uses_prompt_lookup({"mtpc": {key: value, "copy": True}}, own, async_scheduling=False, on_cpu=False)
        with pytest.raises(MTPCError, match=rf"^additional-config mtpc.{key} requires drafts of variable length"):
            v1_uses_prompt_lookup({"mtpc": {key: value}}, own, async_scheduling=False, on_cpu=False)
    assert not v1_uses_prompt_lookup({"mtpc": {"adaptive": False}}, own, async_scheduling=False, on_cpu=False)


@pytest.mark.parametrize(
    ("drafts", "values", "message"),
    [
        (8, {}, "num_speculative_tokens is 8, but {} drafts 7 tokens: only the V1 model runner"),
        (7, {"step_cost": COST}, "additional-config mtpc.step_cost requires the V1 model runner"),
        (7, {"adaptive": True}, "additional-config mtpc.adaptive requires the V1 model runner"),
        (7, {"adaptive": False}, ""),
        (7, {}, ""),
    ],
)
def test_model_runner_v2_copies_no_more_than_the_drafter_drafts(
    target: Path, drafter: Path, monkeypatch: pytest.MonkeyPatch, drafts: int, values: dict[str, Any], message: str
) -> None:
    additional = {"mtpc": {"copy": True} | values}
    monkeypatch.setattr(integration_points, "runners", lambda: {integration_points.V1, integration_points.V2})
    engine_config(target, drafter, additional, num_speculative_tokens=drafts)  # vLLM is still to choose
    own = method_of(drafter).read_config(drafter).own_drafts
    monkeypatch.setattr(integration_points, "runners", lambda: {integration_points.V2})
    if not message:
        engine_config(target, drafter, additional, num_speculative_tokens=drafts)
        assert v2_uses_prompt_lookup(additional, own, drafts, drafter)
        return
    assert message.format(drafter) in refused(target, drafter, additional, num_speculative_tokens=drafts)
    with pytest.raises(MTPCError, match="VLLM_USE_V2_MODEL_RUNNER=0"):  # so is it where the runner has been chosen
        v2_uses_prompt_lookup(additional, own, drafts, drafter)
    assert not v2_uses_prompt_lookup({}, own, drafts, drafter)


def test_a_draft_vocabulary_is_no_setting_of_a_drafter_with_leaves_of_its_own(target: Path, drafter: Path) -> None:
    assert "requires a drafter that drafts through the target's output head" in refused(
        target, drafter, {"mtpc": {"size": 40}}
    )


def change_config(**values: Any) -> Callable[[Path], None]:
    """Change keys in the drafter's own section, and the same keys outside of it where they exist."""

    def change(folder: Path) -> None:
        file = folder / "config.json"
        found = json.loads(file.read_text())
        found |= {key: value for key, value in values.items() if key in found}
        found["fastmtp"] |= values
        file.write_text(json.dumps(found))

    return change


def drop_tensor(folder: Path) -> None:
    """One of the layer's."""
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.mtp_layers.0.input_proj.weight"]
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is missing"),
        (drop_tensor, "the tensor 'model.mtp_layers.0.input_proj.weight' is missing"),
        (change_config(windows=8), "unknown key 'windows'"),
        (change_config(vocab_size=300), "with vocab_size 300, but the target has 258"),
        (change_config(num_key_value_heads=2), "has shape"),
    ],
)
def test_a_wrong_directory(target: Path, copy: Path, change: Callable[[Path], None], message: str) -> None:
    change(copy)
    assert message in refused(target, copy)


def test_pipeline_stages_are_refused(target: Path, fastmtp: Path, drafter: Path) -> None:
    config = engine_config(target, fastmtp, {}).model_config
    for folder in (fastmtp, drafter):
        settings = {"method": "eagle", "model": str(folder), "num_speculative_tokens": 3}
        with pytest.raises(MTPCError, match="pipeline_parallel_size must be 1"):
            check_settings(settings, config, {}, pipeline_stages=2)


def test_ranks_share_the_layer(target: Path, fastmtp: Path) -> None:
    config = engine_config(target, fastmtp, {}, ranks=2)
    assert config.speculative_config.draft_parallel_config.tensor_parallel_size == 2


@pytest.mark.parametrize(
    ("ranks", "settings", "message"),
    [
        (
            4,
            {},
            "has 2 attention heads, 1 key-value heads and an intermediate_size of 128, which 4 tensor-parallel ranks",
        ),
        (3, {}, "3 tensor-parallel ranks cannot split evenly"),
        (2, {"draft_tensor_parallel_size": 1}, "draft_tensor_parallel_size is 1, but"),
    ],
)
def test_ranks_that_cannot_share_the_layer(
    target: Path, fastmtp: Path, ranks: int, settings: dict[str, Any], message: str
) -> None:
    assert message in refused(target, fastmtp, ranks=ranks, **settings)


def test_other_additional_settings_are_none_of_our_business() -> None:
    assert vocabulary_values({"gdn_prefill_backend": "x"}) == {}
    assert vocabulary_values(None) == {}
