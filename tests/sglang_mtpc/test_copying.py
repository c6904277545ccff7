"""What a batch of SGLang's requests would copy, whatever order they come in, and when a text is forgotten."""

from __future__ import annotations

import gc
from array import array
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mtpc.copying.request import CopyRequest
from mtpc.copying.table import CopyTable
from sglang_mtpc.copying import WorkerCopying

TABLE = CopyTable((0.2, 0.5, 0.8))


class Request(SimpleNamespace):
    """What is read of SGLang's ``Req``, which like this is equal to itself alone."""

    __hash__, __eq__ = object.__hash__, object.__eq__


def request(prompt: list[int]) -> Any:
    return Request(origin_input_ids=array("q", prompt), output_ids=array("q"))


def test_the_text_goes_on_as_before() -> None:
    copying, one, other = WorkerCopying(TABLE, torch.device("cpu")), request([1, 2, 3, 4, 1, 2]), request([7, 8, 9])
    tokens, chances = copying.copied([other, one], 3)
    assert tokens[1].tolist() == [3, 4, 1]
    assert chances[1].tolist() == pytest.approx(TABLE.along(2, 3))
    assert chances[0].tolist() == [0.0, 0.0, 0.0]
    one.output_ids.extend([3, 9])
    other.output_ids.extend([8])
    tokens, chances = copying.copied([one, other], 2)  # the match is of prompt and output
    assert tokens[1].tolist() == [9, 8]
    assert not chances[0].any()
    assert tokens.dtype == torch.int64
    assert chances.dtype == torch.float32


def test_what_was_said_is_learned_from() -> None:
    """Chances are those of `CopyRequest`, told of the same text in the same parts."""
    copying, one, plain = WorkerCopying(TABLE, torch.device("cpu")), request([1, 2, 1]), CopyRequest(TABLE, [1, 2, 1])
    for said in ([2, 1, 2], [1], [5], [1, 2, 7], []):
        expected = plain.propose(4)
        tokens, chances = copying.copied([one], 4)
        assert tokens[0].tolist() == expected.tokens.tolist()
        assert np.array_equal(chances[0].numpy(), expected.chances)
        one.output_ids.extend(said)
        plain.append(said)


def test_a_request_that_is_gone_is_forgotten() -> None:
    copying, one = WorkerCopying(TABLE, torch.device("cpu")), request([1, 1])
    copying.copied([one], 1)
    assert len(copying.texts) == 1
    del one
    gc.collect()
    assert not copying.texts
