"""A drafter with an autoregressive part: every wrong setting is one sentence, before any engine process exists."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from safetensors.torch import load_file, save_file

from mtpc.draft_length.cost import StepCost
from mtpc.errors import MTPCError
from sglang_mtpc.token_map import TokenMap, copies, read, vocabulary_values
from tests.sglang_mtpc.resolving import refused, resolved
from tests.support.random_fastmtp import make_vocabulary
from tests.support.random_lora import make_lora
from tests.support.random_models import make_target

pytestmark = pytest.mark.usefixtures("loaded")
VOCAB = 258
PATH = "--speculative-draft-model-path"
BEAM = ("--speculative-eagle-topk", "2", "--speculative-num-steps", "2")


@pytest.fixture(autouse=True)
def kept_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exceptions are shown as they were."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


@pytest.fixture
def copy(fastmtp: Path, tmp_path: Path) -> Path:
    """A drafter checkpoint to break."""
    return shutil.copytree(fastmtp, tmp_path / "drafter")


def test_what_is_left_open_is_completed(target: Path, fastmtp: Path, tmp_path: Path) -> None:
    file = make_vocabulary(tmp_path / "words.json", VOCAB)
    arguments = (PATH, str(fastmtp), "--speculative-token-map", f"{file}?size=20")
    found = resolved(target, *arguments, algorithm="fastmtp")
    assert found.speculative_algorithm == "FASTMTP"
    assert found.speculative_num_steps == 3
    assert found.speculative_eagle_topk == 1
    assert found.speculative_num_draft_tokens == 4
    assert found.speculative_use_rejection_sampling
    assert found.max_running_requests == 48
    longer = resolved(target, PATH, str(fastmtp), "--speculative-num-draft-tokens", "7", algorithm="FASTMTP")
    assert longer.speculative_num_steps == 6


@pytest.mark.parametrize("arguments", [(), ("--speculative-draft-model-quantization", "unquant")], ids=["", "unquant"])
def test_a_quantised_targets_drafter_is_not_quantised(target: Path, fastmtp: Path, arguments: tuple[str, ...]) -> None:
    found = resolved(target, PATH, str(fastmtp), "--quantization", "fp8", *arguments, algorithm="FASTMTP")
    assert found.quantization == "fp8"
    assert found.speculative_draft_model_quantization is None


def test_a_tree(target: Path, fastmtp: Path) -> None:
    arguments = ("--speculative-eagle-topk", "2", "--speculative-num-draft-tokens", "8")
    served = resolved(target, PATH, str(fastmtp), *arguments, algorithm="FASTMTP")
    assert served.speculative_num_steps == 3
    assert served.speculative_eagle_topk == 2
    assert served.speculative_num_draft_tokens == 8
    assert not served.speculative_use_rejection_sampling


def _config(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        values = json.loads((folder / "config.json").read_text())
        change(values)
        (folder / "config.json").write_text(json.dumps(values))

    return apply


def _drop_a_tensor(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.mtp_layers.0.input_proj.weight"]
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (shutil.rmtree, "is not a directory"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is missing"),
        (
            _config(lambda values: values["fastmtp"].update(layer="gpt2")),
            "it is 'gpt2', but should be 'llama', 'qwen2' or 'qwen3'",
        ),
        (_config(lambda values: values.update(head_dim=32)), "head_dim is 32, but 64 was expected"),
        (_drop_a_tensor, "the tensor 'model.mtp_layers.0.input_proj.weight' is missing"),
    ],
    ids=["no directory", "no weights", "unknown layer", "contradiction", "missing tensor"],
)
def test_directories(target: Path, copy: Path, change: Callable[[Path], None], sentence: str) -> None:
    change(copy)
    refused(sentence, target, PATH, str(copy), algorithm="FASTMTP")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--speculative-num-steps", "0"), "--speculative-num-steps is 0"),
        (("--speculative-num-steps", "1000000000"), "must be a whole number from 1 to 256"),
        ((*BEAM, "--speculative-num-draft-tokens", "1000000000"), "a tree has at most 4096 nodes"),
        (("--speculative-num-draft-tokens", "1"), "--speculative-num-draft-tokens less 1 is 0"),
        (("--speculative-num-steps", "2", "--speculative-num-draft-tokens", "5"), "verified as 3 tokens"),
        (("--speculative-eagle-topk", "2"), "--speculative-num-draft-tokens is None"),
        ((*BEAM, "--speculative-num-draft-tokens", "8"), "a draft tree of 7 nodes does not fit"),
        ((*BEAM, "--speculative-num-draft-tokens", "7", "--speculative-use-rejection-sampling"), "is for chains"),
        (
            ("--tp-size", "4"),
            "has 2 attention heads, 1 key-value heads and an intermediate_size of 128",
        ),
        (("--tp-size", "0"), "--tp-size is 0, but it must be at least 1"),
        (("--tp-size", "-2"), "--tp-size is -2"),
        (("--max-running-requests", "0"), "--max-running-requests is 0"),
        (("--speculative-draft-window-size", "64"), "must be left out"),
        (("--pp-size", "2"), "--pp-size is 2"),
        (("--speculative-token-map", "gone.json"), "gone.json is missing"),
        (("--speculative-token-map", "?size=5"), "need a file of rankings"),
        (("--speculative-token-map", "a.json?size=many"), "--speculative-token-map is wrong at 'size'"),
        (("--speculative-token-map", "a.json?colour=red"), "--speculative-token-map is wrong at 'colour'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_settings(target: Path, fastmtp: Path, arguments: tuple[str, ...], sentence: str) -> None:
    refused(sentence, target, PATH, str(fastmtp), *arguments, algorithm="FASTMTP")


def test_lora_layers_on_ranks_that_share_a_key_value_head(target: Path, tmp_path: Path) -> None:
    drafter = make_lora(tmp_path / "drafter", target)
    assert resolved(target, PATH, str(drafter)).tp_size == 1
    refused("--tp-size that divides its 1 key-value heads", target, PATH, str(drafter), "--tp-size", "2")


def test_lora_layers_of_an_mlp_that_sglang_pads(tmp_path: Path) -> None:
    for name, size, ranks, multiple in (("one", 80, 1, 32), ("two", 96, 2, 64)):
        target = make_target(tmp_path / name, mlp_size=size, kv_heads=2)
        drafter = make_lora(tmp_path / f"{name} drafter", target)
        sentence = f"with --tp-size {ranks} its intermediate_size of {size} must be a multiple of {multiple}"
        refused(sentence, target, PATH, str(drafter), "--tp-size", str(ranks))
        only_attention(drafter)
        assert resolved(target, PATH, str(drafter), "--tp-size", str(ranks)).tp_size == ranks


def only_attention(drafter: Path) -> None:
    """Remove all adapters but those of the queries and values."""
    modules = ["q_proj", "v_proj"]
    for name, section in (("config.json", ("mtpc", "lora")), ("adapter_config.json", ())):
        values = found = json.loads((drafter / name).read_text())
        for key in section:
            found = found[key]
        found["modules" if section else "target_modules"] = modules
        (drafter / name).write_text(json.dumps(values))
    weights = drafter / "adapter_model.safetensors"
    kept = {name: each for name, each in load_file(weights).items() if any(f".{module}." in name for module in modules)}
    save_file(kept, weights)


def test_a_vocabulary_of_another_target(target: Path, fastmtp: Path, tmp_path: Path) -> None:
    file = make_vocabulary(tmp_path / "words.json", 300)
    refused("ranks a vocabulary of 300", target, PATH, str(fastmtp), "--speculative-token-map", str(file),
            algorithm="FASTMTP")  # fmt: skip


def test_the_drafters_own_vocabulary(target: Path, copy: Path) -> None:
    folder, token_map = (PATH, str(copy)), "--speculative-token-map"
    make_vocabulary(copy / "vocabulary.json", 300)
    refused("ranks a vocabulary of 300", target, *folder, algorithm="FASTMTP")  # it is used
    make_vocabulary(copy / "vocabulary.json", VOCAB)
    assert resolved(target, *folder, algorithm="FASTMTP").speculative_token_map is None
    refused("258 tokens, not 300", target, *folder, token_map, "?size=300", algorithm="FASTMTP")
    for given in ("?size=40", "?language=none"):
        assert resolved(target, *folder, token_map, given, algorithm="FASTMTP").speculative_token_map == given


@pytest.mark.parametrize("algorithm", ["MTPC", "EAGLE"])
def test_another_algorithm(target: Path, fastmtp: Path, algorithm: str) -> None:
    refused(f"must be FASTMTP, not {algorithm}", target, PATH, str(fastmtp), algorithm=algorithm)


def test_an_mtpc_drafter(target: Path, drafter: Path) -> None:
    refused("is an MTPC drafter: --speculative-algorithm must be MTPC, not FASTMTP", target, PATH, str(drafter),
            algorithm="FASTMTP")  # fmt: skip
    refused("FASTMTP needs --speculative-draft-model-path", target, algorithm="FASTMTP")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {}),
        ("", {}),
        ("freq.pt", {"vocabulary": "freq.pt"}),
        ("a/b.json?size=8192&language=auto", {"vocabulary": "a/b.json", "size": 8192, "language": "auto"}),
        ("?language=none", {"language": "none"}),
        ("a.json?", {"vocabulary": "a.json"}),
    ],
)
def test_a_token_map(given: str | None, expected: dict[str, Any]) -> None:
    assert vocabulary_values(given) == expected


def test_a_token_map_without_its_question_mark() -> None:
    for text in ("copy=true", "a/size=8", "copy=true&size=8"):
        with pytest.raises(MTPCError, match="settings follow a question mark: write"):
            read(text)
    for file in ("copied=1/words.json", "a/vocabulary", "size=8/words.json"):
        assert read(file).vocabulary == file


def test_a_token_map_that_says_whether_drafts_are_copied() -> None:
    assert vocabulary_values("a.json?size=8&copy=true") == {"vocabulary": "a.json", "size": 8}
    assert copies("a.json?size=8&copy=true")
    assert not copies("?copy=false")
    assert not copies(None)


def test_copying(target: Path, fastmtp: Path, tmp_path: Path) -> None:
    file = make_vocabulary(tmp_path / "words.json", VOCAB)
    copies = (PATH, str(fastmtp), "--speculative-token-map", f"{file}?size=20&copy=true")
    synchronous = (*copies, "--disable-overlap-schedule")
    assert resolved(target, *synchronous, algorithm="FASTMTP").speculative_num_draft_tokens == 4
    longer = resolved(target, *synchronous, "--speculative-num-steps", "9", algorithm="FASTMTP")
    assert longer.speculative_num_draft_tokens == 10
    assert resolved(target, *copies, algorithm="FASTMTP").disable_overlap_schedule  # on a CPU
    whole = (*copies[:-1], f"{copies[-1]}&adaptive=false")
    refused("requires --disable-overlap-schedule", target, *whole, algorithm="FASTMTP")
    tree = (*BEAM, "--speculative-num-draft-tokens", "4")
    refused("but with prompt lookup it must be 1", target, *synchronous, *tree, algorithm="FASTMTP")


def test_adaptive_draft_lengths(target: Path, fastmtp: Path) -> None:
    given = (PATH, str(fastmtp), "--disable-overlap-schedule", "--speculative-token-map")
    cost = '{"verifying":[[2,1.0],[64,3.0]]}'
    found = resolved(target, *given, f"?copy=true&step_cost={cost}", algorithm="FASTMTP")
    assert read(found.speculative_token_map).step_cost == StepCost(verifying=((2, 1.0), (64, 3.0)))
    assert resolved(target, *given, "?step_cost={}", algorithm="FASTMTP").disable_overlap_schedule
    overlaps = (PATH, str(fastmtp), "--speculative-token-map", "?adaptive=false")
    assert not resolved(target, *overlaps, algorithm="FASTMTP").disable_overlap_schedule
    refused("'step_cost.plain'", target, *given, '?copy=true&step_cost={"plain":[]}', algorithm="FASTMTP")


def test_lengths_that_sglang_adapts(target: Path, fastmtp: Path, tmp_path: Path) -> None:
    file = tmp_path / "steps.json"
    given = (PATH, str(fastmtp), "--speculative-adaptive", "--speculative-adaptive-config", str(file))
    file.write_text('{"1": {"candidate_steps": [1, 4, 2]}, "32": {"candidate_steps": [0]}}')
    found = resolved(target, *given, algorithm="FASTMTP")
    assert found.speculative_adaptive
    assert (found.speculative_num_steps, found.speculative_num_draft_tokens) == (4, 5)
    for text in ("[]", "{", '{"1": 3}', '{"1": {"candidate_steps": []}}', '{"1": {"candidate_steps": [-1]}}'):
        file.write_text(text)
        refused("steps.json, which cannot be used", target, *given, algorithm="FASTMTP")
    file.write_text('{"1": {"candidate_steps": [0]}}')
    refused("The largest of candidate_steps (--speculative-adaptive-config) is 0", target, *given, algorithm="FASTMTP")


KEYS = sorted(field.alias or name for name, field in TokenMap.model_fields.items() if name != "vocabulary")
TEXTS = ("", "x", "5", "0", "-1", "1.5", "1e3", "NaN", "true", "yes", "null ", "[]", "{}", '"x"', "9" * 30, "9" * 5000)
RIGHT = {
    "size": ("5", "null "),
    "borrow": ("5", "0"),
    "copy": ("true", "null "),
    "copy_tokens": ("5", "null "),
    "adaptive": ("true",),
    "step_cost": ("{}", "null "),
    "language": ("x", "yes", "null ", '"x"', "9" * 5000),
}
WRONG = [f"a.json?{quote_plus(key)}={quote_plus(text)}" for key in KEYS for text in TEXTS if text not in RIGHT[key]]
NO_QUERY = ["a.json?size", "a.json?size=1&size=2", "?vocabulary=a.json", "a.json?size=1&&", "?size=" + "[" * 10**5]


@pytest.mark.parametrize("given", [*WRONG, *NO_QUERY, "?colour=red", "?copy_=true"], ids=lambda given: given[:32])
def test_what_is_no_token_map(given: str) -> None:
    with pytest.raises(MTPCError, match="--speculative-token-map is") as caught:
        vocabulary_values(given)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("given", ["nul\0", "/dev/null", "."], ids=repr)
def test_paths_that_are_no_file(target: Path, fastmtp: Path, given: str) -> None:
    refused("", target, PATH, str(fastmtp), "--speculative-token-map", given, algorithm="FASTMTP")


def test_a_drafter_is_no_target(fastmtp: Path) -> None:
    refused("is a FastMTP drafter, but a target was expected", fastmtp, algorithm="FASTMTP")
