"""Settings of the n-gram drafter (prompt lookup) that both engines include."""

from __future__ import annotations

import json
import re
from typing import NamedTuple, Self

from mtpc.errors import MTPCError


class Ngram(NamedTuple):
    """Setting of an engine's own n-gram drafter.

    Attributes:
        shortest: Smallest number of tokens that must match.
        longest: Largest number of tokens that are matched.
        drafts: Draft tokens after a match, K.
    """

    shortest: int
    longest: int
    drafts: int

    @classmethod
    def parse(cls, setting: str) -> Self:
        """Parse a setting.

        Args:
            setting: Text of the form MIN-MAX:K.

        Returns:
            The setting.

        Raises:
            MTPCError: The text has another form, or MIN is above MAX.
        """
        found = re.fullmatch(r"(\d+)-(\d+):(\d+)", setting, re.ASCII)
        numbers = cls(*map(int, found.groups())) if found else cls(0, 0, 0)
        if not 1 <= numbers.shortest <= numbers.longest or numbers.drafts < 1:
            raise MTPCError(f"--ngram is {setting!r}, but MIN-MAX:K is expected, as in --ngram 2-4:5.")
        return numbers

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        return f"{self.shortest}-{self.longest}:{self.drafts}"


def ngram_config(ngram: Ngram) -> str:
    """Return vLLM's ``--speculative-config`` as JSON."""
    values = {"method": "ngram", "prompt_lookup_min": ngram.shortest, "prompt_lookup_max": ngram.longest}
    return json.dumps(values | {"num_speculative_tokens": ngram.drafts}, separators=(",", ":"))


def ngram_arguments(ngram: Ngram) -> list[str]:
    """Return SGLang's arguments.

    Args:
        ngram: The setting; SGLang matches any length up to the longest, and counts the pending token as a draft token.
    """
    arguments = ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", str(ngram.drafts + 1)]
    return [*arguments, "--speculative-ngram-max-trie-depth", str(ngram.longest + ngram.drafts)]
