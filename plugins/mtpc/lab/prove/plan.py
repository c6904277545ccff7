"""What a server is asked, and how much of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from mtpc.errors import MTPCError
from mtpc.files.config_model import Strict, declared

KNOWN = 20  # of the most probable next tokens the baseline states how probable they are: vLLM states no more


class Sampling(Strict):
    """The sampling parameters of a request; top_k 0 and top_p 1 leave all tokens.  Temperature 0 is greedy."""

    temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
    top_k: Annotated[int, Field(ge=0, lt=KNOWN)] = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0

    def __str__(self) -> str:
        """As `parse_samplings` reads it."""
        return f"{self.temperature:g}/{self.top_k}/{self.top_p:g}"


GREEDY = Sampling(temperature=0)
FORMS = "temperature, temperature/top-k or temperature/top-k/top-p, as in 1,0.7/10,1/0/0.9"


def parse_samplings(text: str) -> tuple[Sampling, ...]:
    """Samplings with commas.

    Errors: `MTPCError` for other text, or a temperature of 0: greedy texts are compared in any case.
    """
    found: list[Sampling] = []
    for part in text.split(","):
        parts = part.split("/")
        try:
            temperature, top_k, top_p = [*parts, *("1", "0", "1")[len(parts) :]]
            values = {"temperature": float(temperature), "top_k": int(top_k), "top_p": float(top_p)}
        except ValueError:
            values = {"temperature": 0}
        if not values["temperature"]:
            raise MTPCError(f"--samplings has {part!r}, but each should be {FORMS}.")
        found.append(declared(Sampling, values, f"{part!r} of --samplings"))
    return tuple(dict.fromkeys(found))


class Plan(Strict):
    """How much a server is asked."""

    samplings: Annotated[tuple[Sampling, ...], Field(min_length=1)]
    samples: PositiveInt = 4000  # beginnings of texts for each sampling, whose joint is compared
    first: PositiveInt = 3  # tokens of such a beginning
    texts: PositiveInt = 400  # for each sampling, of which every token is looked at
    length: PositiveInt = 32  # tokens of such a text
    context: PositiveInt = 16  # tokens of a prompt, its last ones, that sampled texts go on from
    greedy: PositiveInt = 128  # tokens of greedy texts
    repeats: PositiveInt = 8  # of one request, without a seed and with other seeds
    concurrency: PositiveInt = 16  # requests at a time
    seed: NonNegativeInt = 0

    def of_baseline(self) -> Plan:
        """What the baseline is asked itself: less, which only shows that it samples what it states."""
        return self.model_copy(update={"samples": -(-self.samples // 4), "texts": -(-self.texts // 4)})
