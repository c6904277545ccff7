"""What Model Runner V2's speculator keeps, without an engine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from vllm.v1.worker.gpu.spec_decode.eagle.speculator import EagleSpeculator

from mtpc.memory import BYTES_PER_PROB, MAX_PROBS
from mtpc.methods import method_of
from mtpc.metrics.draft_clock import DraftClock
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from tests.mtpc.parallel.trace import Trace
from tests.support.random_models import make_copying
from tests.support.tiny_models import make_part
from vllm_mtpc import dispatch, model
from vllm_mtpc.model import DrafterForCausalLM
from vllm_mtpc.v2 import speculator
from vllm_mtpc.v2.languages import DeviceLanguages
from vllm_mtpc.v2.speculator import Speculator

SLOTS, DRAFTS, VOCABULARY = 5, 3, 258


@pytest.mark.parametrize("method", ["probabilistic", "greedy"])
@pytest.mark.parametrize(("name", "own"), [("drafter", True), ("hybrid", True), ("fastmtp", False), ("copying", None)])
def test_what_is_stated_is_kept_once(
    name: str, own: bool | None, method: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By vLLM, or where a window drafts in a tensor of our own, with a row for padding: never both.

    Prompt lookup alone states nothing: vLLM takes its tokens as certain.
    """
    kept: list[torch.Tensor] = []

    def base(self: Any, vllm_config: Any, device: torch.device) -> None:
        self.max_num_reqs, self.vocab_size, self.hidden_size, self.dtype = SLOTS, VOCABULARY, 4, torch.float32
        self.dp_rank, self.draft_logits = 0, None
        if vllm_config.speculative_config.draft_sample_method == "probabilistic":
            self.draft_logits = torch.zeros(SLOTS, DRAFTS, VOCABULARY)
            kept.append(self.draft_logits)

    monkeypatch.setattr(EagleSpeculator, "__init__", base)
    monkeypatch.setattr(speculator, "get_tensor_model_parallel_rank", lambda: 0)
    monkeypatch.setattr(Speculator, "_begin_copying", lambda self, *given: None)
    folder: Path = request.getfixturevalue(name)
    settings = SimpleNamespace(
        num_speculative_tokens=DRAFTS,
        draft_sample_method=method,
        draft_model_config=SimpleNamespace(model=str(folder), revision=None, architectures=[]),
    )
    config = SimpleNamespace(speculative_config=settings, additional_config={})
    made = Speculator(config, torch.device("cpu"), None)
    assert made.speculative_config.draft_sample_method == method
    states = method == "probabilistic" and own is not None
    assert len(kept) == (states and not own)
    assert (made.slot_logits is not None) == (states and own)
    assert (made.draft_logits is not None) == states
    if made.slot_logits is not None and made.draft_logits is not None:
        assert made.slot_logits.shape == (SLOTS + 1, DRAFTS, VOCABULARY)
        assert made.draft_logits.data_ptr() == made.slot_logits.data_ptr()


@pytest.fixture
def copying(target: Path, tmp_path: Path) -> Path:
    """A drafter without a part of its own."""
    return make_copying(tmp_path / "copying", target)


