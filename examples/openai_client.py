"""Asks a running server with the `openai` package, streams a completion, and prints the acceptance length.

    examples/serve_vllm.sh      # or examples/serve_sglang.sh --enable-metrics
    python examples/openai_client.py
    python examples/openai_client.py --url http://127.0.0.1:8001 --chat "Why is the sky blue?"

The acceptance length comes from /metrics, which SGLang publishes with --enable-metrics.
"""

from __future__ import annotations

import argparse
import sys
import urllib.error
import urllib.request
from functools import partial
from typing import Any

from openai import BadRequestError, OpenAI
from prometheus_client.parser import text_string_to_metric_families

# Counters: vLLM's drafts and accepted draft tokens, SGLang's target forward passes and output tokens.
VLLM = "vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_accepted_tokens_total"
SGLANG = "sglang:spec_verify_calls_total", "sglang:generation_tokens_total"


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompt", nargs="?", default="It was the best of ", metavar="PROMPT")
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="address of the server")
    parser.add_argument("--chat", action="store_true", help="send the prompt as a chat message")
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens of a completion, at most")
    parser.add_argument("--temperature", type=float, default=0.0, help="sampling temperature; 0 means greedy")
    return parser.parse_args()


def metrics(url: str) -> dict[str, float]:
    """The server's metrics by name, summed over their labels; empty where it publishes none."""
    try:
        with urllib.request.urlopen(f"{url}/metrics") as page:  # noqa: S310 (the user's own server)
            text = page.read().decode()
    except urllib.error.HTTPError:
        return {}
    except urllib.error.URLError as error:
        sys.exit(f"{url} does not answer ({error.reason}): start a server first, as with examples/serve_vllm.sh.")
    totals: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    return totals


def acceptance_length(before: dict[str, float], after: dict[str, float]) -> str:
    """The mean number of tokens per target forward pass, from metrics before and after some requests."""
    for (steps, tokens), bonus in ((VLLM, 1), (SGLANG, 0)):
        if counted := after.get(steps, 0) - before.get(steps, 0):
            return f"{bonus + (after[tokens] - before.get(tokens, 0)) / counted:.2f}"
    return "unknown: the server has no drafter, or publishes no metrics (SGLang: --enable-metrics)"


def text_of(choice: Any) -> str:
    """The text of a completion, of a chat answer, or of a streamed piece of either."""
    message = getattr(choice, "delta", None) or getattr(choice, "message", None)
    return (message.content if message else choice.text) or ""


def main() -> None:
    """Print a whole completion, then the same streamed, then what the drafter brought."""
    arguments = parse()
    url = arguments.url.rstrip("/")
    client = OpenAI(base_url=f"{url}/v1", api_key="none")
    before = metrics(url)
    ask: Any = partial(client.completions.create, prompt=arguments.prompt)
    if arguments.chat:
        ask = partial(client.chat.completions.create, messages=[{"role": "user", "content": arguments.prompt}])
    ask = partial(
        ask,
        model=client.models.list().data[0].id,
        max_tokens=arguments.max_tokens,
        temperature=arguments.temperature,
    )

    try:
        print(f"{text_of(ask().choices[0])}\n")
    except BadRequestError as error:  # such as --chat with a target without a chat template
        sys.exit(f"{url} refused the request: {error}")
    for chunk in ask(stream=True):
        for choice in chunk.choices:
            print(text_of(choice), end="", flush=True)
    print(f"\n\nacceptance length: {acceptance_length(before, metrics(url))}")


if __name__ == "__main__":
    main()
