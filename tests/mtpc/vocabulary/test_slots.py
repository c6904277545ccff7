"""Languages found on the device are those that the host finds."""

from __future__ import annotations

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from mtpc.metrics.slot_tally import SlotTally
from mtpc.metrics.tally import Tally
from mtpc.vocabulary.language import LanguageDetector
from mtpc.vocabulary.ranking import Ranking, Rankings
from mtpc.vocabulary.requests import MAX_READ_TOKENS, LanguageState, choose_all
from mtpc.vocabulary.slots import SlotLanguages
from mtpc.vocabulary.template import Template

VOCAB, DRAFTS, LENGTH, SPECIAL = 40, 3, 200, 39
LANGUAGES = {"low": Ranking(tuple(range(15))), "high": Ranking(tuple(range(14, 29)))}
NAMES = (*LANGUAGES, "all")
RANKINGS, TEMPLATE = Rankings(VOCAB, LANGUAGES), Template(special=(SPECIAL,))
DETECTOR = LanguageDetector(RANKINGS, TEMPLATE, half_life=8.0, surcharge=0.2)


def test_as_on_the_host() -> None:
    """Of texts that change their languages, in steps of any length and rows in any order."""
    torch.manual_seed(0)
    spans = [(0, 15), (14, 29), (29, SPECIAL)]
    texts = [[int(torch.randint(*spans[(place // 40 + row) % 3], ())) for place in range(LENGTH)] for row in range(3)]
    texts[1][50:60] = [SPECIAL] * 10
    table, lengths = torch.tensor(texts, dtype=torch.int32), torch.tensor([1, 9, 30], dtype=torch.int32)
    languages, readings = (
        SlotLanguages(DETECTOR, 3, DRAFTS, torch.device("cpu")),
        [LanguageState(DETECTOR) for _ in texts],
    )
    for slot, reading in enumerate(readings):
        languages.begin(slot, texts[slot][: lengths[slot]])
        reading.read(texts[slot][: lengths[slot]])
    seen, tally = set(), Tally(NAMES)
    languages.tally = SlotTally(NAMES, DRAFTS, torch.device("cpu"))
    for step in range(40):
        slots = torch.tensor([-1, *torch.randperm(3).tolist()])
        emitted = torch.randint(DRAFTS + 2, (4,), dtype=torch.int32)
        rejected = (DRAFTS + 1 - emitted) * (emitted > 0)
        lengths[slots[1:]] += emitted[1:]
        languages.read(table, lengths, slots, emitted, rejected)
        tally.count_drafts(
            (readings[slot].vocabulary, DRAFTS, int(emitted[row]) - 1)
            for row, slot in enumerate(slots.tolist())
            if slot >= 0 and emitted[row] and readings[slot].vocabulary is not None
        )
        for row, slot in enumerate(slots.tolist()[1:], start=1):
            readings[slot].read(texts[slot][int(lengths[slot] - emitted[row]) : int(lengths[slot])])
            assert languages.of(slots)[row] == choose_all([readings[slot]], tally)[0], step
            seen.add(readings[slot].vocabulary)
        assert languages.of(slots.flip(0)).tolist()[-1] == readings[slots[-1]].vocabulary
    assert seen == {0, 1, 2}
    languages.tally.begun = True
    assert languages.tally.totals() == tally.totals()


def test_what_no_language_suits_is_all_tokens() -> None:
    """Also where the host would draft from all languages together instead."""
    both = LanguageDetector(RANKINGS, TEMPLATE, half_life=8.0, surcharge=0.2, union_tokens=np.arange(29))
    assert (both.union, both.everything) == (2, 3)
    text = torch.cat([torch.randint(*span, (40,)) for span in ((0, 15), (0, 29), (14, 29), (29, SPECIAL))])
    found = []
    for detector in (DETECTOR, both):
        languages = SlotLanguages(detector, 1, DRAFTS, torch.device("cpu"))
        languages.begin(0, text[:9].tolist())
        rows, numbers = torch.zeros(1, dtype=torch.int64), []
        for length in range(10, len(text) + 1):
            languages.read(text[None].int(), torch.tensor([length]), rows, torch.ones(1, dtype=torch.int32))
            numbers.append(int(languages.of(rows)))
        found.append([min(number, 2) for number in numbers])
        assert set(numbers) == {0, 1, detector.everything}
    assert found[0] == found[1]


def test_nothing_asks_for_a_value() -> None:
    """As in a CUDA graph: on fake tensors whatever does so raises."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        languages = SlotLanguages(DETECTOR, 3, DRAFTS, torch.device("cpu"))
        rows = torch.empty(2, dtype=torch.int64)
        languages.tally = SlotTally(NAMES, DRAFTS, torch.device("cpu"))
        emitted = rows.int()
        languages.read(torch.empty(3, 9, dtype=torch.int32), torch.empty(3, dtype=torch.int32), rows, emitted, emitted)


def test_the_end_of_a_long_prompt_is_read() -> None:
    """The evidence of what comes before it has decayed."""
    text = [token % 29 for token in range(3 * MAX_READ_TOKENS)]
    languages = SlotLanguages(DETECTOR, 1, DRAFTS, torch.device("cpu"))
    languages.begin(0, text)
    assert torch.equal(languages.evidence[0], torch.from_numpy(DETECTOR.read(DETECTOR.begin(), text)))