@pytest.mark.parametrize(("autoregressive", "drafts", "passes"), [(0, 4, 1), (0, 0, 0), (2, 4, 2), (2, 1, 1)])
def test_the_passes_of_the_draft_layers(
    autoregressive: int, drafts: int, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layers that draft nothing make one: vLLM 0.33 keeps no state of a pass for 0 tokens."""
    asked: list[int] = []

    def propose(self: Any, *given: Any, num_speculative_tokens: int, **named: Any) -> None:
        asked.append(num_speculative_tokens)

    monkeypatch.setattr(EagleSpeculator, "propose", propose)
    made: Any = Speculator.__new__(Speculator)
    made.clock, made.copying, made.languages, made.grammars = DraftClock(None), None, None, set()
    made.autoregressive, made.autoregressive_drafts, made.drafts_nothing = True, autoregressive, not autoregressive
    made.final_norm, made.draft_logits, made.draft_tokens = lambda states: states, None, torch.zeros(2, 4)
    made.num_speculative_steps = 4
    monkeypatch.setattr(Speculator, "_begin_parallel", lambda self, *given: None)
    made.parallel_graphs = SimpleNamespace(run=lambda rows, eager: None)
    batch, none = SimpleNamespace(num_reqs=2, idx_mapping=None), (None,) * 7
    made.propose(batch, None, None, torch.zeros(2, 4), *none, num_speculative_tokens=drafts)
    assert asked == [passes]


def test_requests_that_vllm_makes_up_are_not_counted() -> None:
    """It captures CUDA graphs after them; until then nothing may read the counts in another thread."""
    rankings = Rankings(40, {"low": Ranking(tuple(range(20))), "high": Ranking(tuple(range(20, 40)))})
    vocabularies = DraftVocabularies(rankings, VocabularySettings(size=20, language="auto"))
    speculator = SimpleNamespace(
        max_num_reqs=2, num_speculative_steps=DRAFTS, device=torch.device("cpu"), idx_mapping=torch.tensor([0, 1])
    )
    states: Any = SimpleNamespace(
        req_id_to_index={"_warmup_0_": 0, "real": 0},
        add_request=lambda *given: None,
        all_token_ids=SimpleNamespace(gpu=torch.zeros(2, 50, dtype=torch.int32)),
        total_len=SimpleNamespace(gpu=torch.tensor([20, 0], dtype=torch.int32)),
    )
    languages = DeviceLanguages(vocabularies, speculator, states, counts_metrics=True)
    languages.graphs.run = lambda rows, eager: languages._read(rows)  # type: ignore[method-assign]
    emitted, rejected = torch.tensor([2], dtype=torch.int32), torch.tensor([2], dtype=torch.int32)
    assert languages.tally is not None
    for name, counted in (("_warmup_0_", False), ("real", True)):
        states.add_request(name, 3, [1, 2, 3])
        for _ in range(2):
            languages.read(1, emitted, rejected, eager=False)
        assert languages.tally.begun == counted
        assert languages.tally.drafts.sum() == counted
        assert languages.tally.moves.sum() == counted


@pytest.mark.parametrize("circuit", ["ff", "hmm"])
@pytest.mark.parametrize("method", ["probabilistic", "greedy"])
def test_memory_of_a_draft_does_not_grow_with_the_batch(method: str, circuit: str) -> None:
    """Beyond what is kept: by default vLLM profiles with 1,024 requests, and captures graphs for up to 512."""
    rows, drafts, vocabulary = 1024, 7, 152_000
    made: Any = Speculator.__new__(Speculator)
    with torch.device("meta"):
        parallel = make_part(circuit, drafts + 1, 2, 8, vocabulary).requires_grad_(False)
        made.model, made.copying = SimpleNamespace(parallel=parallel, with_head_inputs=lambda known: known), None
        made.autoregressive_drafts, made.parallel_drafts, made.max_num_reqs = 0, drafts, rows
        made.states, made.tokens = torch.zeros(rows, 1, 8), torch.zeros(rows, 1, dtype=torch.int64)
        made.positions, made.seeds, made.idx_mapping = torch.zeros(3, rows, dtype=torch.int64)
        made.temperature, made.draft_tokens = torch.ones(rows), torch.zeros(rows, drafts, dtype=torch.int64)
        kept = torch.zeros(rows + 1, drafts, vocabulary)
        made.slot_logits = kept if method == "probabilistic" else None
    with torch.no_grad(), Trace() as trace:
        made._draft_parallel(rows)
    assert trace.peak <= BYTES_PER_PROB * MAX_PROBS


@pytest.mark.parametrize(("kept", "warned"), [(None, False), (1 << 29, False), (4 << 30, True)])
def test_much_memory_that_is_kept_is_warned_of(
    kept: int | None, warned: bool, drafter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what to set: by default a GPU of 80 GB keeps distributions for 1,024 requests."""
    warnings: list[str] = []
    logger = SimpleNamespace(info=lambda line: None, warning=lambda line, *values: warnings.append(line % values))
    monkeypatch.setattr(model, "logger", logger)
    made: Any = DrafterForCausalLM.__new__(DrafterForCausalLM)
    nn.Module.__init__(made)
    made.folder, made.method, made.num_drafts, made.draft_logits = drafter, method_of(drafter), DRAFTS, None
    made.drafter, made.target = made.method.read_config(drafter), SimpleNamespace(vocab_size=VOCABULARY)
    config = SimpleNamespace(num_speculative_tokens=DRAFTS, scheduler_config=SimpleNamespace(max_num_seqs=1024))
    made.announce(config, False, "Model Runner V2", kept=kept)
    assert len(warnings) == warned
    assert all(line.startswith("--max-num-seqs 1024: ") and " 4.3 GB " in line for line in warnings)


def test_new_requests_are_made_known_to_our_speculators_alone() -> None:
    """With their slots, after the runner has added them."""

    class GPUModelRunner:
        def __init__(self) -> None:
            self.req_states = SimpleNamespace(req_id_to_index={})
            self.speculator: Any = SimpleNamespace(begin_request=lambda *begun: begins.append(begun))

        def add_requests(self, scheduler_output: Any) -> None:
            for one in scheduler_output.scheduled_new_reqs:
                self.req_states.req_id_to_index[one.req_id] = 7 - len(self.req_states.req_id_to_index)

    begins = list[Any]()
    dispatch.install_requests_v2(SimpleNamespace(GPUModelRunner=GPUModelRunner))
    requests = [SimpleNamespace(req_id=name) for name in "ab"]
    for is_ours, new, expected in (
        (True, requests, [(7, requests[0]), (6, requests[1])]),
        (True, [], []),
        (False, requests, []),
    ):
        runner = GPUModelRunner()
        if not is_ours:
            runner.speculator = None
        runner.add_requests(SimpleNamespace(scheduled_new_reqs=new))
        assert begins == expected
        begins.clear()


def test_a_limit_is_ignored_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    made: Any = Speculator.__new__(Speculator)
    made.grammars = set()
    for parameters in (None, SimpleNamespace(extra_args={"max_draft_tokens": 0})):
        made.begin_request(3, SimpleNamespace(sampling_params=parameters))
    message = (
        "'max_draft_tokens' of requests is ignored: all drafts of Model Runner V2 have num_speculative_tokens tokens."
    )
    assert caplog.messages == [message]
