"""Two ranks of vLLM's, with gloo, of which one has states that are off by an ulp: they draft the same."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, multiprocessing
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel

from mtpc.draft_model.part import TextDraft
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.parallel.config import CircuitConfig
from mtpc.target_head.draft_logits import DraftLogits
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from vllm_mtpc import ranks
from vllm_mtpc.model import DrafterForCausalLM
from vllm_mtpc.v1 import proposer
from vllm_mtpc.v1.proposer import Proposer
from vllm_mtpc.v1.step import V1DraftStep
from vllm_mtpc.v2 import speculator
from vllm_mtpc.v2.speculator import Speculator

ROWS, SIZE, VOCABULARY, AUTOREGRESSIVE, WINDOW = 3, 4, 6, 1, 2
RANKINGS = Rankings(VOCABULARY, {"even": Ranking((0, 2, 4))})
CONFIG = CircuitConfig(circuit="hmm", window=3, rank=2, hidden_size=SIZE, vocab_size=VOCABULARY, leaves="table")
SLOTS, TEMPERATURE = torch.arange(ROWS), torch.tensor([0.0, 1.0, 0.5])


def drafter() -> Any:
    """A window, and a draft vocabulary of which two tokens are as likely in states whose numbers are all the same."""
    torch.manual_seed(0)
    made: Any = DrafterForCausalLM.__new__(DrafterForCausalLM)
    torch.nn.Module.__init__(made)
    head = torch.zeros(VOCABULARY, SIZE)
    head[0, 0] = head[2, 1] = 1.0
    made.parallel = CircuitPart(CONFIG)
    for parameter in made.parallel.parameters():
        parameter.data.normal_()
    made.draft_logits = DraftLogits(DraftVocabularies(RANKINGS, VocabularySettings(size=3)), head)
    made.logits_processor = SimpleNamespace(head_dtype=torch.float32)
    return made


def of_v1(states: Tensor) -> tuple[Tensor, Tensor]:
    """What the V1 runner's proposer drafts and states."""
    made: Any = object.__new__(Proposer)
    made.__dict__ |= {"copying": None, "model": drafter(), "clock": SimpleNamespace(lap=lambda part: None)}
    made.parallel, noise = made.model.parallel, torch.full((ROWS, AUTOREGRESSIVE + WINDOW), 0.5, dtype=torch.float64)
    made.draft_single = made.parallel.draft
    made.step = V1DraftStep([states], [SLOTS], AUTOREGRESSIVE, WINDOW, "mixed", TEMPERATURE, noise, None)
    made._sample_draft_tokens(states, None)
    draft = made.step.drafts(made._draft_parallel(made.step))
    return draft.tokens, draft.probs


def of_v2(states: Tensor) -> tuple[Tensor, Tensor]:
    """What the speculator of Model Runner V2 drafts, its autoregressive part greedily, and states."""
    made: Any = Speculator.__new__(Speculator)
    made.copying, made.languages, made.model, made.dtype = None, None, drafter(), torch.float32
    made.autoregressive_drafts, made.parallel_drafts, made.max_num_reqs = AUTOREGRESSIVE, WINDOW, ROWS
    made.states, made.tokens = (
        torch.zeros(ROWS, AUTOREGRESSIVE + 1, SIZE),
        torch.zeros(ROWS, AUTOREGRESSIVE + 1, dtype=torch.int64),
    )
    made.draft_tokens = torch.zeros(ROWS, AUTOREGRESSIVE + WINDOW, dtype=torch.int64)
    made.positions, made.seeds, made.idx_mapping, made.temperature = SLOTS.clone(), SLOTS, SLOTS, TEMPERATURE
    made.slot_logits = torch.zeros(ROWS + 1, AUTOREGRESSIVE + WINDOW, VOCABULARY)
    made.draft_logits, made.use_local_argmax_reduction, made.acceptance_estimator = None, False, None
    made.current_draft_step = torch.tensor(0)
    batch = SimpleNamespace(num_reqs=ROWS, idx_mapping=SLOTS, query_start_loc=torch.arange(ROWS + 1), positions=SLOTS)
    made._begin_parallel(batch, states, torch.ones(ROWS), torch.zeros(ROWS).long(), SLOTS[:, None], SLOTS[None])
    made.draft_tokens[:, 0] = made.sample_draft(states, None, None, None, None, None, None)
    made._draft_parallel(ROWS)
    return made.draft_tokens, made.slot_logits


def of_text_parts(rank: int) -> list[tuple[Any, Any]]:
    """What the first rank alone has drafted: with distributions, without, and with no token."""
    probs = torch.rand(2, 2, VOCABULARY, generator=torch.Generator().manual_seed(0))
    drafts = [TextDraft([[1, 2], [3]], probs), TextDraft([[4], []], None), TextDraft([[], []], probs[:, :0])]
    return [tuple(ranks.draft_of_first_rank(draft if rank == 0 else None))[:2] for draft in drafts]


def draft(rank: int, folder: Path) -> None:
    """What one of two ranks drafts with both runners, and what it would if each kept to its own states."""
    torch.set_num_threads(1)
    os.environ["VLLM_DIST_IDENT"] = str(rank)  # not the same: they have no shared memory, but gloo
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(2, rank, f"file://{folder}/store", rank, "gloo")
        initialize_model_parallel(2)
    states = torch.full((ROWS, SIZE), 8.0)
    if rank:
        states[:, 1] = torch.nextafter(states[:, 1], torch.tensor(9.0))
    shared = [of_v1(states), of_v2(states), *of_text_parts(rank)]
    for module in (proposer, speculator):
        module.of_first_rank = lambda states: states  # type: ignore[attr-defined]
    torch.save((shared, [of_v1(states), of_v2(states)]), folder / str(rank))


def test_ranks_draft_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # there are two
    assert ranks.tensor_model_parallel_all_gather.__module__.startswith("vllm.")
    multiprocessing.start_processes(draft, (tmp_path,), nprocs=2, start_method="fork")
    (first, alone), (second, other) = (torch.load(tmp_path / str(rank)) for rank in range(2))
    text, received = first[2:], second[2:]
    assert [tokens for tokens, _ in received] == [tokens for tokens, _ in text] == [[[1, 2], [3]], [[4], []], [[], []]]
    assert torch.equal(received[0][1], text[0][1]) and text[0][1].shape == (2, 2, VOCABULARY)
    assert received[1][1] is text[1][1] is None
    assert received[2][1].shape == text[2][1].shape == (2, 0, VOCABULARY)
    for one, two, left, right in zip(first[:2], second[:2], alone, other, strict=True):
        assert torch.equal(one[0], two[0])
        assert torch.equal(one[1], two[1])
        assert not torch.equal(left[0], right[0])
        assert not torch.equal(left[1], right[1])
