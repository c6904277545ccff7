"""The n-gram drafter that every engine brings: it drafts what followed where the text's last tokens stood before."""

from __future__ import annotations

import json
import re
from typing import NamedTuple, Self

from mtpc.errors import MTPCError


class Ngram(NamedTuple):
    """Its setting.  shortest, longest: numbers of tokens that match.  drafts: tokens that are drafted then."""

    shortest: int
    longest: int
    drafts: int

    @classmethod
    def parse(cls, setting: str) -> Self:
        """MIN-MAX:K.

        Errors: `MTPCError` for anything else.
        """
        found = re.fullmatch(r"(\d+)-(\d+):(\d+)", setting, re.ASCII)
        numbers = cls(*map(int, found.groups())) if found else cls(0, 0, 0)
        if not 1 <= numbers.shortest <= numbers.longest or numbers.drafts < 1:
            raise MTPCError(f"--ngram is {setting!r}, but MIN-MAX:K is expected, as in 2-4:5.")
        return numbers

    def __str__(self) -> str:
        """As it is parsed."""
        return f"{self.shortest}-{self.longest}:{self.drafts}"


def ngram_config(ngram: Ngram) -> str:
    """VLLM's ``--speculative-config``, as JSON."""
    values = {"method": "ngram", "prompt_lookup_min": ngram.shortest, "prompt_lookup_max": ngram.longest}
    return json.dumps(values | {"num_speculative_tokens": ngram.drafts}, separators=(",", ":"))


def ngram_arguments(ngram: Ngram) -> list[str]:
    """SGLang's arguments.

    It keeps texts of a limited length, each a match and what followed, and counts the pending token as drafted.
    """
    arguments = ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", str(ngram.drafts + 1)]
    return [*arguments, "--speculative-ngram-max-trie-depth", str(ngram.longest + ngram.drafts)]
