"""report.html: the whole report on one page that needs no other file."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from io import BytesIO

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from mtpc.lab.prove.found import LEVEL
from mtpc.lab.prove.places import ALL, edges_of
from mtpc.lab.prove.report import Report, tables
from mtpc.lab.table import Table

STYLE = """body { font: 15px/1.5 sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0 2em; } caption { text-align: left; font-weight: bold; }
th, td { border-bottom: 1px solid #ccc; padding: .2em .8em; text-align: right; } img { max-width: 100%; }
.verdict { font-size: 1.2em; padding: .8em 1em; border-left: .4em solid; background: #f4f4f4; }
.same { border-color: #2a7; } .not { border-color: #c33; } .nothing { border-color: #c90; }"""
EXPLAINED = """<p>"would see": a misstatement of the counted cells of this total variation or more, wherever it lies,
would have been found with a chance of 99 % at the level that is left to one of so many tests; one that falls on rare
tokens is found when it is smaller. "among all": Holm's correction; below {level:g} a test has found the server
wrong.</p>"""


def draw(report: Report) -> Figure:
    """Three panels: points of all tokens in equal parts, p-values in order, acceptance by position."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    points, order, rates = figure.subplots(1, 3)
    for one in (one for one in report.tests if one.test == ALL and one.counts):
        edges = edges_of(one.samples)
        points.stairs(np.array(one.counts) / np.diff(edges) / one.samples, edges, label=one.of)
    points.axhline(1.0, color="grey", linewidth=1)
    points.set(title="Sampled tokens by their probability", xlabel="probable tokens ... rare ones", ylim=(0, 2))
    for name, tests in (("server", report.tests), ("baseline", report.baseline)):
        values = np.array(sorted(max(one.p, 1e-12) for one in tests if one.p is not None))
        order.loglog((np.arange(len(values)) + 0.5) / max(1, len(values)), values, ".", label=name)
    order.axline((1e-3, 1e-3), (1, 1), color="grey", linewidth=1)
    order.set(title="p-values in order: by chance, on the line", xlabel="expected", ylabel="found")
    positions = range(1, len(report.drafts.accepted_at) + 1)
    rates.plot(positions, report.drafts.marginal_rates, "o-", label="of all drafts")
    rates.plot(positions, report.drafts.conditional_rates, "s--", label="of those accepted so far")
    rates.set(title="Accepted drafts", xlabel="position in the draft", ylim=(0, 1))
    for axes in (points, order, rates):
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def page(report: Report) -> str:
    """The whole page."""
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
    """In sentences."""
    greedy = report.greedy
    maybe = len(greedy.differences) - len(greedy.wrong)
    kept = {True: "the same text again", False: "another text"}
    return (
        f"{report.url} ({report.engine}), compared with {report.baseline_url}",
        f"{greedy.same} of {greedy.texts} greedy texts are the baseline's ({greedy.tokens} tokens)",
        f"of the others {len(greedy.wrong)} tokens are wrong, {maybe} may be rounding",
        f"with a seed the server said {kept[report.seeds]}, the baseline {kept[report.baseline_seeds]}",
        f"{report.prompts} prompts; {report.tokens} tokens were said",
        f"{report.provenance['command']} ({report.provenance['made_by']}, {report.provenance['date']})",
    )


def _html(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    return f"<table><caption>{escape(table.title)}</caption><tr>{head}</tr>{rows}</table>"
