"""Renders report.html: the whole report on one page without other files."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from io import BytesIO

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from mtpc.lab.prove.report import Report, tables
from mtpc.lab.prove.significance import LEVEL
from mtpc.lab.prove.uniformity import EVERY_TOKEN, bin_edges
from mtpc.lab.table import Table

STYLE = """body { font: 15px/1.5 sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0 2em; } caption { text-align: left; font-weight: bold; }
th, td { border-bottom: 1px solid #ccc; padding: .2em .8em; text-align: right; } img { max-width: 100%; }
.verdict { font-size: 1.2em; padding: .8em 1em; border-left: .4em solid; background: #f4f4f4; }
.same { border-color: #2a7; } .not { border-color: #c33; } .nothing { border-color: #c90; }"""
EXPLAINED = """<p>"adjusted p": the p-value with Holm's correction for all tests; below {level:g} a test rejects the
server. "detects": a difference of this total variation over the cells is found with probability 99%, whichever cells
differ. A difference in rare tokens is found when it is smaller.</p>"""


def draw(report: Report) -> Figure:
    """Draw three panels: distribution of the transformed tokens, sorted p-values, and acceptance by position."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    points, order, rates = figure.subplots(1, 3)
    for one in (one for one in report.tests if one.test == EVERY_TOKEN and one.counts):
        edges = bin_edges(one.samples)
        points.stairs(np.array(one.counts) / np.diff(edges) / one.samples, edges, label=one.of)
    points.axhline(1.0, color="grey", linewidth=1)
    points.set(title="Sampled tokens by their probability", xlabel="probable tokens ... rare ones", ylim=(0, 2))
    for name, tests in (("server", report.tests), ("baseline", report.baseline)):
        values = np.array(sorted(max(one.p, 1e-12) for one in tests if one.p is not None))
        order.loglog((np.arange(len(values)) + 0.5) / max(1, len(values)), values, ".", label=name)
    order.axline((1e-3, 1e-3), (1, 1), color="grey", linewidth=1)
    order.set(title="Sorted p-values: on the line by chance", xlabel="expected", ylabel="observed")
    positions = range(1, len(report.drafts.accepted_at) + 1)
    rates.plot(positions, report.drafts.marginal_rates, "o-", label="marginal")
    rates.plot(positions, report.drafts.conditional_rates, "s--", label="conditional")
    rates.set(title="Acceptance rate", xlabel="position in the draft", ylim=(0, 1))
    for axes in (points, order, rates):
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def render_html(report: Report) -> str:
    """Return the whole page."""
    picture = BytesIO()
    with matplotlib.rc_context({"font.size": 9}):
        draw(report).savefig(picture, format="png", dpi=110)
    image = base64.b64encode(picture.getvalue()).decode()
    kind, facts = report.verdict.split()[-1 if report.verdict == "the same" else 0], _facts(report)
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>mtpc prove: {escape(report.verdict)}</title><style>{STYLE}</style>
<h1>mtpc prove</h1>
<p class="verdict {kind}">{escape(report.sentence)}</p>
<ul>{"".join(f"<li>{escape(fact)}</li>" for fact in facts)}</ul>
<img alt="points, p-values and acceptance" src="data:image/png;base64,{image}">
{EXPLAINED.format(level=LEVEL)}
{"".join(map(_html, tables(report)))}
</html>
"""


def _facts(report: Report) -> Sequence[str]:
    """Return the facts above the tables."""
    greedy = report.greedy
    rounding = len(greedy.differences) - len(greedy.wrong)
    repeats = {True: "repeats its output", False: "generates another output"}
    return (
        f"{report.url} ({report.engine}), compared with {report.baseline_url}",
        f"{greedy.same} of {greedy.texts} greedy outputs equal those of the baseline ({greedy.tokens} tokens)",
        f"in the others {len(greedy.wrong)} tokens are wrong, and {rounding} may be rounding",
        f"with the same seed the server {repeats[report.seeds]}, the baseline {repeats[report.baseline_seeds]}",
        f"{report.prompts} prompts; {report.tokens} tokens generated",
        f"{report.provenance['command']} ({report.provenance['made_by']}, {report.provenance['date']})",
    )


def _html(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return f"<table><caption>{escape(table.title)}</caption><tr>{head}</tr>{rows}</table>"
