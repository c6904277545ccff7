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
from vllm.v1.worker.gpu.spec_decode.speculator import DraftModelSpeculator

from mtpc.lab.statistics.chi_square import REJECT_BELOW, chi_square_p_value
from mtpc.target_head.rows import SINGLE_RANK
from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.requests import RequestLanguages
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from tests.engine.test_runner_v2 import FOLDERS, INTERPRETED, ROOT, V2_ON_CPU
from tests.vllm_mtpc.native.test_head import Model, one_rank
from vllm_mtpc.native import head as native_head
from vllm_mtpc.native import restrict as native
from vllm_mtpc.v2 import graphs

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
        self.vllm_config, self.draft_watermarker, self.acceptance_estimator = None, None, None
        self.use_local_argmax_reduction = self.use_fp64_gumbel = False
        self.idx_mapping, self.seeds = torch.zeros(SLOTS, dtype=torch.int64), torch.zeros(SLOTS, dtype=torch.int64)
        self.temperature, self.current_draft_step = torch.ones(SLOTS), torch.tensor(0)
        self.draft_logits = torch.zeros(SLOTS, DRAFTS, VOCABULARY)
        self.model: Any = Model(VOCABULARY)
        self.req_states = States()
        self.did: list[str] = []
        self.position = 0  # which the noise of a draft is a function of

    def init_cudagraph_manager(self, cudagraph_mode: CUDAGraphMode) -> None:
        """VLLM's own graphs."""
        self.did.append("graphs")

    def capture(self) -> None:
        """The same."""
        self.did.append("capture")

    def propose(self, input_batch: Any, *given: Any, **named: Any) -> Tensor:
        """One draft of each request; the fourth argument is its state."""
        rows, slots = input_batch.num_reqs, input_batch.idx_mapping
        self._copy_request_inputs(rows, slots, self.temperature, self.seeds)
        own = self.idx_mapping[:rows], self.temperature, self.seeds, self.current_draft_step, self.draft_logits
        return self.sample_draft(given[2], torch.full((rows,), self.position), *own)


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
    logits_cache[slots, named["logits_cache_col"]] = logits
    return logits.softmax(-1).multinomial(1)[:, 0]


@pytest.fixture
def loop(one_rank: None, monkeypatch: pytest.MonkeyPatch) -> Loop:
    """With three requests, in slots 0 to 2, and graphs."""
    monkeypatch.setattr(loops, "gumbel_sample", cached_and_drawn)
    monkeypatch.setattr(graphs, "CudaGraphManager", Manager)
    monkeypatch.setattr(native_head, "head_ranks", lambda: SINGLE_RANK)
    monkeypatch.setattr("vllm.distributed.get_tensor_model_parallel_rank", lambda: 0)
    monkeypatch.setattr(native, "target_of", lambda config: SimpleNamespace(vocab_size=VOCABULARY))
    made = Loop()
    made.vllm_config = SimpleNamespace(model_config=None, speculative_config=SimpleNamespace(enforce_eager=False))
    native._restrict_v2(made, VOCABULARIES)
    made.init_cudagraph_manager(CUDAGraphMode.FULL)
    made.capture()
    for name, text in TEXTS.items():
        made.req_states.add_request(name, len(text), text, 0, 10)
    return made


def propose(loop: Loop, slots: list[int], said: list[int], states: Tensor) -> Tensor:
    """As vLLM's runner asks."""
    batch = SimpleNamespace(num_reqs=len(slots), idx_mapping=torch.tensor(slots))
    counts = torch.tensor(said, dtype=torch.int32)
    given = states, None, counts, None, None, None, loop.temperature, loop.seeds
    return loop.propose(batch, None, None, *given, num_speculative_tokens=1)


def test_drafts_are_of_the_requests_vocabularies_and_nothing_else_is_stated(loop: Loop) -> None:
    """As the host would choose them, in batches of any order; one request changes its language."""
    assert loop.did == ["graphs", "capture"]
    host, texts = RequestLanguages(DETECTOR), {name: list(text) for name, text in TEXTS.items()}
    names, seen = list(TEXTS), Counter[int]()
    for step, slots in enumerate([[2, 0, 1], [1, 0], [0]] * 5):
        said = [[] if names[slot] == "neither" or not step else [3, 4, 5] for slot in slots]
        for slot, tokens in zip(slots, said, strict=True):
            loop.req_states.say(slot, tokens)
            texts[names[slot]] += tokens
        states = torch.randn(len(slots), 4, generator=torch.Generator().manual_seed(step))
        drawn = propose(loop, slots, list(map(len, said)), states)
        for row, slot in enumerate(slots):
            number, stated = host.choose(names[slot], texts[names[slot]]), loop.draft_logits[slot, 0]
            ids, whole = IDS[number], loop.model.lm_head.weight[:VOCABULARY] @ states[row]
            assert stated.isfinite().nonzero()[:, 0].tolist() == ids
            torch.testing.assert_close(stated[ids], whole[ids])
            assert int(drawn[row]) in ids
            seen[number] += slot == 0 or number == 2
    assert min(seen.values()) > 2 and len(seen) == 3


def test_before_there_are_graphs(loop: Loop) -> None:
    batch = SimpleNamespace(num_reqs=2, idx_mapping=torch.tensor([0, 1]))
    given = torch.randn(2, 4), None, torch.ones(2, dtype=torch.int32), None, None, None, loop.temperature, loop.seeds
    before = loop.draft_logits.clone()
    loop.propose(batch, None, None, *given, dummy_run=True, is_profile=True)
    assert not torch.equal(loop.draft_logits, before)


def test_where_all_languages_are_all_tokens_nothing_is_restricted() -> None:
    made, languages = Loop(), {**LANGUAGES, "rest": Ranking((6, 7, 8))}
    native._restrict_v2(made, DraftVocabularies(Rankings(VOCABULARY, languages), VocabularySettings(size=3)))
    assert torch.isfinite(made.model.compute_logits(torch.randn(1, 4))).all()


@pytest.mark.parametrize("name", ["honest", "forgetful"])
def test_what_is_said_has_the_targets_law(name: str, verified: dict[str, Any]) -> None:
    """With vLLM's own kernels; unless what cannot be drafted is stated as if it could be.

    Then too much of what is said is of the draft vocabulary.
    """
    for row, (ids, probs) in enumerate(zip(IDS, verified["target"], strict=False)):
        own = sum(probs[token] for token in ids)
        p = chi_square_p_value(Counter(tokens[row] in ids for tokens in verified[name]), {True: own, False: 1 - own})
        assert (p < REJECT_BELOW) == (name == "forgetful")


@pytest.fixture(scope="module")
def verified() -> dict[str, Any]:
    """What `native_law.py` prints."""
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


@pytest.mark.parametrize("name", [*ON_V1, *ON_V2])
def test_the_head_of_every_drafter_is_restricted_once_it_is_loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all methods, where vLLM's own base class loads it."""
    base: Any = DraftModelSpeculator if name in ON_V2 else SpecDecodeBaseProposer
    loaded: list[Any] = []
    monkeypatch.setattr(base, "load_model", lambda self, target_model: loaded.append(self))
    monkeypatch.setattr(native, "native_vocabularies", lambda config: "vocabularies")
    native._after_loading(base, lambda drafter, vocabularies: loaded.append(vocabularies))
    made = object.__new__(resolve_name(name))
    made.vllm_config, made.supports_mm_inputs = None, False
    made.load_model(None)
    assert loaded == [made, "vocabularies"]
