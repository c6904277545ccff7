"""The sampling settings and the number of requests of `mtpc prove`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from mtpc.errors import MTPCError
from mtpc.files.config_model import Strict, validated

TOP_LOGPROBS = 20  # most probable tokens whose log-probabilities the baseline states: vLLM allows no more


class SamplingSetting(Strict):
    """Sampling parameters of a request.

    Attributes:
        temperature: Sampling temperature; 0 is greedy.
        top_k: Number of tokens that top-k keeps; 0 keeps all.
        top_p: Probability mass that top-p keeps; 1 keeps all.
    """

    temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
    top_k: Annotated[int, Field(ge=0, lt=TOP_LOGPROBS)] = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0

    def __str__(self) -> str:
        """Return the text that `parse_samplings` reads."""
        return f"{self.temperature:g}/{self.top_k}/{self.top_p:g}"


GREEDY = SamplingSetting(temperature=0)
FORMS = "temperature, temperature/top-k or temperature/top-k/top-p, as in 1,0.7/10,1/0/0.9"


def parse_samplings(text: str) -> tuple[SamplingSetting, ...]:
    """Parse the value of ``--samplings``.

    Args:
        text: Sampling settings, separated by commas.

    Returns:
        The settings, each once.

    Raises:
        MTPCError: A setting has another form, is out of bounds, or has temperature 0 (greedy output is always tested).
    """
    found: list[SamplingSetting] = []
    for part in text.split(","):
        parts = part.split("/")
        try:
            temperature, top_k, top_p = [*parts, *("1", "0", "1")[len(parts) :]]
            values = {"temperature": float(temperature), "top_k": int(top_k), "top_p": float(top_p)}
        except ValueError:
            values = {"temperature": 0}
        if not values["temperature"]:
            raise MTPCError(
                f"--samplings contains {part!r}, but each setting must be {FORMS}, with a temperature above 0."
            )
        found.append(validated(SamplingSetting, values, f"{part!r} of --samplings"))
    return tuple(dict.fromkeys(found))


class ProvePlan(Strict):
    """The number and size of the requests to a server.

    Attributes:
        samplings: Sampling settings to test.
        samples: Outputs per setting whose first tokens are tested jointly.
        first: Number of these first tokens.
        texts: Longer outputs per setting whose every token is tested.
        length: Tokens of such an output.
        context: Last tokens of a prompt that sampled outputs continue.
        greedy: Tokens of a greedy output.
        repeats: Repetitions of one request, without a seed and with different seeds.
        concurrency: Number of requests in flight.
        seed: First of the seeds.
    """

    samplings: Annotated[tuple[SamplingSetting, ...], Field(min_length=1)]
    samples: PositiveInt = 4000
    first: PositiveInt = 3
    texts: PositiveInt = 400
    length: PositiveInt = 32
    context: PositiveInt = 16
    greedy: PositiveInt = 128
    repeats: PositiveInt = 8
    concurrency: PositiveInt = 16
    seed: NonNegativeInt = 0

    def of_baseline(self) -> ProvePlan:
        """Return the plan for the baseline: a fourth of the samples, enough to test that it samples what it states."""
        return self.model_copy(update={"samples": -(-self.samples // 4), "texts": -(-self.texts // 4)})
