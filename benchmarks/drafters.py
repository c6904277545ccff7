r"""Acceptance of drafters by prompt category: chains, trees and trees with borrowed nodes, without an engine.

    python -m benchmarks.drafters --target runs/smollm2 --drafter one=runs/one --drafter other=runs/other \
        --prompts spec_bench.jsonl --data runs/distilled --trees 16,32 --borrow 8 --max-children 4 --out runs/drafters

The target generates float32 outputs once.  Acceptance lengths are expected values along these outputs, see
`mtpc.lab.evaluation`.  At temperature 0 a second table shows the accuracy of each draft token of a chain: how often the
most probable token is right, everything before it being right.  Figure 6 of the Gumiho paper (arXiv:2503.10135) shows
the same.  Results are kept in the folder of --out: the same command continues where it stopped, and scores only what
is new.

All tokens are drafted from, also where an engine would use a draft vocabulary.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.arguments import check_names, listed, named_folder, named_number, one_sentence
from benchmarks.drafters_tables import Cell, Found, Row, draw_accuracy, make_tables
from benchmarks.kept import Kept, digest, digest_of
from benchmarks.questions import asked, read_questions
from mtpc.files import provenance
from mtpc.lab.evaluation.evaluate import DrafterScorer, EvaluationPlan, counts_of
from mtpc.lab.evaluation.prompts import Prompts, check_prompts
from mtpc.lab.evaluation.texts import GeneratedText, generate_texts
from mtpc.lab.evaluation.trees import TreeSettings
from mtpc.lab.targets.frozen import FrozenTarget, default_device
from mtpc.target_head.shared import SharedHead

SHIPPED = Path(__file__).parent / "chat_prompts.jsonl"
WIDTH = 180  # of the printed tables, in characters


class Benchmark:
    """One run of the benchmark, with the results so far."""

    def __init__(self, given: argparse.Namespace, console: Console) -> None:
        self.given, self.console, self.kept = given, console, Kept(given.out / "kept")
        target = given.target
        files = given.prompts or ([] if given.data else [SHIPPED])
        self.sets: dict[str, Prompts] = {
            file.stem: asked(read_questions(None, file, target, given.questions)) for file in files
        }
        for folder in given.data:
            self.sets[f"{folder.name}, held out"] = asked(read_questions(folder, folder, target, given.questions))
        self.target = FrozenTarget(target, device=default_device())
        self.digest, self.digests = self.target.digest(), {}
        head, trees = SharedHead.of(self.target.model), TreeSettings(given.trees, given.borrow, given.max_children)
        check_names("--drafts", given.drafts, [name for name, _ in given.drafter])
        self.scored, drafts = [], dict(given.drafts)
        for name, folder in given.drafter:
            plan = EvaluationPlan(length=given.max_tokens, num_drafts=drafts.get(name), trees=trees, seed=given.seed)
            drafter = self.target.load_drafter(folder)
            self.scored.append(DrafterScorer(name, drafter, head, plan))
            self.digests[name] = digest(folder)
        self.rows = [
            Row(title, one.name, nodes + 1)
            for one in self.scored
            for title, nodes in [
                (one.name, one.drafts),
                *((f"{one.name}, {title}", nodes) for title, nodes, _ in trees.titles()),
            ]
        ]
        self.found: Found = {}

    def run(self) -> None:
        """Score all drafters along the target's outputs after all prompts."""
        for title, prompts in self.sets.items():
            check_prompts(prompts, self.target.facts.vocab_size)
            for temperature in self.given.temperatures:
                for kind, texts in self._answers(title, prompts, temperature).items():
                    self._score(Cell(title, temperature, kind), texts)
                self.write()

    def _answers(self, title: str, prompts: Prompts, temperature: float) -> dict[str, list[GeneratedText]]:
        """Return the target's outputs by category, kept or generated."""
        given, name = self.given, f"answers {title} T={temperature:g}"
        made_of = {"target": self.digest, "questions": digest_of(prompts.by_kind)}
        made_of |= {"length": given.max_tokens, "seed": given.seed}
        found = self.kept.read(name, made_of)
        if found is None:
            self.console.print(f"{given.target} completes the prompts of {title}, T = {temperature:g} ...")
            found = generate_texts(self.target, prompts, given.max_tokens, temperature, given.seed)
            self.kept.write(name, made_of, found)
        return {kind: [GeneratedText(*text) for text in texts] for kind, texts in found.items()}

    def _score(self, cell: Cell, texts: Sequence[GeneratedText]) -> None:
        """Score the drafters without a kept result; the target reads each text once for all of them."""
        answers = {"target": self.digest, "answers": digest_of(texts)}
        files: dict[str, tuple[str, dict[str, Any]]] = {}
        for one in self.scored:
            made_of = {**answers, "drafter": self.digests[one.name], "drafts": one.drafts, "trees": one.plan.trees}
            file = f"{one.name} {cell.title} {cell.kind} T={cell.temperature:g}"
            found = self.kept.read(file, made_of)
            if found is None:
                files[one.name] = file, made_of
            else:
                self.found.setdefault(cell, {}).update(found)
        if not files:
            return
        new = [one for one in self.scored if one.name in files]
        counts = counts_of(self.target, new, texts, cell.temperature)
        for one in new:
            own = {row.title for row in self.rows if row.drafter == one.name}
            found = {title: each.to_json() for (title, note), each in counts.items() if title in own and not note}
            self.kept.write(*files[one.name], found)
            self.found.setdefault(cell, {}).update(found)
            lengths = ", ".join(f"{title} {each['acceptance_length']:.3f}" for title, each in found.items())
            self.console.print(f"{cell.title}, {cell.kind}, T = {cell.temperature:g}: {lengths}", highlight=False)

    def write(self) -> None:
        """Write results.json, the tables in results.md, and accuracy.png if temperature 0 was measured."""
        given = self.given
        facts = provenance.collect(seed=given.seed)
        counts = {
            title: {kind: len(of_kind) for kind, of_kind in prompts.by_kind.items()}
            for title, prompts in self.sets.items()
        }
        results = {
            "provenance": facts,
            "settings": vars(given),
            "drafters": {one.name: {"sha256": self.digests[one.name], **asdict(one.plan)} for one in self.scored},
            "questions": counts,
            "found": [{**cell._asdict(), "rates": rates} for cell, rates in self.found.items()],
        }
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "results.json").write_text(json.dumps(results, indent=2, default=str) + "\n")
        made = "\n".join(
            f"Prompts of {title}: {', '.join(f'{number} {kind}' for kind, number in of_set.items())}; at most "
            f"{given.max_tokens} tokens per output.\n"
            for title, of_set in counts.items()
        )
        parts = [table.to_markdown() for table in make_tables(self.rows, self.found)]
        (given.out / "results.md").write_text("\n".join([*parts, made, f"Command: `{facts['command']}`."]) + "\n")
        picture = draw_accuracy(self.rows, self.found)
        if picture is not None:
            picture.savefig(given.out / "accuracy.png", dpi=150)


