"""`mtpc inspect --tree`: what a step drafts, borrows and accepts, in the terminal and as a picture."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from rich.text import Text
from typer.testing import CliRunner, Result

from mtpc.lab.cli.main import app
from mtpc.lab.inspect.tree_step import DraftTreeShape, TreeStep, tree_step
from mtpc.lab.inspect.tree_terminal import render_tree
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.targets.generation import generate
from mtpc.lab.text.byte_tokenizer import build_byte_tokenizer
from tests.mtpc.lab.chat_folder import ASKING, OPENING, TEMPLATE
from tests.support.random_fastmtp import make_fastmtp
from tests.support.random_gumiho import make_gumiho
from tests.support.random_models import make_copying, make_drafter, make_target

PROMPT = "It was the best of "
HEADS = {"positions": 3, "blocks": 1, "circuit": "ff", "rank": 1}
MAKE = {
    "mtpc": make_drafter,
    "fastmtp": make_fastmtp,
    "gumiho": lambda folder, target: make_gumiho(folder, target, HEADS, num_hidden_layers=2, normed=False),
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_target(tmp_path_factory.mktemp("models") / "target")


@pytest.fixture(scope="module", params=MAKE)
def drafter(request: pytest.FixtureRequest, target: Path) -> Path:
    return MAKE[request.param](target.parent / request.param, target)


def greedy(target: Path, prompt: str, length: int) -> list[int]:
    """Return the target's greedy output after a prompt."""
    (text,) = generate(FrozenTarget(target), [list(prompt.encode())], length, 0.0)
    return text[len(prompt) :]


def path_of(step: TreeStep) -> list[str]:
    """What is accepted, from the root, with the target's own tokens around it."""
    nodes, place = [], step.deepest_accepted
    while place >= 0:
        assert step.nodes[place].is_accepted
        nodes.append(step.nodes[place].token)
        place = step.nodes[place].parent
    return [step.first, *reversed(nodes), step.last]


def inspected(drafter: Path, target: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["inspect", str(drafter), "--tree", PROMPT, "--target", str(target), *options])


def test_a_step(drafter: Path, target: Path) -> None:
    """The accepted path is the target's greedy output as far as it was drafted, and one token more."""
    decode, found = build_byte_tokenizer().decode, []
    for start in range(6):
        prompt = PROMPT[: start + 4]
        plain, step = (tree_step(drafter, target, prompt, DraftTreeShape(20, 4, borrow)) for borrow in (0, 8))
        expected = [decode([token]) for token in greedy(target, prompt, step.accepted + 2)]
        assert path_of(step) == expected
        assert not any(node.is_borrowed for node in plain.nodes)
        assert len(step.nodes) == len(plain.nodes) == 20
        assert all(node.probability <= step.nodes[node.parent].probability for node in step.nodes if node.parent >= 0)
        found.append((step.accepted, sum(node.is_borrowed for node in step.nodes)))
    accepted, borrowed = zip(*found, strict=True)
    assert max(accepted) > 0
    assert max(borrowed) > 0


def test_what_is_shown(drafter: Path, target: Path, tmp_path: Path) -> None:
    file = tmp_path / "new" / "tree.png"
    result = inspected(drafter, target, "--nodes", "12", "--children", "3", "--borrow", "4", "--out", str(file))
    assert result.exit_code == 0
    step = tree_step(drafter, target, PROMPT, DraftTreeShape(12, 3, 4))
    assert f"12 draft tokens, {sum(node.is_borrowed for node in step.nodes)} of them borrowed" in result.output
    assert result.output.count("target token") == 2
    assert result.output.count("accepted") == step.accepted + 1
    assert file.read_bytes().startswith(b"\x89PNG")
    assert "Serve it" not in result.output


