"""SGLang's own drafters with a token map of ours: what is refused, which worker serves, and from which logits."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from mtpc.errors import MTPCError
from mtpc.target_head.rows import SINGLE_RANK
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from sglang_mtpc.native_settings import check_native, choose_worker
from tests.sglang_mtpc.resolving import refused, resolved, server_args_of
from tests.support.random_fastmtp import make_vocabulary
from tests.support.random_native import make_eagle

pytestmark = pytest.mark.usefixtures("loaded")
VOCAB = 258
CHAIN = ("--speculative-num-steps", "3", "--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4")
RANKINGS = Rankings(6, {"low": Ranking((0, 1, 2)), "high": Ranking((3, 4, 5))})
VOCABULARIES = DraftVocabularies(RANKINGS, VocabularySettings(size=3))


@pytest.fixture(autouse=True)
def kept_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exceptions are shown as they were."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


@pytest.fixture(scope="module")
def layer(target: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The arguments for an EAGLE layer of SGLang's own layout."""
    folder = make_eagle(tmp_path_factory.mktemp("eagle") / "eagle", target, sglang=True)
    return "--speculative-draft-model-path", str(folder)


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """A file of draft vocabularies."""
    return make_vocabulary(tmp_path / "words.json", VOCAB)


def worker_of(settings: Any, algorithm: str = "EAGLE") -> str:
    """The name of the class that serves."""
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    worker: Any = SpeculativeAlgorithm.from_string(algorithm).create_worker(settings)
    return str(worker.__name__)


@pytest.mark.parametrize("algorithm", ["EAGLE", "nextn"])
def test_a_token_map_of_ours(target: Path, layer: tuple[str, str], words: Path, algorithm: str) -> None:
    found = resolved(target, *layer, "--speculative-token-map", f"{words}?size=20", algorithm=algorithm)
    assert found.speculative_algorithm == "EAGLE"
    assert worker_of(found) == "NativeWorker"


@pytest.mark.parametrize("token_map", [None, "freq_32768.pt"])
def test_all_else_is_sglangs(target: Path, layer: tuple[str, str], token_map: str | None) -> None:
    arguments = () if token_map is None else ("--speculative-token-map", token_map)
    assert worker_of(resolved(target, *layer, *arguments, algorithm="EAGLE")) == "EAGLEWorkerV2"


@pytest.mark.parametrize(
    ("query", "arguments", "part"),
    [
        ("?copy=true", (), "--speculative-eagle-topk is None, but with prompt lookup it must be 1"),
        (
            "?copy=true",
            (*CHAIN, "--speculative-accept-threshold-single", "0.5"),
            "is 0.5, but with prompt lookup",
        ),
        ("?borrow=2", (), "'borrow' requires a drafter of this project"),
        ("?copy_tokens=8", CHAIN, "'copy_tokens' requires copy=true"),
        ("?copy=true&copy_tokens=3", CHAIN, "must be above --speculative-num-steps, which is 3"),
        ("?copy=true&copy_tokens=1", CHAIN, "greater than or equal to 2"),
        ("?colour=1", (), "colour"),
        ("?language=klingon", (), "unknown language 'klingon'"),
        ("", ("--enable-multi-layer-eagle",), "--enable-multi-layer-eagle is True"),
        ("", ("--pp-size", "2"), "--pp-size is 2"),
    ],
)
def test_wrong_settings(
    target: Path, layer: tuple[str, str], words: Path, query: str, arguments: tuple[str, ...], part: str
) -> None:
    refused(part, target, *layer, "--speculative-token-map", f"{words}{query}", *arguments, algorithm="EAGLE")


def test_another_algorithm(target: Path, words: Path) -> None:
    given = target, "--speculative-token-map", str(words)
    refused("EAGLE, NEXTN, EAGLE3 and STANDALONE support it, not NGRAM", *given, algorithm="NGRAM")


def test_trees(target: Path, layer: tuple[str, str]) -> None:
    shape = ("--speculative-num-steps", "3", "--speculative-eagle-topk", "2", "--speculative-num-draft-tokens", "8")
    words = ("--speculative-token-map", "?copy=true")
    refused("--speculative-eagle-topk is 2", target, *layer, *shape, *words, algorithm="EAGLE")


@pytest.mark.parametrize("algorithm", ["EAGLE3", "STANDALONE"])
def test_a_draft_vocabulary_where_there_is_none(
    target: Path, layer: tuple[str, str], words: Path, algorithm: str
) -> None:
    given = *layer, *CHAIN, "--speculative-token-map", f"{words}?copy=true"
    refused(f"support a draft vocabulary, not {algorithm}; set its language", target, *given, algorithm=algorithm)


@pytest.mark.parametrize("algorithm", ["EAGLE", "NEXTN", "EAGLE3", "STANDALONE"])
def test_prompt_lookup_states_the_distributions(target: Path, layer: tuple[str, str], algorithm: str) -> None:
    """Though SGLang refuses them with STANDALONE."""
    draft = layer if algorithm != "STANDALONE" else (layer[0], str(target))
    for words, states in (("?copy=true", True), ("?copy=false", False)):
        found = resolved(target, *draft, *CHAIN, "--speculative-token-map", words, algorithm=algorithm)
        assert found.speculative_use_rejection_sampling is states
        name = "NativeStandaloneWorker" if algorithm == "STANDALONE" else "NativeWorker"
        assert worker_of(found, found.speculative_algorithm) == name


