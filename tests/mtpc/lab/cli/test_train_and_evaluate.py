"""`mtpc train DRAFT_METHOD` and `mtpc evaluate`, whole, on tiny targets: of every draft method that is trained."""

from __future__ import annotations

import json
import shutil
from importlib.metadata import entry_points
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode
from typer.testing import CliRunner, Result

from mtpc.files.target import Target
from mtpc.lab.cli.evaluate import evaluate
from mtpc.lab.cli.main import app
from mtpc.lab.evaluation.evaluate import EvaluationPlan
from mtpc.lab.evaluation.prompts import Prompts, corpus_prompts, heldout_questions
from mtpc.lab.text.byte_tokenizer import save_byte_tokenizer
from mtpc.lab.text.conversations import FILE, read_conversations
from mtpc.lab.text.corpus import Corpus
from mtpc.methods import draft_methods
from mtpc.methods.drafter import load_drafter
from tests.mtpc.lab.corpus_folder import make_corpus
from tests.mtpc.lab.training.conversations import make_conversations
from tests.support.often import each_of
from tests.support.tiny_models import SIZE, VOCAB, make_target


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    return make_target("qwen2")


@pytest.fixture(scope="module")
def folders(model: PreTrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, in bfloat16 as targets come, its conversations and a corpus."""
    folder = tmp_path_factory.mktemp("folders")
    make_target("qwen2").to(torch.bfloat16).save_pretrained(folder / "target")
    (folder / "data").mkdir()
    conversations = make_conversations(model, 130)
    assert {each.kind for each in conversations if each.heldout} == {"chat", "code"}
    (folder / "data" / FILE).write_text("\n".join(each.to_json() for each in conversations) + "\n")
    make_corpus(folder / "corpus", VOCAB, length=2000)
    return folder


def provenance_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "provenance.json").read_text())


FASTMTP = ("--epochs", "2", "--batch", "16", "--learning-rate", "1e-2", "--questions", "2")
CIRCUITS = ("--circuits", "hmm,ff", "--windows", "3", "--rank", "2", "--leaf-features", "8", "--trunk-size", "8")
SHORT = ("--updates", "4", "--texts", "2", "--positions", "8", "--prompts", "3")


@pytest.mark.parametrize("method", each_of(["mtpc", "fastmtp"], ("mtpc",)))
def test_provenance_has_the_figures_that_evaluate_prints(
    folders: Path, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was saved is scored, against the target in float32, by both."""
    monkeypatch.setattr("mtpc.lab.cli.train_and_score.EvaluationPlan", lambda: EvaluationPlan(length=16, loop=1))
    source = {"mtpc": ("--corpus", folders / "corpus"), "fastmtp": ("--data", folders / "data")}[method]
    options = {"mtpc": (*CIRCUITS, *SHORT, "--out", tmp_path), "fastmtp": (*FASTMTP, "--out", tmp_path / "layer")}
    trained = run("train", method, "--target", folders / "target", *source, *options[method])
    assert trained.exit_code == 0, trained.output
    assert trained.stdout.index("written to") < trained.stdout.index("Expected acceptance length")  # saved before
    names = {"mtpc": ("mtpc-hmm-n3", "mtpc-ff-n3"), "fastmtp": ("layer",)}[method]
    count = {"mtpc": "3", "fastmtp": "2"}[method]
    scored = run(
        "evaluate", *(tmp_path / name for name in names), "--target", folders / "target", *source, "--count", count,
        "--length", "16", "--loop", "1", "--out", tmp_path / "r",
    )  # fmt: skip
    assert scored.exit_code == 0, scored.output
    prompts = 3 * sum(map(len, scored_prompts(folders, source[0], int(count)).by_kind.values())) * len(names)
    assert f"{prompts}/{prompts}" in trained.stdout  # temperatures, prompts and drafters
    assert f"{prompts}/{prompts}" in scored.stderr
    results = json.loads((tmp_path / "r").read_text())["results"]
    assert results == {name: provenance_of(tmp_path / name)["heldout_acceptance"] for name in names}
    assert {"all T=1", "all T=0", "all T=1, real loop"} < set(results[names[0]])


def scored_prompts(folders: Path, source: str, count: int) -> Prompts:
    """Those that both commands read."""
    if source == "--corpus":
        return corpus_prompts(Corpus(folders / "corpus"), folders / "target", count)
    return heldout_questions(list(read_conversations(folders / "data")), count)


def test_one_training_compares_circuits_ranks_and_numbers_of_lora_layers(folders: Path, tmp_path: Path) -> None:
    options = ("--circuits", "ff,cp", "--windows", "3", "--rank", "2,3", "--lora-layers", "0,1", *CIRCUITS[-4:])
    source = ("--target", folders / "target", "--corpus", folders / "corpus", "--out", tmp_path)
    trained = run("train", "mtpc", *source, *options, *SHORT[:6], "--prompts", "0")
    assert trained.exit_code == 0, trained.output
    made = {each.name: load_drafter(each, Target(SIZE, VOCAB)).config for each in tmp_path.iterdir()}
    ranks = {"mtpc-ff-n3": 1, "mtpc-cp-n3-r2": 2, "mtpc-cp-n3-r3": 3}
    layers = {"": 0, "-lora1": 1}
    assert {name: config.rank for name, config in made.items()} == {
        name + suffix: rank for name, rank in ranks.items() for suffix in layers
    }
    for name, config in made.items():
        assert (config.lora is not None) == name.endswith("-lora1")


def test_a_byte_circuit_spells_the_tokens_of_its_targets_tokenizer(folders: Path, tmp_path: Path) -> None:
    """Trained and scored as any other; with another tokenizer it is refused."""
    target, given = tmp_path / "target", ("--data", folders / "data")
    shutil.copytree(folders / "target", target)
    characters = sorted(bytes_to_unicode().values())[: VOCAB - 4]
    pieces = [*characters, characters[0] + characters[1], characters[1] + characters[2]]
    merges = [(characters[0], characters[1]), (characters[1], characters[2])]
    save_pieces(target, pieces, merges)
    options = ("--circuits", "ff,cp", "--window", "12", "--rank", "2", "--leaf-features", "8", "--trunk-size", "8")
    short = ("--epochs", "1", "--batch", "32", "--questions", "1")
    trained = run("train", "bytecircuit", "--target", target, *given, "--out", tmp_path, *options, *short)
    assert trained.exit_code == 0, trained.output
    for circuit in ("ff", "cp"):
        assert "all T=0" in provenance_of(tmp_path / f"bytecircuit-{circuit}")["heldout_acceptance"]
    save_pieces(target, pieces[::-1], merges)
    scored = run("evaluate", tmp_path / "bytecircuit-cp", "--target", target, *given)
    assert scored.exit_code == 2
    assert f"bytecircuit-cp was trained for another vocabulary than that of {target}" in scored.stderr


def save_pieces(target: Path, pieces: list[str], merges: list[tuple[str, str]]) -> None:
    """A tokenizer of these pieces, and a special token."""
    made = Tokenizer(models.BPE(vocab={one: number for number, one in enumerate(pieces)}, merges=merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>").save_pretrained(target)


def test_a_training_scores_as_evaluate_does_by_default() -> None:
    defaults = {name: option.default for name, option in signature(evaluate).parameters.items()}
    plan = EvaluationPlan()
    assert (plan.length, plan.loop, plan.seed, plan.num_drafts) == tuple(
        defaults[name] for name in ("length", "loop", "seed", "num_drafts")
    )
    assert plan.temperatures == defaults["temperatures"]


@pytest.mark.thorough
def test_a_layer_is_trained_on_from_another_and_both_are_scored(folders: Path, tmp_path: Path) -> None:
    given = ("--target", folders / "target", "--data", folders / "data")
    trained = run("train", "fastmtp", *given, "--out", tmp_path / "drafter", *FASTMTP[:6], "--questions", "0")
    assert trained.exit_code == 0, trained.output
    assert load_drafter(tmp_path / "drafter", Target(SIZE, VOCAB)).config.num_drafts == 3
    provenance = provenance_of(tmp_path / "drafter")
    assert provenance["training"]["updates"] == 16
    assert len(provenance["training"]["final_losses"]) == 3
    assert "heldout_acceptance" not in provenance

    vanilla = ("--num-drafts", "1", "--start", tmp_path / "drafter", "--questions", "0", *FASTMTP[:4])
    again = run("train", "fastmtp", *given, "--out", tmp_path / "vanilla", *vanilla)
    assert again.exit_code == 0, again.output
    assert load_drafter(tmp_path / "vanilla").config.num_drafts == 1

    both = (tmp_path / "drafter", tmp_path / "vanilla")
    options = ("--num-drafts", "2", "--count", "1", "--length", "20", "--temperatures", "0", "--out", tmp_path / "r")
    scored = run("evaluate", *both, *given, *options, "--markdown")
    assert scored.exit_code == 0, scored.output
    assert "| text, temperature | drafter | vanilla |" in scored.output
    results = json.loads((tmp_path / "r").read_text())["results"]
    assert set(results) == {"drafter", "vanilla"}
    assert set(results["vanilla"]) == {"chat T=0", "code T=0", "all T=0", "all T=0, real loop"}
    assert len(results["vanilla"]["all T=0"]["marginal_acceptance"]) == 2


def test_nothing_held_out(folders: Path, model: PreTrainedModel, tmp_path: Path) -> None:
    few = [each for each in make_conversations(model, 30) if not each.heldout]
    (tmp_path / FILE).write_text("\n".join(each.to_json() for each in few) + "\n")
    given = ("--target", folders / "target", "--data", tmp_path)
    trained = run("train", "fastmtp", *given, "--out", tmp_path / "drafter", *FASTMTP[:4])
    assert trained.exit_code == 0, trained.output
    scored = run("evaluate", tmp_path / "drafter", *given)
    assert scored.exit_code == 2
    assert "there is no held-out text" in scored.stderr


def test_a_corpus_of_bytes_is_for_a_target_of_bytes(folders: Path, tmp_path: Path) -> None:
    """Of another target its bytes would be tokens that mean something else."""
    target, given = tmp_path / "target", ("--corpus", folders / "corpus")
    shutil.copytree(folders / "target", target)
    characters = sorted(bytes_to_unicode().values())
    other = Tokenizer(models.BPE(vocab={one: number for number, one in enumerate(characters)}, merges=[]))
    other.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    PreTrainedTokenizerFast(tokenizer_object=other).save_pretrained(target)
    trained = run("train", "mtpc", "--target", target, *given, *CIRCUITS, *SHORT, "--out", tmp_path)
    scored = run("evaluate", tmp_path, "--target", target, *given)
    for result in (trained, scored):
        assert result.exit_code == 2
        assert f"{target} does not have bytes as tokens" in result.stderr
    without = run("train", "mtpc", "--target", target, "--corpus", tmp_path / "nowhere", "--out", tmp_path)
    assert "pass --data, a folder of conversations that `mtpc distill" in without.stderr
    save_byte_tokenizer(target)
    assert run("train", "mtpc", "--target", target, *given, *CIRCUITS, *SHORT[:-2], "--prompts", "0", "--out",
               tmp_path).exit_code == 0  # fmt: skip


def test_a_training_that_was_stopped_is_not_another(folders: Path, tmp_path: Path) -> None:
    given = ("--target", folders / "target", "--data", folders / "data", "--out", tmp_path / "out", *FASTMTP[:6])
    state = ("--questions", "0", "--resume", tmp_path / "state")
    assert run("train", "fastmtp", *given, *state).exit_code == 0
    first = (tmp_path / "out" / "model.safetensors").read_bytes()
    again = run("train", "fastmtp", *given, *state)  # has nothing left to do, and writes the same
    assert again.exit_code == 0, again.output
    for unknown in ((), ("--resume", tmp_path / "another")):
        refused = run("train", "fastmtp", *given, "--questions", "0", *unknown)
        assert refused.stderr == f"mtpc: {tmp_path / 'out'} already exists; name a folder that is new or empty.\n"
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == first
    other = run("train", "fastmtp", *given, *state, "--beta", "0.5")
    assert other.exit_code == 2
    assert "belongs to another training: its recipe.beta is 0.6, but this training has 0.5" in other.stderr
    (tmp_path / "state").write_bytes(b"")
    damaged = run("train", "fastmtp", *given, *state)
    assert damaged.exit_code == 2
    assert damaged.stderr.splitlines()[-1].startswith(f"mtpc: {tmp_path / 'state'} is damaged")
    assert "Traceback" not in damaged.output


@pytest.mark.parametrize("command", ["train", "convert"])
def test_a_group_lists_the_families_that_have_the_command(command: str) -> None:
    lines = [line for line in run(command, "--help").output.splitlines() if line.startswith("│")]
    for method in draft_methods():
        listed = any(line.strip("│ ").startswith(f"{method.name} ") for line in lines)
        assert listed == (method.name in entry_points(group=f"mtpc.{command}").names)
    assert run(command, "nobody").exit_code == 2
