"""`mtpc convert pair`: what it writes, and each wrong pair of models as one sentence, here and where it is served."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner, Result

from mtpc.errors import MTPCError
from mtpc.files.target import Target
from mtpc.lab.cli.main import app
from mtpc.lab.convert.pair import convert_pair
from mtpc.methods.drafter import load_drafter
from mtpc.methods.pair import Pair, PairConfig
from tests.support.random_models import make_target
from tests.support.random_pair import PADDING, make_draft_model, make_text_target
from tests.support.small_tokenizers import PROMPTS, byte_level, composed, sentence_piece, word_piece


def convert(draft: Path | str, target: Path, out: Path, *more: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(app, ["convert", "pair", str(draft), "--target", str(target), "--out", str(out), *more])


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, a draft model with another tokenizer, one with the same, and a pair of the first two."""
    folder = tmp_path_factory.mktemp("models")
    target = make_text_target(folder / "target", byte_level())
    make_draft_model(folder / "draft", target, sentence_piece())
    make_draft_model(folder / "same", target, byte_level())
    assert convert(folder / "draft", target, folder / "pair").exit_code == 0
    return folder


def test_a_pair_refers_to_its_draft_model(folders: Path, tmp_path: Path) -> None:
    result = convert(folders / "draft", folders / "target", tmp_path / "out", "--num-drafts", "7", "--slots", "3")
    assert result.exit_code == 0, result.output
    config: PairConfig = Pair().read_config(tmp_path / "out")
    assert (config.model, config.revision) == (str(folders / "draft"), None)
    assert (config.hidden_size, config.vocab_size) == (64, len(byte_level()) + PADDING)
    assert (config.num_drafts, config.slots, config.context, config.min_confidence) == (7, 3, 2048, 0.3)
    assert config.translation == "slem"
    shared = json.loads((tmp_path / "out" / "provenance.json").read_text())["overlap"]["common"]
    written, vllm, sglang = result.stdout.splitlines()
    assert f"drafts for target by slem; {shared:,} tokens are in both vocabularies" in written
    served = '"method": "eagle", "model": "{}", "num_speculative_tokens": 7, "draft_sample_method": "probabilistic"'
    assert "{" + served.format(tmp_path / "out") + "}' --no-async-scheduling" in vllm
    assert vllm.startswith(f"VLLM_USE_V2_MODEL_RUNNER=0 vllm serve {folders / 'target'} --speculative-config '")
    draft = f"--speculative-draft-model-path {tmp_path / 'out'} --speculative-num-steps 7"
    assert sglang == (
        f"python -m sglang.launch_server --model-path {folders / 'target'} --speculative-algorithm PAIR {draft}"
    )
    drafter = load_drafter(tmp_path / "out", Target(config.hidden_size, config.vocab_size))
    assert drafter.method.facts(drafter) == {"draft model": config.model, "translation": "slem"}
    inspected = CliRunner().invoke(app, ["inspect", str(tmp_path / "out")])
    assert inspected.exit_code == 0 and "slem" in inspected.stdout


def test_one_tokenizer_for_both_can_be_drafted_by_tokens(folders: Path, tmp_path: Path) -> None:
    assert convert(folders / "same", folders / "target", tmp_path / "out", "--method", "tli").exit_code == 0
    assert Pair().read_config(tmp_path / "out").translation == "tli"
    part = Pair().text(
        tmp_path / "out", Pair().read_config(tmp_path / "out"), str(folders / "target"), torch.device("cpu")
    )
    text = byte_level().encode("The quick brown")
    part.add("text", text.copy, text[-1:])
    assert part.tokenizers.common.tolist()[0] == part.tokenizers.common.tolist()[1]
    assert part.draft(["text"], [0.0], [3], None).tokens[0]
    assert convert(folders / "same", folders / "target", tmp_path / "slem", "--method", "slem").exit_code == 0
    assert Pair().read_config(tmp_path / "slem").translation == "slem"


def test_what_reads_the_text_is_measured_with_a_server(folders: Path) -> None:
    """Neither acceptance along a text nor draft trees: both begin with the target's states."""
    for command, *more in (("evaluate", "--prompts", str(PROMPTS)), ("inspect", "--tree", "x")):
        line = [command, str(folders / "pair"), "--target", str(folders / "target"), *more]
        result = CliRunner().invoke(app, line)
        assert (
            "pair reads the request's text instead of the target's states: use `mtpc bench`."
            in result.stderr.splitlines()[-1]
        )
        assert result.exit_code == 2


def with_config(folder: Path, **values: Any) -> Path:
    """Change keys of config.json; None removes one."""
    file = folder / "config.json"
    kept = {key: value for key, value in (json.loads(file.read_text()) | values).items() if value is not None}
    file.write_text(json.dumps(kept))
    return folder


def without_bytes(folder: Path) -> None:
    """A tokenizer of whole words, which does not tell how they are spaced."""
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "the": 1}, unk_token="[UNK]"))
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)


