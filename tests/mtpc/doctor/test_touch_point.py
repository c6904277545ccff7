"""What a line of an adapter's table expects of a function: here, of some of the standard library."""

from __future__ import annotations

import pytest

from mtpc.doctor.touch_point import TouchPoint, findings, sentences

# textwrap.shorten takes (text, width, **kwargs), shutil.move (src, dst, copy_function)
SHORTEN = TouchPoint("any", "textwrap", "shorten", "text width kwargs", "replaced", "a test")
MOVE = TouchPoint("any", "shutil", "move", "src dst copy_function", "wrapped", "a test")


@pytest.mark.parametrize(
    ("line", "parameters", "called", "replaced"),
    [
        (SHORTEN, "text width kwargs", True, True),
        (SHORTEN, "text", True, False),  # what follows is no concern of a caller
        (SHORTEN, "width", False, False),
        (MOVE, "src * copy_function", True, False),
        (MOVE, "src dst copy_function * dst", True, True),
        (MOVE, "src dst * other", False, False),
    ],
)
def test_what_is_called_begins_with_the_parameters_and_what_is_replaced_has_no_others(
    line: TouchPoint, parameters: str, called: bool, replaced: bool
) -> None:
    for how in ("called", "hooked"):
        assert (line._replace(parameters=parameters, how=how).problem() is None) == called
    for how in ("wrapped", "extended", "replaced"):
        assert (line._replace(parameters=parameters, how=how).problem() is None) == replaced


def test_what_is_found_is_said_in_a_sentence() -> None:
    gone = SHORTEN._replace(function="gone")
    right, wrong = findings("some engine", [SHORTEN, gone], "install version 1")
    assert right == ("some engine: shorten", True, "replaced: a test", "")
    assert (wrong.subject, wrong.ok, wrong.mend) == ("some engine: gone", False, "Install version 1.")
    assert list(sentences([SHORTEN, gone], "install version 1")) == [f"{wrong.detail}; install version 1."]
    assert wrong.detail.startswith("gone of textwrap cannot be used (")
