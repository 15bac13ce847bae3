"""What can go wrong that is nobody's bug: an input that cannot be used, a run that had to stop."""


class BadInput(ValueError):  # noqa: N818  (it names what happened, as the reader of a traceback needs it)
    """What was given cannot be used: the message says what is wrong, where, what is allowed and what to do."""


class RunStopped(RuntimeError):  # noqa: N818
    """A run could not go on (memory, disk); nothing of it is lost, and it can be started again."""
