"""The one exception type whose message is meant for the user, not for a debugger."""


class MTPCError(ValueError):
    """A setting or a file is wrong.  The message is one sentence: what was found, what was expected.

    Raised by the core, shown as it is (no stack trace) by the command line and the engine adapters.
    """
