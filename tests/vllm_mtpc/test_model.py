"""The autoregressive part's logits: of the target's whole head, or of the rows of a draft vocabulary."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mtpc.draw import draw_tokens, most_probable
from mtpc.errors import MTPCError
from mtpc.prompt_lookup.mixture import Copied, Copying
from mtpc.target_head.rows import SINGLE_RANK
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.vocabularies import DraftVocabularies, VocabularySettings
from vllm_mtpc import model
from vllm_mtpc.adapted_layers import VLLMAdaptedBlock
from vllm_mtpc.model import DrafterForCausalLM

ROWS, SIZE, VOCABULARY = 3, 4, 6
RANKINGS = Rankings(VOCABULARY, {"low": Ranking((0, 1, 2)), "high": Ranking((5, 4, 3))})


class Wrapper(nn.Module):
    """Stands in for vLLM's wrapper of a module that adapters change."""

    def __init__(self, base_layer: nn.Module) -> None:
        super().__init__()
        self.base_layer = base_layer


class Processor:
    """Stands in for vLLM's, of one rank."""

    head_dtype = torch.float32

    def __call__(self, head: nn.Linear, states: Tensor) -> Tensor:
        """Logits over the target's vocabulary."""
        logits: Tensor = head(states)
        return logits[:, :VOCABULARY]


def drafter(vocabularies: DraftVocabularies | None, static: bool, monkeypatch: pytest.MonkeyPatch) -> Any:
    """One that shares a target's head, which has two rows that fill up."""
    monkeypatch.setattr(model, "head_ranks", lambda: SINGLE_RANK)
    made: Any = DrafterForCausalLM.__new__(DrafterForCausalLM)
    nn.Module.__init__(made)
    made.model, made.draft_logits, made.vocabularies, made.logits_processor = None, None, vocabularies, Processor()
    made.target = SimpleNamespace(vocab_size=VOCABULARY, hidden_size=SIZE)
    made.lm_head = nn.Linear(SIZE, VOCABULARY + 2 * (vocabularies is not None), bias=False)
    made.gather_rows(static)
    return made


@pytest.mark.parametrize("static", [True, False])
def test_a_head_of_fp8_without_a_method_is_refused(static: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows mean nothing without their scales."""
    made = drafter(DraftVocabularies(RANKINGS, VocabularySettings(size=3, language="high")), static, monkeypatch)
    weight = made.lm_head.weight.data.to(torch.float8_e4m3fn)
    made.lm_head.weight = nn.Parameter(weight, requires_grad=False)
    with pytest.raises(MTPCError, match=r"an output head for states of 4 numbers.*; set its language to 'none'\.$"):
        made.gather_rows(static)


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("kind", ["whole", "one", "two"])
@torch.inference_mode()
def test_logits(kind: str, static: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And all that is drawn from them, or taken for likeliest."""
    languages = {"one": "high", "two": "auto"}
    settings = VocabularySettings(size=3, language=languages.get(kind, "auto"))
    made = drafter(None if kind == "whole" else DraftVocabularies(RANKINGS, settings), static, monkeypatch)
    states = torch.randn(ROWS, SIZE)
    logits = (states @ made.lm_head.weight.T)[:, :VOCABULARY]
    numbers = torch.tensor([0, 1, 0]) if kind == "two" and not static else None
    drafted = torch.ones(ROWS, VOCABULARY, dtype=torch.bool)
    if kind == "one":
        drafted[:, :3] = False
    elif numbers is not None:
        drafted[:, 3:] = False
        drafted[1] = ~drafted[1]
    expected = logits.masked_fill(~drafted, -torch.inf)
    torch.testing.assert_close(made.compute_logits(states, numbers), expected)
    assert torch.equal(made.greedy(states, numbers), expected.argmax(-1))

    copied = torch.tensor([1, 4, 2])
    for found, right in zip(made.most_probable(states, copied, numbers), most_probable(expected, copied), strict=True):
        torch.testing.assert_close(found, right)
    temperature, uniforms = torch.tensor([0.7, 1.0, 1.3]), torch.rand(ROWS, dtype=torch.float64)
    found_tokens, found_probs = made.drawn(states, temperature, uniforms, numbers)
    tokens, probs = draw_tokens(expected, temperature, uniforms)
    torch.testing.assert_close(found_probs, probs)
    assert found_probs.gather(1, found_tokens[:, None]).all()
    if kind == "whole":
        assert torch.equal(found_tokens, tokens)

    other, weights = torch.tensor([4, 1, 2]), torch.tensor([0.5, 0.25, 0.0])  # the first two are not drafted from "two"
    copying = Copying(Copied(other[:, None], weights[:, None]), 0, weights)
    mixed_tokens, mixed, likely = made.drawn_mixed(states, temperature, uniforms, copying, numbers)
    torch.testing.assert_close(mixed, copying.mixed(probs))
    torch.testing.assert_close(likely, copying.drafter_probability(probs))
    assert mixed.gather(1, mixed_tokens[:, None]).all()
    always, never = (copying._replace(weight=torch.full((ROWS,), weight)) for weight in (1.0, 0.0))
    assert torch.equal(made.drawn_mixed(states, temperature, uniforms, always, numbers)[0], other)
    unmixed_tokens, unmixed, _ = made.drawn_mixed(states, temperature, uniforms, never, numbers)
    assert torch.equal(unmixed_tokens, found_tokens)
    assert torch.equal(unmixed, found_probs)


def test_drafters_use_no_adapter_of_the_target() -> None:
    """VLLM assigns the wrappers of LoRA on the V1 runner; they run on the target's batch only."""
    made: Any = DrafterForCausalLM.__new__(DrafterForCausalLM)
    nn.Module.__init__(made)
    plain = [nn.Embedding(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)]
    embedding, head, projection = (Wrapper(each) for each in plain)
    made.model = nn.Module()
    for _ in range(2):  # with adapters, and without
        made.model.embed_tokens, made.lm_head = embedding, head
        made.share_target(nn.Module())
        assert [made.model.embed_tokens, made.lm_head] == plain[:2]
        embedding, head = plain[:2]
    block: Any = VLLMAdaptedBlock.__new__(VLLMAdaptedBlock)
    nn.Module.__init__(block)
    block.adapters = nn.ModuleDict()
    assert block._adapted("o_proj", SimpleNamespace(o_proj=projection)) is plain[2]
