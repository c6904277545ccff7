"""The greedy drafts of vLLM's own drafters mixed with prompt lookup, computed anew for each text with transformers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from mtpc.draft_length.budget import DraftBudget
from mtpc.draft_length.controller import DraftLengths
from mtpc.draft_length.cost import FREE_DRAFTS
from mtpc.prompt_lookup.mixture import Copying
from mtpc.prompt_lookup.table import CopyTable
from mtpc.vocabulary.vocabularies import DraftVocabularies
from tests.oracles.request_languages import RequestLanguages


class Model(Protocol):
    """A drafter."""

    def logits(self, text: list[int], drafted: list[int]) -> Tensor:
        """Of the token after a text and its first drafts, [V]."""


class DraftModel:
    """A small model that reads text and drafts alike."""

    def __init__(self, folder: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    @torch.inference_mode()
    def logits(self, text: list[int], drafted: list[int]) -> Tensor:
        logits: Tensor = self.model(input_ids=torch.tensor([text + drafted])).logits[0, -1]
        return logits


class Eagle:
    """A layer of `tests.support.random_native.make_eagle`, behind a Llama whose embedding and head it uses."""

    def __init__(self, target: Path, folder: Path) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval()
        tensors = load_file(folder / "model.safetensors")
        self.projection = tensors.pop("fc.weight")
        layer = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).eval().model.layers[-1]
        layer.input_layernorm = nn.Identity()
        layer.load_state_dict({name.removeprefix("layers.0."): tensor for name, tensor in tensors.items()})
        layer.self_attn.layer_idx = 0
        self.layer = layer

    @torch.inference_mode()
    def logits(self, text: list[int], drafted: list[int]) -> Tensor:
        inner = self.model.model
        states, tokens = inner(input_ids=torch.tensor([text[:-1]])).last_hidden_state, text[1:]
        for token in [*drafted, None]:
            read = torch.cat([inner.embed_tokens(torch.tensor([tokens])), states], -1) @ self.projection.T
            positions = torch.arange(len(tokens))[None]
            mask = torch.full((len(tokens), len(tokens)), -torch.inf).triu(1)[None, None]
            turned = inner.rotary_emb(read, positions)
            out = self.layer(read, attention_mask=mask, position_ids=positions, position_embeddings=turned)
            out = out[0] if isinstance(out, tuple) else out
            if token is not None:
                states, tokens = torch.cat([states, out[:, -1:]], 1), [*tokens, token]
        logits: Tensor = self.model.lm_head(out)[0, -1]
        return logits


def greedy_drafts(
    model: Model,
    prompt: list[int],
    emitted: Sequence[int],
    count: int,
    vocabularies: DraftVocabularies | None = None,
    ragged: bool = False,
) -> tuple[list[tuple[int, ...]], int]:
    """The drafts of every step of a greedy text, and how many of their tokens only prompt lookup could have made.

    ragged: as on the V1 runner, where the model drafts nothing if all may be copied.
    """
    lengths = DraftLengths(DraftBudget(count, count), count, FREE_DRAFTS, CopyTable(), 1 << 16)
    known, new = 1, list(emitted[:1])
    languages = None
    if vocabularies is not None and vocabularies.detector is not None:
        languages = RequestLanguages(vocabularies.detector)
    drafts, outside = [], 0
    while known < len(emitted):
        lengths.begin()
        lengths.add("text", lambda: prompt, new, waiting=False)
        own_drafts = lengths.plan(count) if ragged else count
        text = [*prompt, *emitted[:known]]
        allowed = torch.ones(1)
        if vocabularies is not None:
            number = languages.choose("text", text) if languages is not None else 0
            allowed = torch.isin(torch.arange(vocabularies.vocab_size), vocabularies.ids[number])
        copying = Copying.begin(lengths.copied(count))
        drafted: list[int] = []
        for _ in range(own_drafts):
            own = model.logits(text, drafted).masked_fill(allowed == 0, -torch.inf).softmax(-1)[None]
            token = copying.mixed(own).argmax(-1)
            outside += not own[0, token].item()
            copying = copying.drafted(token, copying.drafter_probability(own))
            drafted.append(int(token))
        if not own_drafts:
            drafted = lengths.proposals[0].tokens[:count]
        drafts.append(tuple(drafted))
        right = [one == other for one, other in zip(drafted, emitted[known:], strict=False)]
        accepted = ([*right, False]).index(False)
        new = list(emitted[known : known + accepted + 1])
        known += accepted + 1
    return drafts, outside
