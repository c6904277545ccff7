"""Completes prompts with SGLang's `Engine`, without a server, and prints the acceptance length.

    python examples/offline_sglang.py
    python examples/offline_sglang.py --target runs/smollm2 --algorithm FASTMTP --drafter weights/smollm2-fastmtp

A CPU needs the environment of `scripts/make_env.sh sglang`: see docs/start/install.md.
"""

from __future__ import annotations

import argparse
from typing import Any

import sglang

PROMPTS = ["It was the best of ", "class Server:\n    def __init__(self, "]


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """The command line; without words, that of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", nargs="*", default=PROMPTS, metavar="PROMPT")
    parser.add_argument("--target", default="weights/byte-target", help="a folder or a Hugging Face id")
    parser.add_argument("--drafter", default="weights/byte-mtpc-hmm-n8", help="a folder or a Hugging Face id")
    parser.add_argument(
        "--algorithm",
        default="MTPC",
        help="the drafter's method: MTPC, BYTECIRCUIT, FASTMTP, GUMIHO, MEDUSA, COPYING or PAIR",
    )
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens of a completion, at most")
    parser.add_argument("--temperature", type=float, default=0.0, help="sampling temperature; 0 means greedy")
    return parser.parse_args(words)


def settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `sglang.Engine`."""
    return {
        "model_path": arguments.target,
        "speculative_algorithm": arguments.algorithm,
        "speculative_draft_model_path": arguments.drafter,
        "max_total_tokens": 16384,  # of the KV cache: on a CPU, SGLang would take most of the memory
    }


def main() -> None:
    """Print each prompt with its completion, then the acceptance length."""
    arguments = parse()
    engine = sglang.Engine(**settings(arguments))
    sampling = {"temperature": arguments.temperature, "max_new_tokens": arguments.max_tokens}
    outputs = engine.generate(arguments.prompts, sampling)
    engine.shutdown()
    for prompt, output in zip(arguments.prompts, outputs, strict=True):
        print(f"{prompt}{output['text']}\n")
    infos = [output["meta_info"] for output in outputs]
    steps = sum(info["spec_verify_ct"] for info in infos)
    tokens = sum(info["completion_tokens"] for info in infos)
    print(f"acceptance length: {tokens / steps:.2f}")


if __name__ == "__main__":  # SGLang starts other processes that import this file
    main()