def test_longer_copies_are_reserved(target: Path, layer: tuple[str, str]) -> None:
    from sglang.srt.arg_groups.overrides import max_speculative_num_draft_tokens

    for words, most in (("?copy=true", 4), ("?copy=true&copy_tokens=15", 16)):
        found = server_args_of(target, *layer, *CHAIN, "--speculative-token-map", words, algorithm="EAGLE")
        assert max_speculative_num_draft_tokens(found) == most


def test_longer_copies_of_a_whole_draft_model(target: Path) -> None:
    given = target, *CHAIN, "--speculative-draft-model-path", str(target)
    words = ("--speculative-token-map", "?copy=true&copy_tokens=15")
    refused("EAGLE, NEXTN and EAGLE3 support 'copy_tokens', not STANDALONE", *given, *words, algorithm="STANDALONE")


def test_overlapping_steps_on_a_gpu(target: Path) -> None:
    settings: Any = SimpleNamespace(
        model_path=str(target), speculative_draft_model_path=None, speculative_algorithm="NEXTN",
        speculative_token_map="?copy=true", speculative_eagle_topk=1, device="cuda", disable_overlap_schedule=False,
        use_ray=False,
    )  # fmt: skip
    with pytest.raises(MTPCError, match="Prompt lookup requires --disable-overlap-schedule"):
        check_native(settings, lambda: SimpleNamespace(vocab_size=VOCAB))
    settings.disable_overlap_schedule = True
    check_native(settings, lambda: SimpleNamespace(vocab_size=VOCAB))


def test_a_worker_that_none_of_ours_extends(target: Path, layer: tuple[str, str]) -> None:
    found = resolved(target, *layer, *CHAIN, "--speculative-token-map", "?copy=true", algorithm="EAGLE")
    with pytest.raises(MTPCError, match="SGLang serves this draft model with its dict, which does not support it"):
        choose_worker(lambda self, server_args: dict, None, found)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What SGLang's draft models have."""
    from sglang.srt.layers.logits_processor import LogitsProcessor

    from sglang_mtpc import native

    monkeypatch.setattr(native, "head_ranks", lambda: SINGLE_RANK)
    made = nn.Module()
    made.lm_head = nn.Linear(4, 6, bias=False)
    made.logits_processor = LogitsProcessor.__new__(LogitsProcessor)
    nn.Module.__init__(made.logits_processor)
    made.logits_processor.logit_scale = made.logits_processor.final_logit_softcapping = None
    return made.requires_grad_(False)


def test_each_requests_own_vocabulary(model: Any) -> None:
    from sglang_mtpc.native import restrict

    head, states = (
        restrict(model, VOCABULARIES, 6, None, torch.float32),
        torch.randn(4, 4, generator=torch.Generator().manual_seed(1)),
    )
    head.numbers = torch.tensor([1, 0])  # two rows each
    logits = model.logits_processor._get_logits(states, model.lm_head, None)
    for row, ids in enumerate([[3, 4, 5], [3, 4, 5], [0, 1, 2], [0, 1, 2]]):
        assert (logits[row] > -1e29).nonzero()[:, 0].tolist() == ids
        torch.testing.assert_close(logits[row, ids], model.lm_head(states[row])[ids])


@pytest.mark.parametrize("wrong", ["another size", "unreadable", "scaled", "no head"])
def test_heads_that_are_refused(model: Any, wrong: str) -> None:
    from sglang_mtpc.native import restrict

    if wrong == "another size":
        model.lm_head = nn.Linear(4, 5, bias=False)
    elif wrong == "unreadable":
        model.lm_head.weight = nn.Parameter(torch.zeros(6, 4).to(torch.float8_e4m3fn), requires_grad=False)
    elif wrong == "scaled":
        model.logits_processor.logit_scale = 0.5
    else:
        del model.lm_head
    with pytest.raises(MTPCError, match="needs one output head over the target's 6 tokens"):
        restrict(model, VOCABULARIES, 6, None, torch.float32)


def test_a_vocabulary_of_the_drafter_becomes_the_targets(model: Any) -> None:
    """As of EAGLE-3: a head of three rows for tokens of six."""
    from sglang_mtpc.native import widen

    head, tokens = nn.Linear(4, 3, bias=False), torch.tensor([1, 2, 5])
    model.logits_processor._get_logits = lambda states, *_: head(states)
    widen(model, tokens, 6)
    states = torch.randn(2, 4, generator=torch.Generator().manual_seed(1))
    probs = model.logits_processor._get_logits(states, None, None).softmax(-1)
    torch.testing.assert_close(probs[:, tokens], head(states).softmax(-1))
    assert probs[:, [0, 3, 4]].abs().max() == 0
