"""Servers that the benchmarks compare: without a drafter, with drafters as chains and trees, and the engine's own."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.arguments import check_names, named_argument, named_folder, named_number
from benchmarks.kept import digest
from mtpc.errors import MTPCError
from mtpc.lab.evaluation.trees import TreeSettings
from mtpc.lab.servers.engine import Engine, ServerSettings
from mtpc.lab.servers.ngram import Ngram
from mtpc.lab.servers.speculation import resolve_num_drafts
from mtpc.lab.targets.folder import stated_sizes


class Contestant(NamedTuple):
    """One server to measure.

    Attributes:
        name: Row of the table.
        settings: Settings of the server.
        temperatures: Temperatures at which it can be measured.
        made_of: Inputs of its results, in addition to those that all servers share.
    """

    name: str
    settings: ServerSettings
    temperatures: tuple[float, ...]
    made_of: dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that `contestants` reads."""
    add = parser.add_argument
    add("--engine", default="vllm", help="engine to measure: vllm or sglang (default: %(default)s)")
    add("--target", type=Path, required=True, help="folder of the target")
    drafter = "measure this drafter checkpoint; may be repeated"
    add("--drafter", type=named_folder, action="append", default=[], metavar="NAME=DIR", help=drafter)
    drafts = "draft K tokens with this drafter (default: as many as it was trained for)"
    add("--drafts", type=named_number, action="append", default=[], metavar="NAME=K", help=drafts)
    ngram = "measure the engine's n-gram drafter: tokens to match, and K, such as 2-4:5"
    add("--ngram", action="append", default=[], metavar="MIN-MAX:K", help=ngram)
    shared = "pass this argument to all servers, such as --server-arg=--dtype=float32; may be repeated"
    add("--server-arg", action="append", default=[], help=shared)
    native = "measure a drafter that the engine itself supports; set it up with --drafter-arg and --drafts"
    add("--native", type=named_folder, action="append", default=[], metavar="NAME=DIR", help=native)
    own = "pass this argument to the server of one drafter, such as --drafter-arg=NAME=--speculative-token-map=FILE"
    add("--drafter-arg", type=named_argument, action="append", default=[], metavar="NAME=ARGUMENT", help=own)


def contestants(given: argparse.Namespace, engine: Engine, longest_prompt: int) -> Iterator[Contestant]:
    """Yield the servers in the order of the table's rows; the first one has no drafter.

    Args:
        given: The command line, see `add_arguments`.
        engine: The engine.
        longest_prompt: Tokens of the longest prompt.

    Raises:
        MTPCError: The engine cannot serve a drafter, or an option of it.
    """
    trees, ngrams = (
        TreeSettings(given.trees, given.borrow, given.max_children),
        [Ngram.parse(one) for one in given.ngram],
    )
    if trees.sizes and engine.name != "sglang":
        raise MTPCError(f"--trees is given, but {engine.title} verifies chains only; measure trees with SGLang.")
    if trees.sizes and not given.max_children:
        raise MTPCError("--trees needs --max-children, as SGLang does (--speculative-eagle-topk).")
    names = [name for name, _ in (*given.native, *given.drafter)]
    if not (names or ngrams):
        raise MTPCError("nothing is to be measured: add --drafter NAME=DIR, --native NAME=DIR or --ngram MIN-MAX:K.")
    check_names("--drafts", given.drafts, names)
    check_names("--drafter-arg", given.drafter_arg, names)
    target, drafts = stated_sizes(given.target), dict(given.drafts)
    numbers = {name: resolve_num_drafts(folder, drafts.get(name), target) for name, folder in given.drafter}
    if missing := [name for name, _ in given.native if name not in drafts]:
        raise MTPCError(f"--native {missing[0]} needs its number of draft tokens: add --drafts {missing[0]}=K.")
    numbers |= {name: drafts[name] for name, _ in given.native}
    most = max([0, *numbers.values(), *(ngram.drafts for ngram in ngrams), *(nodes for _, nodes, _ in trees.titles())])
    length, temperatures = longest_prompt + given.max_tokens + 1 + most, tuple(given.temperatures)
    plain = ServerSettings(given.target, given.batch_size, length, extra=tuple(given.server_arg))
    yield Contestant("no drafter", plain, temperatures, {})
    for ngram in ngrams:
        possible = tuple(t for t in temperatures if engine.ngram_obstacle(ngram, [t]) is None)
        if not possible:
            obstacle = engine.ngram_obstacle(ngram, temperatures)
            raise MTPCError(f"--ngram {ngram}: the n-gram drafter of {engine.title} cannot be measured: {obstacle}.")
        yield Contestant(f"n-gram {ngram}", replace(plain, ngram=ngram), possible, {"ngram": str(ngram)})
    for name, folder in (*given.native, *given.drafter):
        own = tuple(argument for whose, argument in given.drafter_arg if whose == name)
        native = (name, folder) in given.native
        chain = replace(plain, num_drafts=numbers[name], extra=(*plain.extra, *own), native=native)
        chain = chain if native else replace(chain, drafter=folder)
        made_of = {"drafter": digest(folder), "drafts": numbers[name], "own_arguments": own}
        yield Contestant(name, chain, temperatures, made_of)
        for title, nodes, count in () if native else trees.titles():
            extra = tree_arguments(chain.extra, given.max_children, nodes, count)
            whole = {**made_of, "tree": (nodes, count, given.max_children)}
            yield Contestant(f"{name}, {title}", replace(chain, extra=extra), temperatures, whole)


def tree_arguments(chain: Sequence[str], children: int, nodes: int, borrowed: int) -> tuple[str, ...]:
    """Return SGLang's arguments for a tree; its number of draft tokens includes the root, the pending token.

    Args:
        chain: Arguments for chains of the same drafter, whose settings of drafting are kept.
        children: Largest number of children of a node.
        nodes: Nodes of the tree, without the root.
        borrowed: Borrowed nodes among them.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(token_map := "--speculative-token-map", dest="settings", default="")
    known, arguments = parser.parse_known_args(chain)
    arguments += ["--speculative-eagle-topk", str(children), "--speculative-num-draft-tokens", str(nodes + 1)]
    if borrowed:
        known.settings += f"{'&' if '?' in known.settings else '?'}borrow={borrowed}"
    return (*arguments, token_map, known.settings) if known.settings else tuple(arguments)
