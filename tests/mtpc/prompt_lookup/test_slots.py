"""What slots on the device propose and learn, against requests on the host."""

from __future__ import annotations

import random

import pytest
import torch

from mtpc.prompt_lookup.calibration import MAX_OFFSET
from mtpc.prompt_lookup.mixture import mixture_weight
from mtpc.prompt_lookup.request import CopyRequest
from mtpc.prompt_lookup.slots import SlotCopying
from mtpc.prompt_lookup.table import COMMON, CopyTable

SLOTS, WIDTH, DRAFTS, VOCABULARY = 5, 200, 4, 3


class Batch:
    """Requests on the host and the same in slots, whose texts go on alike."""

    def __init__(self, table: CopyTable) -> None:
        self.table, self.device = table, SlotCopying(table, SLOTS, DRAFTS, VOCABULARY, torch.device("cpu"))
        self.texts = torch.randint(3, (SLOTS, WIDTH), dtype=torch.int32)  # what others have left there
        self.lengths = torch.zeros(SLOTS, dtype=torch.int32)
        self.host: dict[int, CopyRequest] = {}

    def begin(self, slot: int, text: list[int]) -> None:
        self.host[slot] = CopyRequest(self.table, text, VOCABULARY)
        self.device.begin(slot)
        self.texts[slot, : len(text)] = torch.tensor(text)
        self.lengths[slot] = len(text)

    def step(self, emitted: dict[int, list[int]], padded: int = 0) -> torch.Tensor:
        """Run one step of these slots in this order, and return the proposed tokens [B, K].

        A slot without new tokens gets no draft.
        """
        for slot, tokens in emitted.items():
            start = int(self.lengths[slot])
            self.texts[slot, start : start + len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
            self.lengths[slot] += len(tokens)
        slots = torch.tensor([*emitted, *[-1] * padded])
        counts = torch.tensor([*map(len, emitted.values()), *[7] * padded], dtype=torch.int32)
        found = self.device.propose(self.texts, self.lengths, slots, counts)
        for row, (slot, tokens) in enumerate(emitted.items()):
            if not tokens:
                assert not found.chances[row].any() and not found.tokens[row].any()
                continue
            self.host[slot].append(tokens)
            expected = self.host[slot].propose(DRAFTS)
            weights = [mixture_weight(chance) for chance in expected.chances]
            assert found.chances[row].tolist() == pytest.approx(weights, abs=1e-6)
            assert self.device.offsets[slot].item() == pytest.approx(self.host[slot].calibration.offset, abs=1e-6)
            assert found.tokens[row].tolist() == expected.tokens
        return found.tokens


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("table", [COMMON, (0.5, 0.9999), (1e-9,)], ids=["common", "nearly certain", "nearly never"])
def test_as_on_the_host(table: tuple[float, ...], seed: int) -> None:
    chance, batch = random.Random(seed), Batch(CopyTable(table))
    proposed: dict[int, list[int]] = {}
    for _ in range(30):
        for slot in range(SLOTS):
            if slot not in batch.host or chance.random() < 0.05:  # a new request
                prompt = [chance.randrange(-1, VOCABULARY + 1) for _ in range(chance.randrange(1, 20))]
                batch.begin(slot, prompt)
                proposed.pop(slot, None)
        emitted = {}
        for slot in chance.sample(range(SLOTS), chance.randint(1, SLOTS)):
            new = [chance.randrange(3) for _ in range(chance.randint(1, DRAFTS + 1))]
            right = chance.randint(0, DRAFTS) if slot in proposed else 0
            emitted[slot] = (proposed.get(slot, [])[:right] + new)[: DRAFTS + 1]
        tokens = batch.step(emitted, padded=chance.randrange(3))
        proposed |= {slot: tokens[row].tolist() for row, slot in enumerate(emitted)}


@pytest.mark.parametrize("emitted", [[2, 2, 2, 2], [2, 0], [0]])
@pytest.mark.parametrize("shift", [MAX_OFFSET, -MAX_OFFSET])
def test_a_shift_goes_only_so_far(shift: float, emitted: list[int]) -> None:
    batch = Batch(CopyTable((0.5,)))
    batch.begin(1, [2, 2, 2])
    batch.device.offsets[1] = batch.host[1].calibration.offset = shift
    batch.step({1: [2]})
    batch.step({1: emitted})
    assert abs(batch.device.offsets[1].item()) <= MAX_OFFSET


def test_a_request_that_is_still_read_learns_nothing_and_gets_nothing() -> None:
    batch = Batch(CopyTable())
    batch.begin(0, [1, 2, 1, 2, 1])
    batch.begin(3, [1, 2, 1, 2, 1])
    batch.step({0: [], 3: [2]})
    batch.step({0: [2], 3: [1]})
    assert batch.device.offsets[0] == 0
    assert batch.device.offsets[3] > 0


def test_a_new_request_begins_anew_in_its_slot() -> None:
    batch = Batch(CopyTable())
    batch.begin(2, [1, 2, 1, 2, 1])
    batch.step({2: [2]})
    batch.step({2: [1, 2]})
    assert batch.device.offsets[2] > 0
    batch.begin(2, [1, 2, 1, 2, 1])
    assert batch.device.offsets[2] == 0
    batch.step({2: [2]})
    assert batch.device.offsets[2] == 0


def test_padded_rows_leave_all_slots_alone() -> None:
    batch = Batch(CopyTable())
    for slot in range(SLOTS):
        batch.begin(slot, [1, 2, 1, 2, 1])
    before = batch.device.offsets[:SLOTS].clone(), batch.device.proposed.chances[:SLOTS].clone()
    batch.step({}, padded=3)
    assert torch.equal(batch.device.offsets[:SLOTS], before[0])
    assert torch.equal(batch.device.proposed.chances[:SLOTS], before[1])
