"""A step of many tokens ends a text where steps of one token end it, by SGLang's own search in its own ``Req``."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.sampling.sampling_params import SamplingParams

from sglang_mtpc.finish import update_finish_state

PROMPT = [1, 2]


class Letters:
    """A tokenizer of letters, some tokens of two."""

    eos_token_id = 25
    additional_stop_token_ids = None

    def decode(self, tokens: list[int]) -> str:
        """The text of tokens."""
        return "".join(chr(97 + token % 26) * (1 + token // 26) for token in tokens)

    def encode(self, text: str, **more: Any) -> list[int]:
        """The tokens of a text."""
        return [ord(letter) - 97 for letter in text]


class Grammar:
    """One that has read the whole step."""

    def __init__(self, ends: bool) -> None:
        self.ends = ends

    def is_terminated(self) -> bool:
        """Whether the text may not go on."""
        return self.ends


def request(**sampling: Any) -> Req:
    """One without output yet."""
    asked = SamplingParams(**sampling)
    asked.normalize(Letters())
    made = Req("name", "ab", PROMPT, asked)
    made.tokenizer = Letters()
    return made


def ended(made: Req, steps: list[list[int]], grammar_ends_at: int | None = None) -> tuple[Any, list[int]]:
    """Return the finish reason and the tokens of the text after these steps."""
    for step in steps:
        made.output_ids.extend(step)
        if grammar_ends_at is not None:
            made.grammar = Grammar(len(made.output_ids) >= grammar_ends_at)
        update_finish_state(Req.update_finish_state, made, len(step))
        if made.finished():
            break
    reason = made.finished_reason
    return reason and reason.to_json(), list(made.output_ids[: made.finished_len])


@pytest.mark.parametrize(
    ("tokens", "sampling", "text"),
    [
        ([0, 1, 2, 3], {"stop": ["d", "bc"]}, "abc"),  # the first in the text, not in the list
        ([0, 1, 2, 3], {"stop": ["cd"], "max_new_tokens": 3}, "abc"),  # not complete within the limit
        ([0, 25, 2, 3], {"stop": ["d"]}, "az"),
        ([0, 1, 2, 3], {"stop_regex": ["b$"]}, "ab"),
    ],
    ids=["two stop strings", "beyond the limit", "end of text before", "pattern"],
)
def test_the_text_ends_at_the_first_end(tokens: list[int], sampling: dict[str, Any], text: str) -> None:
    found = ended(request(**{"max_new_tokens": 9} | sampling), [tokens])
    assert Letters().decode(found[1]) == text
    assert found == ended(request(**{"max_new_tokens": 9} | sampling), [[token] for token in tokens])


def test_a_grammar_that_ends_with_the_step_does_not_end_it_before() -> None:
    asked = {"stop": ["x"], "max_new_tokens": 9}
    assert ended(request(**asked), [[0, 1, 2]], grammar_ends_at=3)[1] == [0, 1, 2]


def test_a_pattern_that_fails_ends_the_text_with_the_token_that_was_searched() -> None:
    """SGLang names no length for it."""
    made = request(stop=["x"], max_new_tokens=9)
    made.sampling_params.stop_regex_strs = ["("]  # a request that asks for it is refused
    reason, tokens = ended(made, [[0, 1, 2]])
    assert (reason["type"], tokens) == ("abort", [0])


def test_steps_of_any_length_end_alike() -> None:
    generator = random.Random(1)
    ends = set()
    for _ in range(400):
        tokens = [generator.choice([0, 1, 2, 3, 26, 27, 25 if generator.random() < 0.1 else 2]) for _ in range(30)]
        stops = ["".join(generator.choices("abcd", k=generator.randint(1, 4))) for _ in range(generator.randint(1, 3))]
        asked: dict[str, Any] = {"stop": stops, "max_new_tokens": generator.randint(3, 25)}
        if generator.random() < 0.3:
            asked["stop_regex"] = [generator.choice(["a+b$", "[cd]{3}", "^b"])]
        steps, left = [], list(tokens)
        while left:
            size = generator.randint(1, 8)
            steps.append(left[:size])
            left = left[size:]
        found = ended(request(**asked), steps)
        assert found == ended(request(**asked), [[token] for token in tokens])
        assert found[0] is not None
        ends.add(found[0]["type"] + str(type(found[0].get("matched"))))
    assert len(ends) == 3  # a string, a token, the limit