def read_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--target", type=Path, required=True, help="folder of the target")
    drafter = "score this drafter checkpoint; may be repeated"
    add("--drafter", type=named_folder, action="append", required=True, metavar="NAME=DIR", help=drafter)
    drafts = "draft K tokens with this drafter (default: as many as it was trained for)"
    add("--drafts", type=named_number, action="append", default=[], metavar="NAME=K", help=drafts)
    file = (
        'score on these prompts: JSON Lines with "user", and "kind" for the category, or the file of Spec-Bench; '
        "may be repeated (default: benchmarks/chat_prompts.jsonl)"
    )
    add("--prompts", type=Path, action="append", default=[], help=file)
    add("--data", type=Path, action="append", default=[], help="score on the held-out questions of these conversations")
    add("--questions", type=int, default=10, help="limit the prompts of each category (default: %(default)s)")
    add("--max-tokens", type=int, default=128, help="limit the tokens of an output (default: %(default)s)")
    temperatures = "sampling temperatures, comma-separated; 0 is greedy (default: %(default)s)"
    add("--temperatures", type=listed(float), default="0,1", help=temperatures)
    trees = "also score trees with these numbers of nodes, comma-separated (default: chains only)"
    add("--trees", type=listed(int), default="", help=trees)
    borrow = "also score each tree with these numbers of additional borrowed nodes, comma-separated"
    add("--borrow", type=listed(int), default="", help=borrow)
    children = "limit the children of a tree node (default: no limit; an autoregressive part continues 10 prefixes)"
    add("--max-children", type=int, help=children)
    add("--seed", type=int, default=0, help="seed of the sampling (default: %(default)s)")
    out = "write results to this folder, and continue from the results in it (default: %(default)s)"
    add("--out", type=Path, default=Path("runs/drafters"), help=out)
    return parser.parse_args(given)


@one_sentence
def main(given: Sequence[str] | None = None) -> None:
    """Score, write the results and print the tables."""
    console = Console()
    benchmark = Benchmark(read_arguments(given), console)
    benchmark.run()
    wide = Console(width=max(WIDTH, console.width))
    for table in make_tables(benchmark.rows, benchmark.found):
        wide.print(table.to_rich())
    console.print(f"written to {benchmark.given.out}")


if __name__ == "__main__":
    sys.exit(main())
