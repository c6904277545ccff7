"""The joint of the first tokens, by chi-square against what the baseline states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from mtpc.lab.prove.ask import Said, Texts
from mtpc.lab.prove.client import Client
from mtpc.lab.prove.dialects import Text
from mtpc.lab.prove.found import SMALLEST, Found
from mtpc.lab.prove.plan import Sampling
from mtpc.lab.prove.stated import left
from mtpc.lab.statistics.chi_square import chi_square
from mtpc.lab.statistics.windows import Window, cells, count_windows

STRAYS = 3.0  # samples that rounding may put where nothing is expected


def joints(said: Said, baseline: Client) -> list[Found]:
    """One test for each sampling: its beginnings after all of its prompts."""
    return [_joint(said, sampling, baseline) for sampling in said.plan.samplings]


def _joint(said: Said, sampling: Sampling, baseline: Client) -> Found:
    series = [one for one in said.begun if one.sampling == sampling]
    tables = [_table(said.endings[one.prompt], sampling, baseline, said.plan.first, len(one.texts)) for one in series]
    told = [(one, table) for one, table in zip(series, tables, strict=True) if len(table) > 1]
    samples = sum(len(one.texts) for one, _ in told)
    if not told:
        return Found(test="first tokens", of=f"{sampling}", samples=0, cells=0, p=None)
    table, counts = _together(told, samples)
    judged = chi_square(counts, table, SMALLEST)
    return Found(test="first tokens", of=f"{sampling}", samples=samples, cells=judged.cells, p=judged.p)


def _table(after: Text, sampling: Sampling, baseline: Client, first: int, samples: int) -> dict[Window, float]:
    """The cells of beginnings after a text; the empty one alone where the baseline does not say enough."""

    def following(starts: Sequence[Window]) -> list[Mapping[int, float] | None]:
        if not starts:
            return []
        all_left = [
            left(one, sampling, baseline.dialect.in_turn)
            for one in baseline.next_tokens([after + start for start in starts])
        ]
        return [None if one is None else dict(zip(one.ids, one.probs.tolist(), strict=True)) for one in all_left]

    return cells(following, first, samples, SMALLEST)


def _together(
    told: Sequence[tuple[Texts, Mapping[Window, float]]], samples: int
) -> tuple[dict[Window, float], Counter[Window]]:
    """One table of all prompts, whose keys begin with the prompt's number, and the counts of its cells."""
    table: dict[Window, float] = {}
    counts: Counter[Window] = Counter()
    for one, own in told:
        share = len(one.texts) / samples
        table |= {(one.prompt, *key): p * share for key, p in own.items()}
        table[(one.prompt,)] += STRAYS / samples
        counts.update({(one.prompt, *key): count for key, count in count_windows(one.texts, own).items()})
    return table, counts
