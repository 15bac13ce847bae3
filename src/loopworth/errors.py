"""The one error a user can cause."""


class BadInput(ValueError):  # noqa: N818  (it names what happened, as the reader of a traceback needs it)
    """What was given cannot be used: the message says what is wrong, where, what is allowed and what to do."""
