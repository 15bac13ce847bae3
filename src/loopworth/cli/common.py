"""What every command shares: a user's mistake as a message, options that come as pairs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from loopworth.errors import BadInput, RunStopped


def friendly(command: Callable[..., None]) -> Callable[..., None]:
    """A user's mistake ends in its message and exit code 2, a run that had to stop in 3, without a traceback."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        warnings.formatwarning = _one_line
        try:
            command(*args, **kwargs)
        except BadInput as error:
            click.echo(f"loopworth: {error}", err=True)
            raise SystemExit(2) from None
        except RunStopped as error:
            click.echo(f"loopworth: {error}", err=True)
            raise SystemExit(3) from None
        except KeyboardInterrupt:
            click.echo("\nloopworth: interrupted. The same command again goes on with what is finished.", err=True)
            raise SystemExit(130) from None
        except BrokenPipeError:  # whoever read the output has gone; click ends quietly
            raise
        except OSError as error:
            if error.filename is None:
                raise
            click.echo(f"loopworth: {error.filename}: {error.strerror}.", err=True)
            raise SystemExit(2) from None

    return run


def _one_line(message: Warning | str, category: type[Warning], *_: Any) -> str:
    return f"{'loopworth' if category.__module__.startswith('loopworth') else category.__name__}: {message}\n"


def pairs(values: tuple[str, ...], option: str, form: str) -> dict[str, str]:
    """`theirs=ours` options as a mapping."""
    found = {}
    for value in values:
        left, sign, right = value.partition("=")
        if not sign or not left.strip() or not right.strip():
            raise BadInput(f"{option} {value!r} is not of the form {form}.")
        if left.strip() in found:
            raise BadInput(f"{option} names {left.strip()!r} twice.")
        found[left.strip()] = right.strip()
    return found
