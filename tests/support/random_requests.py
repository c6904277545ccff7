"""What tests of random combinations of features share, whatever the engine."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any
from urllib.error import HTTPError

import torch

from tests.engine.exact import Reference
from tests.engine.prompts import prompts
from tests.engine.server import Server

TOGETHER, PROMPT_TOKENS = 24, 420
CHOICES = {"c": {"enum": ["red", "green"]}, "l": {"type": "boolean"}, "k": {"const": "a box"}}
SCHEMA = {"type": "object", "properties": CHOICES, "required": list(CHOICES), "additionalProperties": False}
SHARED = "".join(prompts(50)[4:8])  # beginnings that the prefix cache holds
PLUGINS = [Path(__file__).with_name(name) for name in ("hybrid", "echo")]  # draft methods of some cases
ABORT = "read before it is aborted"  # key of a request: lines of the answer


def random_prompt(random: Random) -> str:
    """A short or long prompt, for one draft vocabulary or another."""
    prompt = random.choice(prompts(50))
    prompt = prompt[: random.randint(1, len(prompt))]
    prompt = prompt.upper() if random.random() < 0.5 else prompt
    prompt = (random.choice(["", "", SHARED[: random.choice([32, 64, 100, 256])]]) + prompt) * random.choice([1, 1, 3])
    return prompt[:PROMPT_TOKENS]


def sometimes(random: Random, chance: float, **features: Any) -> dict[str, Any]:
    """These features, or none."""
    return features if random.random() < chance else {}


def all_answers(server: Server, route: str, requests: list[dict[str, Any]]) -> list[Any]:
    """Answers to requests, many at a time; a text where one was refused or aborted."""
    with ThreadPoolExecutor(TOGETHER) as pool:
        return list(pool.map(lambda request: _answer(server, route, request), requests))


def _answer(server: Server, route: str, request: dict[str, Any]) -> Any:
    lines = request.get(ABORT)
    body = {key: value for key, value in request.items() if key != ABORT}
    try:
        if lines is None:
            with server.post(route, body) as answer:
                return json.load(answer)
        with server.post(route, body | {"stream": True}) as answer:
            for _ in range(lines):
                answer.readline()
    except HTTPError as error:
        return f"{error.code} {error.read().decode()}"
    return "aborted"


def logprobs_along(reference: Reference, prompt: str, tokens: list[int], temperature: float = 1.0) -> list[float]:
    """Log-probabilities of these tokens after a prompt."""
    ids = [*prompt.encode(), *tokens]
    with torch.inference_mode():
        logits = reference.model(input_ids=torch.tensor([ids])).logits[0, -len(tokens) - 1 : -1]
    log_probs = (logits / temperature).log_softmax(-1)
    return log_probs.gather(1, torch.tensor(tokens)[:, None])[:, 0].tolist()
