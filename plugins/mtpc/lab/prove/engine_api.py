"""Requests to vLLM and SGLang, by token ids, for completions and for the log-probabilities of given tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field

from mtpc.files.config_model import validated_json
from mtpc.lab.prove.plan import GREEDY, TOP_LOGPROBS, SamplingSetting
from mtpc.lab.servers.draft_counters import NO_DRAFTS, DraftCounters
from mtpc.lab.servers.sglang_engine import read_details

TokenIds = tuple[int, ...]
Post = tuple[str, dict[str, Any]]  # route and JSON


class CompletionRequest(NamedTuple):
    """A request for several completions of one prompt, none of which ends early.

    Attributes:
        prompt: The prompt.
        tokens: Tokens of each completion.
        sampling: Sampling parameters.
        times: Number of completions.
        seed: Seed of the request; None to send none.
    """

    prompt: TokenIds
    tokens: int
    sampling: SamplingSetting = GREEDY
    times: int = 1
    seed: int | None = None


class TopLogprobs(NamedTuple):
    """The most probable next tokens, in descending order.

    Attributes:
        ids: Their ids, at most `TOP_LOGPROBS`.
        logprobs: Their log-probabilities at temperature 1.
    """

    ids: TokenIds
    logprobs: tuple[float, ...]


@dataclass(frozen=True)
class EngineAPI:
    """The HTTP interface of an engine.

    Readers raise `MTPCError`, which begins with the given text, where a response has another form.

    Attributes:
        name: Name of the engine.
        top_p_after_top_k: Whether top-p applies to the tokens that top-k keeps, renormalized, or to all tokens.
        completion_request: Returns route and JSON of a completion, from the model's name and the request.
        read_completions: Returns the completions and the counts of draft tokens in a response.
        logprobs_request: Returns route and JSON that ask for log-probabilities, from the model's name, the tokens and
            the first position.
        read_logprobs: Returns the most probable tokens at each position from the first on.
    """

    name: str
    top_p_after_top_k: bool
    completion_request: Callable[[str, CompletionRequest], Post]
    read_completions: Callable[[bytes, str], tuple[list[TokenIds], DraftCounters]]
    logprobs_request: Callable[[str, TokenIds, int], Post]
    read_logprobs: Callable[[bytes, str, int], list[TopLogprobs]]


class VLLMChoice(BaseModel):
    """One completion of vLLM's response."""

    token_ids: list[int]


class VLLMCompletions(BaseModel):
    """vLLM's response to a completion request."""

    choices: Annotated[list[VLLMChoice], Field(min_length=1)]


class VLLMLogprob(BaseModel):
    """The log-probability of one token."""

    logprob: float


class VLLMPromptChoice(BaseModel):
    """Log-probabilities at each position of a prompt; None at the first one."""

    prompt_logprobs: list[dict[int, VLLMLogprob] | None]


class VLLMPromptLogprobs(BaseModel):
    """vLLM's response with log-probabilities of a prompt."""

    choices: Annotated[list[VLLMPromptChoice], Field(min_length=1)]


def _vllm_completion_request(model: str, request: CompletionRequest) -> Post:
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


def _vllm_read_completions(content: bytes, expected: str) -> tuple[list[TokenIds], DraftCounters]:
    choices = validated_json(VLLMCompletions, content, expected).choices
    return [tuple(choice.token_ids) for choice in choices], NO_DRAFTS


def _vllm_logprobs_request(model: str, tokens: TokenIds, start: int) -> Post:
    body = {"model": model, "prompt": tokens, "max_tokens": 1, "temperature": 0, "prompt_logprobs": TOP_LOGPROBS}
    return "/v1/completions", body


def _vllm_read_logprobs(content: bytes, expected: str, start: int) -> list[TopLogprobs]:
    positions = validated_json(VLLMPromptLogprobs, content, expected).choices[0].prompt_logprobs[start:]
    return [_ranked([(entry.logprob, token) for token, entry in (each or {}).items()]) for each in positions]


class SGLangMeta(BaseModel):
    """The fields of ``meta_info`` in SGLang's response that are read."""

    input_top_logprobs: list[list[tuple[float, int, str | None]] | None] | None = None
    spec_verify_ct: int = 0
    spec_num_proposed_drafts: int = 0
    spec_num_correct_drafts: int = 0
    spec_correct_drafts_histogram: list[int] = []


class SGLangOutput(BaseModel):
    """SGLang's response."""

    output_ids: list[int]
    meta_info: SGLangMeta


def _sglang_completion_request(model: str, request: CompletionRequest) -> Post:
    sampling = request.sampling.model_dump() | {"top_k": request.sampling.top_k or -1}
    parameters = {"max_new_tokens": request.tokens, "n": request.times, **sampling, "min_p": 0.0, "ignore_eos": True}
    parameters |= {"repetition_penalty": 1.0} | ({} if request.seed is None else {"sampling_seed": request.seed})
    return "/generate", {"input_ids": request.prompt, "sampling_params": parameters}


def _sglang_read_completions(content: bytes, expected: str) -> tuple[list[TokenIds], DraftCounters]:
    found = validated_json(list[SGLangOutput] | SGLangOutput, content, expected)  # type: ignore[arg-type]  # a union
    responses: Sequence[SGLangOutput] = found if isinstance(found, list) else [found]
    counts = NO_DRAFTS
    for response in responses:
        counts += read_details({"sglext": {"spec_tokens_details": response.meta_info.model_dump()}}) or NO_DRAFTS
    return [tuple(response.output_ids) for response in responses], counts


def _sglang_logprobs_request(model: str, tokens: TokenIds, start: int) -> Post:
    parameters = {"max_new_tokens": 1, "temperature": 0}
    logprobs = {"return_logprob": True, "logprob_start_len": start - 1, "top_logprobs_num": TOP_LOGPROBS}
    return "/generate", {"input_ids": tokens, "sampling_params": parameters, **logprobs}


def _sglang_read_logprobs(content: bytes, expected: str, start: int) -> list[TopLogprobs]:
    positions = validated_json(SGLangOutput, content, expected).meta_info.input_top_logprobs or []
    return [_ranked([entry[:2] for entry in each or ()]) for each in positions[1:]]


def _ranked(entries: Sequence[tuple[float, int]]) -> TopLogprobs:
    """Sort entries and keep the first ones: vLLM adds the prompt's own token where it is not among them."""
    first = sorted(entries, key=lambda entry: -entry[0])[:TOP_LOGPROBS]
    return TopLogprobs(tuple(token for _, token in first), tuple(logprob for logprob, _ in first))


VLLM = EngineAPI(
    "vllm",
    True,
    _vllm_completion_request,
    _vllm_read_completions,
    _vllm_logprobs_request,
    _vllm_read_logprobs,
)
SGLANG = EngineAPI(
    "sglang",
    False,
    _sglang_completion_request,
    _sglang_read_completions,
    _sglang_logprobs_request,
    _sglang_read_logprobs,
)
