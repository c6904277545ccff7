r"""Count operators and bytes of one draft and of its verification, for each draft method, without an engine.

    python -m benchmarks.draft_operators [--device cuda] [--batches 1,32] [--out FILE.json]

A draft is the reference implementation's, after one new token of each request, in bfloat16 and sampled.
Chat drafters are for SmolLM2-135M-Instruct and draft from 8,192 tokens; circuits without a checkpoint are random.
Verification is rejection sampling by the core's rule, over the whole vocabulary.

Operators are kernels on CUDA; on a CPU they are torch operations that are not views.
Bytes read are those of the weights (see `benchmarks.subword_circuits.draft_bytes`), whatever the batch.
Bytes written are those of all tensors that are made.  Time is the median of five calls on one core.

In an engine decoder layers have fewer operators, because their kernels are fused.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console

from benchmarks.arguments import listed, one_sentence, output_file
from benchmarks.gpu.mechanisms import TIMES, milliseconds
from benchmarks.subword_circuits import MEGA, draft_bytes
from mtpc.files import provenance
from mtpc.lab.evaluation.reference import ReferenceDrafter
from mtpc.lab.table import Table
from mtpc.methods.drafter import Drafter, load_drafter
from mtpc.methods.mtpc import MTPC, MTPCConfig
from mtpc.noise import counter_uniforms
from mtpc.prompt_lookup.mixture import Copied
from mtpc.target_head.shared import SharedHead
from mtpc.verify.rejection import verify_rejection
from tests.gpu.timing import kernels
from tests.mtpc.parallel.trace import Trace

VOCABULARY = 8192  # tokens that chat drafters draft from
HIDDEN, CHAT_VOCABULARY, TRUNK, FEATURES = 576, 49_152, 768, 32  # sizes of circuits for the chat target
CIRCUITS = (("ff", 1), ("cp", 8), ("hmm", 8), ("btree", 8))
WINDOW = 4


class Case(NamedTuple):
    """A drafter, the head that it drafts through, and whether prompt lookup is mixed in."""

    name: str
    drafter: Drafter
    head: SharedHead
    copies: bool = False


def cases(weights: Path, device: torch.device) -> Iterator[Case]:
    """Yield the included drafters, with and without prompt lookup, and random circuits of a chat model."""
    for name in ("byte-mtpc-hmm-n8", "smollm2-fastmtp", "smollm2-gumiho"):
        drafter = load_drafter(weights / name, device=device, dtype=torch.bfloat16)
        head = random_head(drafter.config.hidden_size, drafter.config.vocab_size, device)
        yield Case(name, drafter, head)
        yield Case(f"{name}, prompt lookup", drafter, head, copies=True)
    head = random_head(HIDDEN, CHAT_VOCABULARY, device)
    for circuit, rank in CIRCUITS:
        torch.manual_seed(0)
        config = MTPCConfig(
            circuit=circuit,
            window=WINDOW,
            rank=rank,
            hidden_size=HIDDEN,
            vocab_size=CHAT_VOCABULARY,
            leaves="target",
            component_features=FEATURES,
            sum_features=FEATURES,
            trunk_size=TRUNK,
            token_input=True,
        )
        drafter = Drafter(MTPC(), config).to(device, torch.bfloat16).requires_grad_(False)
        yield Case(f"{circuit.upper()}, rank {rank}, window {WINDOW}", drafter, head)


def random_head(hidden: int, vocabulary: int, device: torch.device) -> SharedHead:
    """Return a target's random embedding and head in bfloat16, of a draft vocabulary where the vocabulary is larger."""
    torch.manual_seed(0)
    rows = torch.randn(vocabulary, hidden, device=device, dtype=torch.bfloat16)
    head = SharedHead(rows, rows)
    return head if vocabulary <= VOCABULARY else head.restricted(torch.arange(VOCABULARY, device=device))


def draft(case: Case, batch: int, device: torch.device) -> Callable[[], object]:
    """Return the call that drafts all tokens of a batch, of which every other request is greedy."""
    config, drafts = case.drafter.config, case.drafter.config.num_drafts
    requests = torch.arange(batch, device=device)
    hidden = torch.randn(batch, 1, config.hidden_size, device=device, dtype=torch.bfloat16)
    tokens = torch.randint(config.vocab_size, (batch, drafts), device=device)
    temperature, noise = 1.0 - (requests % 2), counter_uniforms(requests, requests, drafts)
    copied = Copied(tokens, torch.full((batch, drafts), 0.5, device=device)) if case.copies else None

    def call() -> object:
        session = ReferenceDrafter(case.drafter, case.head)
        return session.draft(hidden, tokens[:, :1], drafts, temperature, noise, copied)

    return call


def verification(case: Case, batch: int, device: torch.device) -> Callable[[], object]:
    """Return the call that verifies a draft of a batch."""
    drafts, vocabulary = case.drafter.config.num_drafts, case.drafter.config.vocab_size
    tokens = torch.randint(vocabulary, (batch, drafts), device=device)
    stated, target = (torch.randn(batch, n, vocabulary, device=device).softmax(-1) for n in (drafts, drafts + 1))
    uniforms = torch.rand(batch, drafts + 1, device=device)
    return lambda: verify_rejection(tokens, stated, target, uniforms[:, 1:], uniforms[:, 0])


def written(call: Callable[[], object]) -> int:
    """Return the bytes of all tensors that a call makes."""
    with Trace() as trace:
        call()
    return sum(made.numel() * made.itemsize for made in trace.made)


@torch.inference_mode()
def measured(case: Case, batch: int, device: torch.device) -> dict[str, Any]:
    """Return one row: a drafter at a batch size."""
    drafting, verifying = draft(case, batch, device), verification(case, batch, device)
    return {
        "drafter": case.name,
        "K": case.drafter.config.num_drafts,
        "V": case.drafter.config.vocab_size,
        "batch": batch,
        "draft_operators": kernels(drafting, device),
        "draft_bytes_read": draft_bytes(case.drafter, case.drafter.head(case.head)),
        "draft_bytes_written": written(drafting),
        "draft_ms": milliseconds(drafting, device, TIMES),
        "verification_operators": kernels(verifying, device),
        "verification_bytes_written": written(verifying),
        "verification_ms": milliseconds(verifying, device, TIMES),
    }


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Return one row for each drafter and batch size."""
    columns = ["drafter", "K", "batch", "draft, operators", "read, MB", "written, MB", "ms"]
    columns += ["verification, operators", "written, MB", "ms"]
    cells = [
        [row["drafter"], str(row["K"]), str(row["batch"]), str(row["draft_operators"])]
        + [f"{row[key] / MEGA:.1f}" for key in ("draft_bytes_read", "draft_bytes_written")]
        + [f"{row['draft_ms']:.3g}", str(row["verification_operators"])]
        + [f"{row['verification_bytes_written'] / MEGA:.1f}", f"{row['verification_ms']:.3g}"]
        for row in rows
    ]
    return Table("One draft, and its verification", columns, cells)


@one_sentence
def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=Path("weights"), help="folder of the included checkpoints")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to run")
    parser.add_argument("--batches", type=listed(int), default=[1, 32], metavar="B,B", help="requests of a batch")
    parser.add_argument("--out", type=output_file, metavar="FILE.json", help="write the rows and where they come from")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    device = torch.device(chosen.device)
    rows = [measured(case, batch, device) for case in cases(chosen.weights, device) for batch in chosen.batches]
    Console(width=200).print(table(rows).to_markdown(), markup=False)
    if chosen.out is not None:
        chosen.out.write_text(json.dumps({"provenance": provenance.collect(seed=0), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
