"""Tests the joint distribution of an output's first tokens by chi-square against the baseline's probabilities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from mtpc.lab.prove.client import Client
from mtpc.lab.prove.engine_api import TokenIds
from mtpc.lab.prove.plan import SamplingSetting
from mtpc.lab.prove.recording import CompletedSeries, Recording
from mtpc.lab.prove.sampling_distribution import sampling_distribution
from mtpc.lab.prove.significance import MIN_EXPECTED, SignificanceTest
from mtpc.lab.statistics.chi_square import chi_square
from mtpc.lab.statistics.windows import Window, cells, count_windows

STRAYS = 3.0  # samples that rounding may put where the baseline expects none


def joint_tests(recording: Recording, baseline: Client) -> list[SignificanceTest]:
    """Return one test for each sampling setting, of its openings after all of their prompts."""
    return [_joint_test(recording, sampling, baseline) for sampling in recording.plan.samplings]


def _joint_test(recording: Recording, sampling: SamplingSetting, baseline: Client) -> SignificanceTest:
    series = [one for one in recording.openings if one.sampling == sampling]
    first = recording.plan.first
    tables = [_table(recording.endings[one.prompt], sampling, baseline, first, len(one.texts)) for one in series]
    tested = [(one, table) for one, table in zip(series, tables, strict=True) if len(table) > 1]
    samples = sum(len(one.texts) for one, _ in tested)
    if not tested:
        return SignificanceTest(test="first tokens", of=f"{sampling}", samples=0, cells=0, p=None)
    table, counts = _combined(tested, samples)
    result = chi_square(counts, table, MIN_EXPECTED)
    return SignificanceTest(test="first tokens", of=f"{sampling}", samples=samples, cells=result.cells, p=result.p)


def _table(
    prefix: TokenIds, sampling: SamplingSetting, baseline: Client, first: int, samples: int
) -> dict[Window, float]:
    """Return the cells of openings after a text; only the empty one where the baseline states too little."""

    def following(starts: Sequence[Window]) -> list[Mapping[int, float] | None]:
        if not starts:
            return []
        distributions = [
            sampling_distribution(top, sampling, baseline.api.top_p_after_top_k)
            for top in baseline.next_top_logprobs([prefix + start for start in starts])
        ]
        return [None if one is None else dict(zip(one.ids, one.probs.tolist(), strict=True)) for one in distributions]

    return cells(following, first, samples, MIN_EXPECTED)


def _combined(
    tested: Sequence[tuple[CompletedSeries, Mapping[Window, float]]], samples: int
) -> tuple[dict[Window, float], Counter[Window]]:
    """Return one table of all prompts, whose keys begin with the prompt's index, and the counts of its cells."""
    table: dict[Window, float] = {}
    counts: Counter[Window] = Counter()
    for series, cells_of_prompt in tested:
        share = len(series.texts) / samples
        table |= {(series.prompt, *key): p * share for key, p in cells_of_prompt.items()}
        table[(series.prompt,)] += STRAYS / samples
        counted = count_windows(series.texts, cells_of_prompt)
        counts.update({(series.prompt, *key): count for key, count in counted.items()})
    return table, counts
