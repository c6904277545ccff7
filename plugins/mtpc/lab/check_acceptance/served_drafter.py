"""What a running server drafts with, and why it may not be compared with the reference implementation."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl

from pydantic import BaseModel

from mtpc.errors import MTPCError
from mtpc.files.config_model import validated_json
from mtpc.lab.prove.client import Client
from mtpc.lab.prove.engine_api import SGLANG
from mtpc.lab.servers.prometheus import parse
from mtpc.lab.servers.server import fetch
from mtpc.lab.servers.sglang_engine import INFORMATION
from mtpc.lab.servers.vllm_engine import has_drafter
from mtpc.methods import DraftMethod, draft_methods, method_of
from mtpc.methods.drafter import draft_language
from mtpc.metrics.exporter import INFO
from mtpc.vocabulary.vocabularies import NONE

# How a setting of this project is given to each engine.
SETTING = {
    "vllm": "additional-config mtpc.{key}: {value}",
    "sglang": "--speculative-token-map '?{key}={value}'",
}
OWN_DRAFTER = (
    "which has no reference implementation here: measure it with `mtpc bench`, and compare it with the figures of its "
    "authors."
)


class ServedDrafter(NamedTuple):
    """What a server drafts with.

    Attributes:
        name: The drafter as the user named it to the server.
        method: Its draft method.
        num_drafts: Draft tokens per decoding step, K.
        copies: Whether prompt lookup drafts as well.
        language: The draft vocabulary, see `mtpc.methods.drafter.draft_language`.
        samples: Whether draft tokens are sampled above temperature 0, or always the most probable ones.
    """

    name: str
    method: DraftMethod
    num_drafts: int
    copies: bool
    language: str
    samples: bool


class SGLangSettings(BaseModel):
    """The settings that are read from SGLang's server information."""

    device: str | None = None
    speculative_algorithm: str | None = None
    speculative_draft_model_path: str | None = None
    speculative_num_steps: int | None = None
    speculative_eagle_topk: int | None = None
    speculative_token_map: str | None = None


def served_drafter(client: Client, drafter: Path) -> ServedDrafter:
    """Ask a server what it drafts with.

    Args:
        client: Client of the server.
        drafter: The drafter checkpoint to compare it with.

    Returns:
        What it drafts with, which the reference implementation can do as well.

    Raises:
        MTPCError: The server has no drafter, or a drafter or settings that cannot be compared.
    """
    served = _of_sglang(client, drafter) if client.api is SGLANG else _of_vllm(client.url)
    expected = method_of(drafter)
    if served.method is not expected:
        raise MTPCError(
            f"{client.url} drafts with {served.method.title}, {served.name}, but --drafter {drafter} is "
            f"{expected.title}: name the checkpoint that the server should draft with."
        )
    copies = served.copies and expected.read_config(drafter).own_drafts > 0
    left_out = {
        "prompt lookup": (copies, {"key": "copy", "value": "false"}),
        f"the draft vocabulary {served.language!r}": (served.language != NONE, {"key": "language", "value": NONE}),
    }
    for what, (used, setting) in left_out.items():
        if used:
            raise MTPCError(
                f"{client.url} drafts with {what}, which this command leaves out: start the server with "
                f"{SETTING[client.api.name].format(**setting)} to check the drafter alone."
            )
    return served


def _of_vllm(url: str) -> ServedDrafter:
    """Read the metric `INFO`, or raise `MTPCError`."""
    samples = parse(fetch(f"{url}/metrics"))
    info = next((sample.labels for sample in samples if sample.name == INFO), None)
    if info is not None:
        method = next((method for method in draft_methods() if method.name == info["method"]), None)
        if method is None:
            raise MTPCError(
                f"{url} drafts with the method {info['method']!r}, which is not installed here: install it."
            )
        samples_drafts = info["draft_sample_method"] == "probabilistic"
        copies = info["copy"] == "true"
        return ServedDrafter(info["drafter"], method, int(info["num_drafts"]), copies, info["language"], samples_drafts)
    if not has_drafter(url):
        raise MTPCError(f"{url} counts no draft tokens: start it with a drafter and without --disable-log-stats.")
    raise MTPCError(f"{url} has no metric {INFO}, so it drafts with a drafter of vLLM's own, {OWN_DRAFTER}")


def _of_sglang(client: Client, drafter: Path) -> ServedDrafter:
    """Read the server's settings, or raise `MTPCError`."""
    url, page = client.url, f"{client.url}{INFORMATION}"
    settings = validated_json(SGLangSettings, fetch(page).encode(), f"{page} has no settings of SGLang")
    algorithm = (settings.speculative_algorithm or "").upper()
    method = next((method for method in draft_methods() if method.algorithm == algorithm), None)
    if method is None:
        name = f"with --speculative-algorithm {algorithm}, {OWN_DRAFTER}" if algorithm else "without a drafter."
        raise MTPCError(f"{url} serves {name}")
    if (topk := settings.speculative_eagle_topk or 1) > 1:
        raise MTPCError(
            f"--speculative-eagle-topk of {url} is {topk}, but only chains of draft tokens are compared: start the "
            "server with --speculative-eagle-topk 1."
        )
    file, _, query = (settings.speculative_token_map or "").partition("?")
    values = dict(parse_qsl(query))
    if settings.device == "cpu" and values.get("adaptive") != "false":
        raise MTPCError(adaptive_lengths(client))
    config = method.read_config(drafter) if method is method_of(drafter) else None
    vocabulary = {key: value for key, value in values.items() if key == "language"}
    if file:
        vocabulary["vocabulary"] = file
    return ServedDrafter(
        settings.speculative_draft_model_path or "",
        method,
        settings.speculative_num_steps or 0,
        values.get("copy") == "true",
        NONE if config is None else draft_language(vocabulary, drafter, method, config),
        True,
    )


def adaptive_lengths(client: Client) -> str:
    """Return the sentence that drafts of different lengths cannot be compared.

    Args:
        client: Client of the server.
    """
    return (
        f"{client.url} drafts fewer than K tokens in some steps, and its counters do not tell how often each position "
        f"was verified: start the server with {SETTING[client.api.name].format(key='adaptive', value='false')}, and "
        "with one K for all batch sizes."
    )
