"""What is asked of a server, and of the one that it is compared with."""

from __future__ import annotations

from mtpc.lab.prove.plan import ProvePlan, parse_samplings


def test_the_baseline_has_a_fourth_of_the_samples_and_never_none() -> None:
    for given, fourth in ((1, 1), (4, 1), (5, 2), (401, 101)):
        plan = ProvePlan(samplings=parse_samplings("1"), samples=given, texts=given).of_baseline()
        assert (plan.samples, plan.texts) == (fourth, fourth)