def test_an_answer_is_drafted_where_there_is_a_chat_template(target: Path, tmp_path: Path) -> None:
    tokenizer = build_byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    chat = make_target(tmp_path / "chat")
    tokenizer.save_pretrained(chat)
    asked = tokenizer(OPENING + PROMPT + ASKING, add_special_tokens=False).input_ids
    drafter = make_drafter(tmp_path / "drafter", chat)
    step = tree_step(drafter, chat, PROMPT, DraftTreeShape(12, 3, 0))
    (text,) = generate(FrozenTarget(chat), [asked], step.accepted + 2, 0.0)
    assert path_of(step) == [tokenizer.decode([token]) for token in text[len(asked) :]]
    assert step.nodes != tree_step(drafter, target, PROMPT, DraftTreeShape(12, 3, 0)).nodes


def test_what_a_token_says_is_never_markup() -> None:
    label = render_tree(TreeStep("[red]", (), "last")).label
    assert isinstance(label, Text)
    assert label.plain.startswith('"[red]"')


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--nodes", "40", "--children", "1"), "a draft tree of 40 nodes does not fit"),
        (("--nodes", "5", "--borrow", "5"), "cannot borrow 5 of 5 draft tree nodes"),
    ],
)
def test_a_tree_that_cannot_be(target: Path, tmp_path: Path, options: tuple[str, ...], sentence: str) -> None:
    result = inspected(make_drafter(tmp_path / "drafter", target), target, *options)
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_a_drafter_of_chains(target: Path, tmp_path: Path) -> None:
    result = inspected(make_copying(tmp_path / "copying", target), target)
    assert result.exit_code == 2
    assert result.stderr.endswith("this drafter cannot draft trees: its parallel part drafts chains only.\n")


def test_without_a_target_or_matplotlib(target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = make_drafter(tmp_path / "drafter", target)
    result = CliRunner().invoke(app, ["inspect", str(drafter), "--tree", PROMPT])
    assert result.exit_code == 2
    assert "--tree requires --target" in result.stderr
    monkeypatch.setitem(sys.modules, "mtpc.lab.inspect.tree_picture", None)
    result = inspected(drafter, target, "--out", str(tmp_path / "tree.png"))
    assert result.exit_code == 2
    assert "--out requires the package matplotlib" in result.stderr
    assert not (tmp_path / "tree.png").exists()


@pytest.mark.parametrize("name", ["tree.zzz", "tree.pdf", "tree"])
def test_a_picture_of_another_kind(name: str, tmp_path: Path) -> None:
    arguments = ["inspect", "nowhere", "--tree", PROMPT, "--target", "nowhere", "--out", str(tmp_path / name)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stderr.endswith("trees are drawn as PNG: give a file that ends in .png.\n")
    assert not list(tmp_path.iterdir())


def test_a_picture_of_no_tree(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["inspect", "nowhere", "--out", str(tmp_path / "tree.png")])
    assert result.exit_code == 2
    assert "--out requires --tree PROMPT" in result.stderr


@pytest.mark.parametrize(("option", "number"), [("--nodes", 15), ("--children", 4), ("--borrow", 0)])
def test_options_of_no_tree(option: str, number: int) -> None:
    """Also with the default."""
    result = CliRunner().invoke(app, ["inspect", "nowhere", option, str(number)])
    assert result.exit_code == 2
    assert result.stderr == f"mtpc: {option} has no effect without --tree PROMPT.\n"


def test_a_prompt_in_another_encoding() -> None:
    prompt = b"caf\xe9".decode("utf-8", "surrogateescape")  # as Python reads its arguments
    result = CliRunner().invoke(app, ["inspect", "nowhere", "--tree", prompt, "--target", "nowhere"])
    assert result.exit_code == 2
    assert result.stderr == "mtpc: --tree is 'caf\\udce9', but it must be UTF-8 text.\n"


def test_a_prompt_without_tokens(target: Path, tmp_path: Path) -> None:
    arguments = ["--tree", "", "--target", str(target)]
    result = CliRunner().invoke(app, ["inspect", str(make_drafter(tmp_path / "drafter", target)), *arguments])
    assert result.exit_code == 2
    assert result.stderr.endswith("--tree '' holds no token; give a prompt of at least one token.\n")
