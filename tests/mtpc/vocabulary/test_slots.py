"""Languages found on the device are those that the host finds."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from mtpc.metrics.slot_tally import SlotTally
from mtpc.metrics.tally import Tally
from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.requests import Reading, choose_all
from mtpc.vocabulary.slots import SlotLanguages
from mtpc.vocabulary.template import Template

VOCAB, DRAFTS, LENGTH, SPECIAL = 40, 3, 200, 39
LANGUAGES = {"low": Ranking(tuple(range(15))), "high": Ranking(tuple(range(14, 29)))}
NAMES = (*LANGUAGES, "all")
DETECTOR = LanguageDetector(Rankings(VOCAB, LANGUAGES), Template(special=(SPECIAL,)), half_life=8.0, surcharge=0.2)


def test_as_on_the_host() -> None:
    """Of texts that change their languages, in steps of any length and rows in any order."""
    torch.manual_seed(0)
    spans = [(0, 15), (14, 29), (29, SPECIAL)]
    texts = [[int(torch.randint(*spans[(place // 40 + row) % 3], ())) for place in range(LENGTH)] for row in range(3)]
    texts[1][50:60] = [SPECIAL] * 10
    table, lengths = torch.tensor(texts, dtype=torch.int32), torch.tensor([1, 9, 30], dtype=torch.int32)
    languages, readings = SlotLanguages(DETECTOR, 3, DRAFTS, torch.device("cpu")), [Reading(DETECTOR) for _ in texts]
    for slot, reading in enumerate(readings):
        languages.begin(slot, texts[slot][: lengths[slot]])
        reading.read(texts[slot][: lengths[slot]])
    seen, tally = set(), Tally(NAMES)
    languages.tally = SlotTally(NAMES, DRAFTS, torch.device("cpu"))
    for step in range(40):
        slots = torch.tensor([-1, *torch.randperm(3).tolist()])
        said = torch.randint(DRAFTS + 2, (4,), dtype=torch.int32)
        rejected = (DRAFTS + 1 - said) * (said > 0)
        lengths[slots[1:]] += said[1:]
        languages.read(table, lengths, slots, said, rejected)
        tally.verified(
            (readings[slot].vocabulary, DRAFTS, int(said[row]) - 1)
            for row, slot in enumerate(slots.tolist())
            if slot >= 0 and said[row] and readings[slot].vocabulary is not None
        )
        for row, slot in enumerate(slots.tolist()[1:], start=1):
            readings[slot].read(texts[slot][int(lengths[slot] - said[row]) : int(lengths[slot])])
            assert languages.of(slots)[row] == choose_all([readings[slot]], tally)[0], step
            seen.add(readings[slot].vocabulary)
        assert languages.of(slots.flip(0)).tolist()[-1] == readings[slots[-1]].vocabulary
    assert seen == {0, 1, 2}
    languages.tally.begun = True
    assert languages.tally.totals() == tally.totals()


def test_nothing_asks_for_a_value() -> None:
    """As in a CUDA graph: on fake tensors whatever does so raises."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        languages = SlotLanguages(DETECTOR, 3, DRAFTS, torch.device("cpu"))
        rows = torch.empty(2, dtype=torch.int64)
        languages.tally = SlotTally(NAMES, DRAFTS, torch.device("cpu"))
        said = rows.int()
        languages.read(torch.empty(3, 9, dtype=torch.int32), torch.empty(3, dtype=torch.int32), rows, said, said)
