"""vLLM's own drafters on Model Runner V2, without an engine: each request's vocabulary, and what is stated of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm.config.compilation import CUDAGraphMode
from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer
from vllm.v1.worker.gpu.spec_decode import speculator as loops
from vllm.v1.worker.gpu.spec_decode.eagle.speculator import EagleSpeculator

from mtpc.lab.statistics.chi_square import REJECT_BELOW, chi_square
from mtpc.prompt_lookup.mixture import Copying
from mtpc.prompt_lookup.request import CopyRequest, batch_proposals
from mtpc.prompt_lookup.table import CopyTable
from mtpc.target_head.rows import SINGLE_RANK
from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from tests.engine.test_runner_v2 import FOLDERS, INTERPRETED, ROOT, V2_ON_CPU
from tests.oracles.request_languages import RequestLanguages
from tests.vllm_mtpc.native.test_head import Model, one_rank
from vllm_mtpc import dispatch
from vllm_mtpc.native import head as native_head
from vllm_mtpc.native import v2 as native
from vllm_mtpc.native.v1 import NativeProposer
from vllm_mtpc.native.v2 import NativeSpeculator
from vllm_mtpc.v2 import graphs, prompt_lookup

__all__ = ["one_rank"]
VOCABULARY, SLOTS, DRAFTS = 9, 3, 2
LANGUAGES = {"low": Ranking((0, 1, 2)), "high": Ranking((3, 4, 5))}
IDS = [[0, 1, 2], [3, 4, 5], [0, 1, 2, 3, 4, 5]]  # of both, and where neither suits all of them
TEXTS = {"low": [0, 1, 2] * 3, "high": [3, 4, 5] * 3, "neither": [6, 7, 8] * 4}
VOCABULARIES = DraftVocabularies(Rankings(VOCABULARY, LANGUAGES), VocabularySettings(size=3))
DETECTOR = LanguageDetector(Rankings(VOCABULARY, LANGUAGES))


class Loop(EagleSpeculator):
    """A draft of one step, of states that it is given, with the buffers of vLLM's loop."""

    def __init__(self) -> None:
        self.device, self.max_num_reqs, self.num_speculative_steps = torch.device("cpu"), SLOTS, DRAFTS
        self.vocab_size = VOCABULARY
        settings = SimpleNamespace(enforce_eager=False, draft_model_config=SimpleNamespace(model="drafter"))
        self.vllm_config: Any = SimpleNamespace(speculative_config=settings, additional_config={})
        self.vllm_config.model_config = SimpleNamespace(enable_sleep_mode=False)
        self.draft_watermarker = self.acceptance_estimator = None
        self.use_local_argmax_reduction = self.use_fp64_gumbel = False
        self.idx_mapping, self.seeds = torch.zeros(SLOTS, dtype=torch.int64), torch.zeros(SLOTS, dtype=torch.int64)
        self.temperature, self.current_draft_step = torch.ones(SLOTS), torch.tensor(0)
        self.draft_logits = torch.zeros(SLOTS, DRAFTS, VOCABULARY)
        self.model: Any = Model(VOCABULARY)
        self.req_states = States()
        self.did: list[str] = []
        self.position = 0  # which the noise of a draft is a function of

    def load_model(self, target_model: Any) -> None:
        """Its model is there."""

    def init_cudagraph_manager(self, cudagraph_mode: CUDAGraphMode) -> None:
        """VLLM's own graphs."""
        self.did.append("graphs")

    def capture(self) -> None:
        """The same."""
        self.did.append("capture")

    def propose(self, input_batch: Any, *given: Any, **named: Any) -> Tensor:
        """Drafts of each request, all of the same state, which is the fourth argument."""
        rows, slots = input_batch.num_reqs, input_batch.idx_mapping
        self._copy_request_inputs(rows, slots, self.temperature, self.seeds)
        own = self.idx_mapping[:rows], self.temperature, self.seeds, self.current_draft_step, self.draft_logits
        drafts = []
        for step in range(named.get("num_speculative_tokens", 1)):
            self.current_draft_step.fill_(step)
            drafts.append(self.sample_draft(given[2], torch.full((rows,), self.position), *own))
        return torch.stack(drafts, 1)


