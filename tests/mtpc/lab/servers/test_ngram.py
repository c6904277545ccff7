"""The setting of an engine's own n-gram drafter."""

import pytest

from mtpc.errors import MTPCError
from mtpc.lab.servers.ngram import Ngram


def test_a_setting_is_written_as_it_is_read() -> None:
    assert Ngram.parse("2-14:5") == Ngram(shortest=2, longest=14, drafts=5)
    assert str(Ngram(2, 14, 5)) == "2-14:5"


@pytest.mark.parametrize("setting", ["5", "2-4", "2:5", "4-2:5", "0-4:5", "2-4:0", "2-4:5 ", "-2-4:5", "a-b:c", ""])
def test_anything_else(setting: str) -> None:
    with pytest.raises(MTPCError, match="MIN-MAX:K is expected"):
        Ngram.parse(setting)
