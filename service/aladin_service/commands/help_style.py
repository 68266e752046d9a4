"""The form of the command line's help: whole summaries, INDEX for an argument, N for a number."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

import typer
import typer.main
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.models import CommandInfo

# Names of values by Python type, for options and arguments without a metavar of their own.
_VALUE_NAMES = {"int": "N", "float": "X", "str": "TEXT", "Path": "PATH"}

_RANGES = (
    (re.compile(r"\b([\d.]+)<=x<=([\d.]+)"), r"\1 to \2"),
    (re.compile(r"\bx>=([\d.]+)"), r"at least \1"),
    (re.compile(r"\bx<=([\d.]+)"), r"at most \1"),
)


def _value_name(parameter: TyperArgument | TyperOption, context: Any) -> str:
    """Return the name of an option's value: its metavar, its choices, or its type."""
    if parameter.metavar is not None:
        return parameter.metavar
    name = parameter.display_type(context).strip("<>").removesuffix(" range")
    name = name.removeprefix("list[").removesuffix("]")
    return _VALUE_NAMES.get(name, name.upper() if name in ("file", "dir", "path") else name)


def _record(parameter: Any, context: Any) -> tuple[str, str] | None:
    """Return the name of a parameter and its description, or None if it is hidden."""
    found = cast("tuple[str, str] | None", parameter.get_help_record(context))
    if found is None:
        return None
    name, text = found
    if isinstance(parameter, TyperArgument):
        name = parameter.display_name_raw
    elif isinstance(parameter, TyperOption) and parameter.metavar is None:
        name = re.sub(r"<.*>", lambda _: _value_name(parameter, context), name)
    # A stated default or range is in one pair of brackets with what the framework adds.
    text = text.replace("]  [", "; ")
    for pattern, words in _RANGES:
        text = pattern.sub(words, text)
    return name, text


def _write_parameters(command: Any, context: Any, formatter: Any) -> None:
    records: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in command.get_params(context):
        record = _record(parameter, context)
        if record is not None:
            is_argument = isinstance(parameter, TyperArgument)
            records["Arguments" if is_argument else "Options"].append(record)
    for title, lines in records.items():
        if lines:
            with formatter.section(title):
                formatter.write_dl(lines)


class Command(TyperCommand):
    """A command whose usage names required arguments without braces.

    One whose options are made from dataclasses, see `flags`, has them once they are asked for.
    """

    @property
    def params(self) -> list[Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The arguments and options."""
        make = vars(self.callback).pop("whole", None) if self.callback else None
        if make is not None:
            whole = typer.main.get_command_from_info(
                CommandInfo(callback=make(), cls=TyperCommand),
                pretty_exceptions_short=False,
                rich_markup_mode=None,
            )
            self._params, self.callback = whole.params, whole.callback
        return self._params

    @params.setter
    def params(self, params: list[Any]) -> None:  # pyright: ignore
        self._params = params

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line: ``[OPTIONS] INDEX [TEXT]``."""
        pieces = ["[OPTIONS]"]
        for parameter in self.get_params(ctx):
            if isinstance(parameter, TyperArgument) and not parameter.hidden:
                name = parameter.display_name_raw
                pieces.append(name if parameter.required else f"[{name}]")
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options."""
        _write_parameters(self, ctx, formatter)


class Group(TyperGroup):
    """A group of commands whose summaries are never cut."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, and by panel the commands with the whole first sentence of each."""
        _write_parameters(self, ctx, formatter)
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                paragraph = (command.help or "").strip().partition("\n\n")[0]
                rows = panels.setdefault(command.rich_help_panel or "Commands", [])
                rows.append((name, " ".join(paragraph.split())))
        for title, rows in panels.items():
            with formatter.section(title):
                formatter.write_dl(rows)


class CommandApp(typer.Typer):
    """A `typer.Typer` whose commands and groups have this module's help."""

    def __init__(self, **options: Any) -> None:
        """Create the group; without arguments it shows its help."""
        defaults: dict[str, Any] = {
            "cls": Group,
            "no_args_is_help": True,
            "rich_markup_mode": None,
        }
        super().__init__(**defaults | options)

    def command(
        self, name: str | None = None, **options: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return a decorator that registers a function as a command; see `typer.Typer.command`."""
        options.setdefault("cls", Command)
        return super().command(name, **options)