class States:
    """The runner's requests, each of which comes into the next slot."""

    def __init__(self) -> None:
        self.req_id_to_index: dict[str, int] = {}
        self.all_token_ids = SimpleNamespace(gpu=torch.zeros(SLOTS, 99, dtype=torch.int32))
        self.total_len = SimpleNamespace(gpu=torch.zeros(SLOTS, dtype=torch.int32))

    def add_request(
        self, req_id: str, prompt_len: int, all_token_ids: list[int], num_computed_tokens: int, max_tokens: int
    ) -> None:
        """VLLM's."""
        slot = self.req_id_to_index[req_id] = len(self.req_id_to_index)
        self.say(slot, all_token_ids)

    def say(self, slot: int, tokens: list[int]) -> None:
        """What follows in a request's text."""
        length = int(self.total_len.gpu[slot])
        self.all_token_ids.gpu[slot, length : length + len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
        self.total_len.gpu[slot] += len(tokens)


class Manager:
    """In the place of vLLM's graphs: calls that were captured for three requests are made again."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def capture(self, create: Callable[..., Callable[[CUDAGraphMode], None]], _: str) -> None:
        """For three requests."""
        self.replay = create(SimpleNamespace(num_reqs=SLOTS), False)

    def dispatch(self, *_: Any, **__: Any) -> Any:
        """There is a graph for any batch."""
        return SimpleNamespace(cg_mode=CUDAGraphMode.FULL)

    def run_fullgraph(self, _: Any) -> None:
        """Make the call again."""
        self.replay(CUDAGraphMode.NONE)


def cached_and_drawn(logits: Tensor, slots: Tensor, *_: Any, logits_cache: Tensor, **named: Any) -> Tensor:
    """``gumbel_sample``: keeps the very logits that it draws from, before the temperature."""
    assert logits.dtype == logits_cache.dtype
    logits_cache[slots, named["logits_cache_col"]] = logits
    return logits.softmax(-1).multinomial(1)[:, 0]


def extended(put: Callable[[Any, str, Any], Any], vocabularies: DraftVocabularies | None, copies: bool) -> Any:
    """A loop with draft vocabularies and prompt lookup on one rank; put: ``setattr``, or a test's."""
    put(native_head, "head_ranks", lambda: SINGLE_RANK)
    put(native_head, "target_of", lambda config: SimpleNamespace(vocab_size=VOCABULARY))
    put(native, "get_tensor_model_parallel_rank", lambda: 0)
    put(native, "check_ranks", lambda config: None)
    put(native, "native_vocabularies", lambda config: vocabularies)
    put(prompt_lookup, "StagedWriteTensor", staged)
    made: Any = Loop()
    made.vllm_config.additional_config = {"mtpc": {"copy": copies}}
    NativeSpeculator.begin(made, made.req_states)
    made.load_model(None)
    return made


def staged(size: torch.Size, dtype: torch.dtype, device: torch.device) -> Any:
    """In the place of vLLM's buffer."""
    return SimpleNamespace(gpu=torch.zeros(size, dtype=dtype, device=device))


@pytest.fixture(params=[False, True], ids=["", "copying"])
def loop(request: pytest.FixtureRequest, one_rank: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """With graphs; without prompt lookup, and with it."""
    monkeypatch.setattr(loops, "gumbel_sample", cached_and_drawn)
    monkeypatch.setattr(graphs, "CudaGraphManager", Manager)
    made = extended(monkeypatch.setattr, VOCABULARIES, request.param)
    made.init_cudagraph_manager(CUDAGraphMode.FULL)
    made.capture()
    for name, text in TEXTS.items():  # in slots 0 to 2
        made.req_states.add_request(name, len(text), text, 0, 10)
    return made


def propose(loop: Any, slots: list[int], num_emitted: list[int], states: Tensor, drafts: int = 1) -> Tensor:
    """As vLLM's runner asks."""
    batch = SimpleNamespace(num_reqs=len(slots), idx_mapping=torch.tensor(slots))
    counts = torch.tensor(num_emitted, dtype=torch.int32)
    given = states, None, counts, None, None, None, loop.temperature, loop.seeds
    drawn: Tensor = loop.propose(batch, None, None, *given, num_speculative_tokens=drafts)
    return drawn


def test_drafts_are_of_the_requests_vocabularies_and_copied_and_nothing_else_is_stated(loop: Any) -> None:
    """As the host would choose them, in batches of any order; one request changes its language.

    Also of what is copied from outside of a request's vocabulary.
    """
    assert loop.did == ["graphs", "capture"]
    host, texts = RequestLanguages(DETECTOR), {name: list(text) for name, text in TEXTS.items()}
    copies = {name: CopyRequest(CopyTable(), text, VOCABULARY) for name, text in TEXTS.items()}
    names, seen, outside = list(TEXTS), Counter[int](), 0
    for step, slots in enumerate([[2, 0, 1], [1, 0], [0]] * 5):
        emitted = [[7] if names[slot] == "neither" else [3, 4, 5] for slot in slots]
        for slot, tokens in zip(slots, emitted, strict=True):
            loop.req_states.say(slot, tokens)
            texts[names[slot]] += tokens
            copies[names[slot]].append(tokens)
        states = torch.randn(len(slots), 4, generator=torch.Generator().manual_seed(step))
        drawn = propose(loop, slots, list(map(len, emitted)), states, DRAFTS)
        for row, slot in enumerate(slots):
            number = host.choose(names[slot], texts[names[slot]])
            whole = loop.model.lm_head.weight[:VOCABULARY] @ states[row]
            own = torch.full((1, VOCABULARY), -torch.inf).index_copy_(
                1, torch.tensor(IDS[number]), whole[None, IDS[number]]
            )
            proposals = batch_proposals([copies[names[slot]].propose(DRAFTS)], DRAFTS)
            copying = Copying.begin(
                proposals if loop.copying is not None else proposals._replace(chances=proposals.chances * 0)
            )
            for position, token in enumerate(drawn[row, :, None]):
                expected, stated = copying.mixed(own.softmax(-1))[0], loop.draft_logits[slot, position].softmax(-1)
                torch.testing.assert_close(stated, expected)
                assert torch.equal(stated > 0, expected > 0) and expected[token] > 0
                outside += bool(copying.weight > 0) and int(copying.token) not in IDS[number]
                copying = copying.drafted(token, copying.drafter_probability(own.softmax(-1)))
            seen[number] += slot == 0 or number == 2
    assert min(seen.values()) > 2 and len(seen) == 3
    assert (outside > 5) == (loop.copying is not None)


def test_before_there_are_graphs(loop: Any) -> None:
    batch = SimpleNamespace(num_reqs=2, idx_mapping=torch.tensor([0, 1]))
    given = torch.randn(2, 4), None, torch.ones(2, dtype=torch.int32), None, None, None, loop.temperature, loop.seeds
    before = loop.draft_logits.clone()
    loop.propose(batch, None, None, *given, dummy_run=True, is_profile=True)
    assert not torch.equal(loop.draft_logits, before)


def test_where_all_languages_are_all_tokens_nothing_is_restricted(monkeypatch: pytest.MonkeyPatch) -> None:
    languages = {**LANGUAGES, "rest": Ranking((6, 7, 8))}
    vocabularies = DraftVocabularies(Rankings(VOCABULARY, languages), VocabularySettings(size=3))
    made = extended(monkeypatch.setattr, vocabularies, copies=False)
    assert torch.isfinite(made.model.compute_logits(torch.randn(1, 4))).all()


@pytest.mark.parametrize("name", ["honest", "forgetful"])
def test_what_is_said_has_the_targets_law(name: str, verified: dict[str, Any]) -> None:
    """With vLLM's own kernels.

    As a control, tokens that cannot be drafted are stated as if they could be.  Then too many emitted tokens are of the
    draft vocabulary.
    """
    for row, (ids, probs) in enumerate(zip(IDS, verified["target"], strict=False)):
        own = sum(probs[token] for token in ids)
        p = chi_square(Counter(tokens[row] in ids for tokens in verified[name]), {True: own, False: 1 - own}).p
        assert (p < REJECT_BELOW) == (name == "forgetful")


@pytest.fixture(scope="module")
def verified() -> dict[str, Any]:
    """What `law.py` prints."""
    pytest.importorskip("triton", reason="needs Triton's interpreter")
    script = [sys.executable, "-m", "tests.vllm_mtpc.native.law"]
    path = os.pathsep.join([*FOLDERS, V2_ON_CPU, os.environ.get("PYTHONPATH", "")])
    environment = os.environ | INTERPRETED | {"PYTHONPATH": path}
    done = subprocess.run(script, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


LOOPS = "vllm.v1.worker.gpu.spec_decode."
ON_V1 = ["vllm.v1.spec_decode.eagle:EagleProposer", "vllm.v1.spec_decode.draft_model:DraftModelProposer"]
ON_V2 = [
    f"{LOOPS}eagle.speculator:EagleSpeculator",
    f"{LOOPS}mtp.speculator:MTPSpeculator",
    f"{LOOPS}multi_module_mtp.speculator:MultiModuleMTPSpeculator",
    f"{LOOPS}standalone_ar.speculator:StandaloneARSpeculator",
]


@pytest.mark.parametrize("name", ON_V1)
def test_every_proposer_is_extended_once_it_is_loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all methods, where vLLM's own base class loads it, and only with a section for it."""
    loaded: list[Any] = []
    base = SpecDecodeBaseProposer
    monkeypatch.setattr(base, "load_model", lambda self, target_model: loaded.append(self))
    monkeypatch.setattr(NativeProposer, "begin", lambda proposer: loaded.append("extended"))
    dispatch.install_native_v1(SimpleNamespace(SpecDecodeBaseProposer=base))
    for section in ({}, {"mtpc": {"copy": True}}):
        made, draft = object.__new__(resolve_name(name)), SimpleNamespace(architectures=["Other"])
        speculative = SimpleNamespace(draft_model_config=draft)
        made.vllm_config = SimpleNamespace(additional_config=section, speculative_config=speculative)
        loaded.clear()
        made.load_model(None)
        assert loaded == [made, *["extended"] * bool(section)]


@pytest.mark.parametrize("name", ON_V2)
def test_every_speculator_is_extended_when_it_is_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its methods then come before vLLM's, which they call; and only with a section for it."""
    kind = resolve_name(name)
    monkeypatch.setattr(native, "check_ranks", lambda config: None)
    module = SimpleNamespace(init_speculator=lambda config, *_: made)
    dispatch.install_v2(module)
    for section in ({}, {"mtpc": {"copy": False}}):
        made, draft = object.__new__(kind), SimpleNamespace(architectures=["Other"], model="drafter")
        speculative = SimpleNamespace(draft_model_config=draft)
        made.vllm_config = SimpleNamespace(additional_config=section, speculative_config=speculative)
        assert module.init_speculator(made.vllm_config, None, "states") is made
        order = type(made).__mro__
        assert isinstance(made, kind) and isinstance(made, NativeSpeculator) == bool(section)
        assert not section or order.index(NativeSpeculator) < order.index(kind)