# What is done to copies of the draft model and of the target.
WRONG_MODELS: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "no folder": (lambda draft, target: shutil.rmtree(draft), "draft is not a model folder (no config.json)."),
    "no tokenizer": (
        lambda draft, target: [file.unlink() for file in draft.glob("tokenizer*")],
        "draft holds no tokenizer that can be loaded: ",
    ),
    "a drafter": (
        lambda draft, target: with_config(draft, mtpc={}),
        "draft is an MTPC drafter, but a draft model was expected.",
    ),
    "a drafter as the target": (
        lambda draft, target: with_config(target, mtpc={}),
        "target is an MTPC drafter, but a target was expected.",
    ),
    "no bytes of tokens": (lambda draft, target: without_bytes(draft), "cannot decode single tokens to bytes."),
    "a target without sizes": (
        lambda draft, target: with_config(target, vocab_size=None),
        "has no hidden_size and vocab_size, the sizes of the target.",
    ),
    "tokens without rows": (
        lambda draft, target: with_config(draft, vocab_size=9),
        "the draft model's tokenizer has 267 tokens, but the model only 9: resize its embedding.",
    ),
    "a target's tokens without rows": (
        lambda draft, target: with_config(target, vocab_size=9),
        "the target's tokenizer has 402 tokens, but the model only 9: resize its embedding.",
    ),
}


def test_no_model_is_overwritten(folders: Path, tmp_path: Path) -> None:
    """Before anything is read, also by the function."""
    out = shutil.copytree(folders / "same", tmp_path / "out")
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    for draft, target in (("draft", folders / "target"), ("nowhere", tmp_path / "nowhere")):
        sentence = sentence_of(convert(folders / draft, target, out))
        assert sentence == f"mtpc: {out} already exists; name a folder that is new or empty."
    with pytest.raises(MTPCError, match="already exists"):
        convert_pair(str(folders / "draft"), folders / "target", out, [1, 2])
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before


def sentence_of(result: Result) -> str:
    """The only line of a command that fails."""
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("mtpc: ") and line.endswith("."), line
    return line


@pytest.mark.parametrize("wrong", WRONG_MODELS)
def test_models_that_are_no_pair(wrong: str, folders: Path, tmp_path: Path) -> None:
    draft, target = (shutil.copytree(folders / name, tmp_path / name) for name in ("draft", "target"))
    change, sentence = WRONG_MODELS[wrong]
    change(draft, target)
    assert sentence in sentence_of(convert(draft, target, tmp_path / "out"))
    assert not (tmp_path / "out" / "config.json").exists()


def test_no_common_token(folders: Path, tmp_path: Path) -> None:
    draft, target = shutil.copytree(folders / "draft", tmp_path / "draft"), make_target(tmp_path / "target")
    word_piece().save_pretrained(draft)
    tokenizer = json.loads((draft / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"] = {"[UNK]": 0, "the": 1, "##re": 2}
    (draft / "tokenizer.json").write_text(json.dumps(tokenizer))
    sentence = sentence_of(convert(draft, target, tmp_path / "out"))
    assert "the two tokenizers have no token in common, so none can draft for the other." in sentence


# What is done to copies of the pair's draft model and of the target after the pair was made.
CHANGED: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "gone": (lambda draft, target: shutil.rmtree(draft), "draft, which is not a folder: run mtpc convert pair again."),
    "another draft vocabulary": (
        lambda draft, target: composed().save_pretrained(draft),
        "was made for another vocabulary than that of the draft model",
    ),
    "another target vocabulary": (
        lambda draft, target: composed().save_pretrained(target),
        "was made for another vocabulary than that of the target",
    ),
    "no weights": (
        lambda draft, target: (draft / "model.safetensors").unlink(),
        "draft cannot be loaded as a draft model: ",
    ),
    "no tokenizer of the target": (
        lambda draft, target: shutil.rmtree(target),
        "target holds no tokenizer that can be loaded: ",
    ),
}


@pytest.mark.parametrize("changed", CHANGED)
def test_models_that_are_no_longer_those_of_the_pair(changed: str, folders: Path, tmp_path: Path) -> None:
    draft, target = (shutil.copytree(folders / name, tmp_path / name) for name in ("draft", "target"))
    out, (change, sentence) = tmp_path / "out", CHANGED[changed]
    assert convert(draft, target, out).exit_code == 0
    change(draft, target)
    with pytest.raises(MTPCError) as caught:
        Pair().text(out, Pair().read_config(out), str(target), torch.device("cpu"))
    message = str(caught.value)
    assert sentence in message
    assert "\n" not in message and message.endswith(".")


def test_a_target_of_another_size(folders: Path) -> None:
    with pytest.raises(MTPCError, match="was trained for a target with vocab_size 405, but the target has 300"):
        load_drafter(folders / "pair", Target(64, 300))
