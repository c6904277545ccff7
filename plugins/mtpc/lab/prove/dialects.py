"""How vLLM and SGLang are asked for tokens and for what they state of them, both by the ids of tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field

from mtpc.files.config_model import declared_json
from mtpc.lab.prove.plan import GREEDY, KNOWN, Sampling
from mtpc.lab.servers.draft_counters import NO_DRAFTS, DraftCounters
from mtpc.lab.servers.sglang_engine import read_details

Text = tuple[int, ...]
Posted = tuple[str, dict[str, Any]]  # route and JSON


class Request(NamedTuple):
    """Several completions of one prompt, none of which ends early."""

    prompt: Text
    tokens: int
    sampling: Sampling = GREEDY
    times: int = 1
    seed: int | None = None


class Stated(NamedTuple):
    """The most probable next tokens, the first first, and the logarithms of their probabilities at temperature 1."""

    ids: Text
    logprobs: tuple[float, ...]


@dataclass(frozen=True)
class Dialect:
    """How one engine is spoken with.

    complete, state: the model's name and a request, or a text, in its words.  completed, stated: the texts, and what
    is stated of the tokens of a text from a place on, out of an answer; errors are `MTPCError`.
    in_turn: whether top-p is judged on what top-k has left, or on all.
    """

    name: str
    in_turn: bool
    complete: Callable[[str, Request], Posted]
    completed: Callable[[bytes, str], tuple[list[Text], DraftCounters]]
    state: Callable[[str, Text, int], Posted]
    stated: Callable[[bytes, str, int], list[Stated]]


class Choice(BaseModel):
    """One of vLLM's completions."""

    token_ids: list[int]


class Choices(BaseModel):
    """vLLM's answer."""

    choices: Annotated[list[Choice], Field(min_length=1)]


class Logprob(BaseModel):
    """Of one token."""

    logprob: float


class PromptChoice(BaseModel):
    """What vLLM states of a prompt: of its first token nothing."""

    prompt_logprobs: list[dict[int, Logprob] | None]


class PromptChoices(BaseModel):
    """vLLM's answer with that."""

    choices: Annotated[list[PromptChoice], Field(min_length=1)]


def _vllm_complete(model: str, request: Request) -> Posted:
    body = {
        "model": model,
        "prompt": request.prompt,
        "max_tokens": request.tokens,
        "n": request.times,
        **request.sampling.model_dump(),
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    return "/v1/completions", body if request.seed is None else body | {"seed": request.seed}


def _vllm_completed(content: bytes, expected: str) -> tuple[list[Text], DraftCounters]:
    choices = declared_json(Choices, content, expected).choices
    return [tuple(choice.token_ids) for choice in choices], NO_DRAFTS


def _vllm_state(model: str, text: Text, start: int) -> Posted:
    body = {"model": model, "prompt": text, "max_tokens": 1, "temperature": 0, "prompt_logprobs": KNOWN}
    return "/v1/completions", body


def _vllm_stated(content: bytes, expected: str, start: int) -> list[Stated]:
    places = declared_json(PromptChoices, content, expected).choices[0].prompt_logprobs[start:]
    return [_ranked([(entry.logprob, token) for token, entry in (place or {}).items()]) for place in places]


class Meta(BaseModel):
    """What SGLang says about an answer, as far as it is read."""

    input_top_logprobs: list[list[tuple[float, int, str | None]] | None] | None = None
    spec_verify_ct: int = 0
    spec_num_proposed_drafts: int = 0
    spec_num_correct_drafts: int = 0
    spec_correct_drafts_histogram: list[int] = []


class Generated(BaseModel):
    """SGLang's answer."""

    output_ids: list[int]
    meta_info: Meta


def _sglang_complete(model: str, request: Request) -> Posted:
    sampling = request.sampling.model_dump() | {"top_k": request.sampling.top_k or -1}
    parameters = {"max_new_tokens": request.tokens, "n": request.times, **sampling, "min_p": 0.0, "ignore_eos": True}
    parameters |= {"repetition_penalty": 1.0} | ({} if request.seed is None else {"sampling_seed": request.seed})
    return "/generate", {"input_ids": request.prompt, "sampling_params": parameters}


def _sglang_completed(content: bytes, expected: str) -> tuple[list[Text], DraftCounters]:
    found = declared_json(list[Generated] | Generated, content, expected)  # type: ignore[arg-type]  # a union is a type
    answers: Sequence[Generated] = found if isinstance(found, list) else [found]
    counts = NO_DRAFTS
    for answer in answers:
        counts += read_details({"sglext": {"spec_tokens_details": answer.meta_info.model_dump()}}) or NO_DRAFTS
    return [tuple(answer.output_ids) for answer in answers], counts


def _sglang_state(model: str, text: Text, start: int) -> Posted:
    parameters = {"max_new_tokens": 1, "temperature": 0}
    asked = {"return_logprob": True, "logprob_start_len": start - 1, "top_logprobs_num": KNOWN}
    return "/generate", {"input_ids": text, "sampling_params": parameters, **asked}


def _sglang_stated(content: bytes, expected: str, start: int) -> list[Stated]:
    places = declared_json(Generated, content, expected).meta_info.input_top_logprobs or []
    return [_ranked([entry[:2] for entry in place or ()]) for place in places[1:]]


def _ranked(entries: Sequence[tuple[float, int]]) -> Stated:
    """The first of them: vLLM adds the text's own token where it is none of these."""
    first = sorted(entries, key=lambda entry: -entry[0])[:KNOWN]
    return Stated(tuple(token for _, token in first), tuple(logprob for logprob, _ in first))


VLLM = Dialect("vllm", True, _vllm_complete, _vllm_completed, _vllm_state, _vllm_stated)
SGLANG = Dialect("sglang", False, _sglang_complete, _sglang_completed, _sglang_state, _sglang_stated)
