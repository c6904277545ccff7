"""A correct server is rejected no more often than the stated level, over many simulated runs of the statistics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from mtpc.lab.prove.engine_api import VLLM, TopLogprobs
from mtpc.lab.prove.plan import ProvePlan, SamplingSetting
from mtpc.lab.prove.recording import CompletedSeries, Recording
from mtpc.lab.prove.sampling_distribution import sampling_distribution
from mtpc.lab.prove.significance import LEVEL, MIN_EXPECTED, adjust_for_all
from mtpc.lab.prove.uniformity import TokenPoints, token_points, transform, uniformity_tests
from mtpc.lab.statistics.chi_square import chi_square

RUNS = 400
SAMPLINGS = (SamplingSetting(), SamplingSetting(temperature=0.7, top_k=10, top_p=0.9))


def test_points_of_a_right_server_are_rarely_found_wrong() -> None:
    """Points are missing where the baseline returned too few probabilities, more often after rare tokens."""
    noise, wrong, values = np.random.default_rng(0), 0, []
    for _ in range(RUNS):
        found = []
        for sampling in SAMPLINGS:
            points = noise.random((100, 12))
            points[:, 1:][noise.random((100, 11)) < 0.3 * points[:, :-1]] = np.nan
            outside = int(noise.binomial(points.size, 5e-4)) if sampling.top_k else 0
            found.append(TokenPoints(sampling, points, outside))
        tests = adjust_for_all(uniformity_tests(found))
        wrong += any(one.wrong for one in tests)
        values += [one.p for one in tests if one.p is not None and one.cells > 1]
    assert wrong <= 3  # of 400 runs at a level of 1e-3
    assert len(values) > 5_000
    for level in (0.1, 0.01, 1e-3):
        assert (np.array(values) < level).mean() < 1.2 * level + 2e-4


def test_points_of_certain_tokens_are_as_many_as_they_seem() -> None:
    """The point of a certain token depends on the noise alone.

    The same noise for several samplings would count one point several times.
    """
    samplings = tuple(SamplingSetting(temperature=t) for t in (0.5, 0.7, 1, 1.3))
    certain = CompletedSeries(prompt=0, sampling=SamplingSetting(), texts=((7,) * 4,) * 500)
    outputs = tuple(certain.model_copy(update={"sampling": sampling}) for sampling in samplings)
    recording = Recording.model_construct(plan=ProvePlan(samplings=samplings), prompts=((1,),), outputs=outputs)
    baseline: Any = SimpleNamespace(
        api=VLLM,
        top_logprobs=lambda texts, start: [[TopLogprobs((7,), (0.0,))] * (len(text) - start) for text in texts],
    )
    found = [token_points(recording, sampling, baseline) for sampling in samplings]
    assert len(np.unique(np.concatenate([one.points for one in found]))) == 4 * 500 * 4
    assert not any(one.wrong for one in adjust_for_all(uniformity_tests(found)))


def test_the_joint_keeps_small_levels_where_cells_are_few_or_rare() -> None:
    noise = np.random.default_rng(0)
    for cells in (3, 40, 150):
        table = noise.dirichlet([0.5] * cells)
        laws = dict(enumerate(table.tolist()))
        counts = noise.multinomial(4000, table, size=4000)
        values = np.array([chi_square(dict(enumerate(row)), laws, MIN_EXPECTED).p for row in counts.tolist()])
        for level in (0.01, 1e-3):
            assert (values < level).mean() < 1.5 * level + 1e-3
        assert (values < LEVEL / 100).sum() <= 1


def test_points_of_tokens_are_uniform_whatever_is_left_of_the_distribution() -> None:
    noise = np.random.default_rng(4)
    logits = 3.5 * noise.normal(size=40)
    probs = np.sort(np.exp(logits) / np.exp(logits).sum())[::-1]
    known = TopLogprobs(tuple(range(20)), tuple(np.log(probs[:20]).tolist()))
    for temperature, top_k, top_p in ((1, 0, 1), (0.5, 0, 1), (1, 8, 1), (1, 0, 0.8), (1.3, 8, 0.9), (0.7, 8, 0.9)):
        for in_turn in (True, False):
            sampling = SamplingSetting(temperature=temperature, top_k=top_k, top_p=top_p)
            law = sampling_distribution(known, sampling, in_turn)
            weights = np.exp(np.log(probs) / temperature)
            weights[top_k or 40 :] = 0 if in_turn else weights[top_k or 40 :]
            weights /= weights.sum()
            weights[np.cumsum(weights) - weights >= top_p] = 0
            weights[top_k or 40 :] = 0
            expected = weights / weights.sum()
            if law is None:
                assert top_k == 8 and temperature == 1.3 and not in_turn  # what is beyond is not known
                continue
            np.testing.assert_allclose(law.probs, expected[: len(law.ids)], atol=2e-4)
            drawn = noise.choice(40, size=8000, p=expected)
            points = [transform(int(token), law, float(noise.random())) for token in drawn]
            assert None not in points
            counts = dict(enumerate(np.histogram(np.array(points, dtype=float), 40, (0, 1))[0].tolist()))
            assert chi_square(counts, dict.fromkeys(range(40), 1 / 40)).p > 1e-4


def test_what_rounding_may_turn_is_not_judged() -> None:
    even = TopLogprobs(tuple(range(4)), tuple(np.log([0.4, 0.3, 0.2, 0.1]).tolist()))
    assert sampling_distribution(even, SamplingSetting(top_p=0.7), True) is None
    assert sampling_distribution(even, SamplingSetting(top_p=0.71), True) is not None
    tied = TopLogprobs(tuple(range(4)), tuple(np.log([0.4, 0.301, 0.298, 0.001]).tolist()))
    assert sampling_distribution(tied, SamplingSetting(top_k=2), True) is None
    assert sampling_distribution(tied, SamplingSetting(top_k=1), True) is not None
