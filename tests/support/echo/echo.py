"""An example draft method with a text part: it expects what followed the same token before."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from mtpc.draft import MAX_DRAFTS
from mtpc.draft_model.part import TextDraft, TextPart
from mtpc.draw import choose
from mtpc.files.config_model import Strict
from mtpc.files.target import HiddenSize, VocabSize
from mtpc.methods.contract import DraftMethod, ParallelOnly
from mtpc.methods.drafter import Drafter


class EchoConfig(ParallelOnly, Strict):
    """The section "echo" of config.json."""

    hidden_size: HiddenSize
    vocab_size: VocabSize
    num_drafts: Annotated[int, Field(ge=1, le=MAX_DRAFTS)] = 4

    @property
    def own_drafts(self) -> int:
        """Every draft token is its own."""
        return self.num_drafts

    @property
    def max_drafts(self) -> int:
        """It can draft any number of tokens."""
        return MAX_DRAFTS


class EchoPart(TextPart):
    """Gives the expected token half of the probability, and the other half to all tokens; drafts differ in length."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.texts: dict[Hashable, list[int]] = {}

    def add(self, key: Hashable, text: Callable[[], Sequence[int]], emitted: Sequence[int]) -> None:
        """See `TextPart.add`."""
        if key in self.texts:
            self.texts[key] += emitted
        else:
            self.texts[key] = list(text())

    def draft(
        self, keys: Sequence[Hashable], temperatures: Sequence[float], lengths: Sequence[int], noise: Tensor | None
    ) -> TextDraft:
        """See `TextPart.draft`."""
        drafts, probs = [], []
        for row, (key, temperature, longest) in enumerate(zip(keys, temperatures, lengths, strict=True)):
            text = list(self.texts[key])
            length = len(text) % (longest + 1)
            rows = torch.zeros(max(lengths), self.vocab_size)
            rows[:, 0] = 1.0
            for place in range(length):
                expected = next((b for a, b in zip(text[-2::-1], text[:0:-1], strict=True) if a == text[-1]), text[-1])
                rows[place] = 0.5 / self.vocab_size
                rows[place, expected] += 0.5
                if temperature > 0:
                    assert noise is not None
                    expected = int(choose(rows[place : place + 1], torch.ones(1), noise[row, place : place + 1]))
                else:
                    rows[place] = 0.0
                    rows[place, expected] = 1.0
                text.append(expected)
            drafts.append(text[len(text) - length :])
            probs.append(rows)
        width = max(map(len, drafts), default=0)
        return TextDraft(drafts, torch.stack(probs)[:, :width] if any(temperatures) else None)

    def forget(self, keys: Iterable[Hashable]) -> None:
        """See `TextPart.forget`."""
        for key in keys:
            self.texts.pop(key, None)

    def dummy_draft(self, requests: int, num_drafts: int) -> None:
        """Nothing that takes time."""

    def memory(self) -> int:
        """See `TextPart.memory`."""
        return 0


class Echo(DraftMethod):
    """Drafts from the text alone."""

    name = "echo"
    title = "an echo drafter"
    summary = "expects what followed the same token before"
    architecture = "EagleEchoForCausalLM"
    algorithm = "ECHO"
    config = EchoConfig
    reads_text = True

    def text(self, folder: Path, config: Any, tokenizer: str, device: torch.device) -> TextPart:
        """Build the part, which has no weights."""
        return EchoPart(config.vocab_size)

    def facts(self, drafter: Drafter) -> dict[str, str]:
        """Return no facts other than those of its parts."""
        return {}
