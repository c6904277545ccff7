"""Completes prompts with vLLM's `LLM`, without a server, and prints the acceptance length.

    python examples/offline_vllm.py
    python examples/offline_vllm.py --target runs/smollm2 --drafter weights/smollm2-fastmtp --num-speculative-tokens 3

On a CPU, VLLM_CPU_KVCACHE_SPACE=1 keeps the KV cache at one GiB.
"""

from __future__ import annotations

import argparse
from typing import Any

from vllm import LLM, SamplingParams

PROMPTS = ["It was the best of ", "class Server:\n    def __init__(self, "]


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """The command line; without words, that of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", nargs="*", default=PROMPTS, metavar="PROMPT")
    parser.add_argument("--target", default="weights/byte-target", help="a folder or a Hugging Face id")
    parser.add_argument("--drafter", default="weights/byte-mtpc-hmm-n8", help="a folder or a Hugging Face id")
    parser.add_argument("--num-speculative-tokens", type=int, default=7, help="draft tokens per step (K)")
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens of a completion, at most")
    parser.add_argument("--temperature", type=float, default=0.0, help="sampling temperature; 0 means greedy")
    return parser.parse_args(words)


def settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `LLM`."""
    return {
        "model": arguments.target,
        "speculative_config": {
            "method": "eagle",
            "model": arguments.drafter,
            "num_speculative_tokens": arguments.num_speculative_tokens,
            "draft_sample_method": "probabilistic",
        },
        "disable_log_stats": False,  # get_metrics() needs the counters
    }


def main() -> None:
    """Print each prompt with its completion, then the acceptance length."""
    arguments = parse()
    llm = LLM(**settings(arguments))
    sampling = SamplingParams(temperature=arguments.temperature, max_tokens=arguments.max_tokens)
    for output in llm.generate(arguments.prompts, sampling):
        print(f"{output.prompt}{output.outputs[0].text}\n")
    counts = {metric.name: metric.value for metric in llm.get_metrics() if hasattr(metric, "value")}
    drafts = counts["vllm:spec_decode_num_drafts"]
    accepted = counts["vllm:spec_decode_num_accepted_tokens"]
    print(f"acceptance length: {1 + accepted / drafts:.2f}" if drafts else "no drafts were verified")


if __name__ == "__main__":  # vLLM starts other processes that import this file
    main()
