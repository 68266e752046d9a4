"""Options of a command made from the fields of dataclasses: names, types, defaults, bounds, help.

The dataclasses are imported when the command is chosen, so that ``aladin --help`` stays fast; until
then `help_style.Command` knows only the command's own name and docstring.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import partial, reduce, wraps
from itertools import chain
from operator import or_
from types import UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

Result = TypeVar("Result")


class Flags(NamedTuple):
    """The options in place of one parameter.

    Attributes:
        kind: Dataclass that the command gets.
        written: By field what the command line says in its own form: an annotation as of any other
            parameter, a dictionary of the arguments of `typer.Option` and the `flag` that differ,
            or None for a field without an option.
        defaults: By field the default of the command line, where it is another.
    """

    kind: type[Any]
    written: Mapping[str, Any]
    defaults: Mapping[str, Any] = {}


def with_flags(
    **made_by: Callable[[], Flags],
) -> Callable[[Callable[..., Result]], Callable[[], Result]]:
    """Replace parameters of a command, each a dataclass, by an option for each of its fields.

    An option is called as its field, has its type, default and bounds, and says what its
    description says.
    """

    def decorate(command: Callable[..., Result]) -> Callable[[], Result]:
        def whole() -> Callable[..., Result]:
            return _with_options(command, {name: make() for name, make in made_by.items()})

        @wraps(command)
        def chosen() -> Result:
            raise AssertionError("`help_style.Command` runs the whole command")

        _sign(chosen, [])
        vars(chosen)["whole"] = whole
        return chosen

    return decorate


def _with_options(
    command: Callable[..., Result], made_by: Mapping[str, Flags]
) -> Callable[..., Result]:
    options = {name: [*_options(flags)] for name, flags in made_by.items()}

    @wraps(command)
    def run(**given: Any) -> Result:
        for name, made in options.items():
            values = {each.name: given.pop(each.name) for each in made}
            given[name] = made_by[name].kind(**values)
        return command(**given)

    kinds = {flags.kind.__name__: flags.kind for flags in made_by.values()}
    own = inspect.signature(command)
    known = get_type_hints(command, localns=kinds, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for each in own.parameters.values():
        made = options.get(each.name) or [each.replace(annotation=known[each.name])]
        parameters += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in made]
    _sign(run, parameters)
    return run


def _sign(function: Callable[..., object], parameters: list[inspect.Parameter]) -> None:
    """Give a function that wraps another these parameters, in place of the other's."""
    function.__annotations__ = {}
    del vars(function)["__wrapped__"]
    vars(function)["__signature__"] = inspect.Signature(parameters)


def _options(flags: Flags) -> Iterator[inspect.Parameter]:
    """Yield the options, first those that are written by hand, in their order there."""
    hints = get_type_hints(flags.kind, include_extras=True)
    own = [*flags.written]
    for each in sorted(fields(flags.kind), key=lambda each: _place(each.name, own)):
        written = flags.written.get(each.name, {})
        if written is None:
            continue
        default = flags.defaults.get(each.name, each.default)
        if isinstance(written, Mapping):
            differs: dict[str, Any] = {**written}
            written = _option(each.name, hints[each.name], differs, is_on=default is True)
        if default is MISSING:
            default = inspect.Parameter.empty
        yield inspect.Parameter(
            each.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=written
        )


def _parsed(parse: Callable[[str], object], value: object) -> object:
    return parse(value) if isinstance(value, str) else value


def _place(name: str, names: Sequence[str]) -> int:
    return names.index(name) if name in names else len(names)


def _without_notes(hint: Any) -> tuple[Any, list[Any]]:
    """Return a type without what is annotated, on the members of a union too, and all of that."""
    if get_origin(hint) is Annotated:
        kind, notes = _without_notes(hint.__origin__)
        return kind, [*notes, *hint.__metadata__]
    if get_origin(hint) not in (Union, UnionType):
        return hint, []
    kinds, notes = zip(*map(_without_notes, get_args(hint)), strict=True)
    return reduce(or_, kinds), [*chain(*notes)]


def _option(name: str, hint: Any, differs: dict[str, Any], *, is_on: bool) -> Any:
    """Return a field's type with an option of its name, bounds and description."""
    import typer
    from annotated_types import Ge, Le
    from pydantic.fields import FieldInfo

    kind, notes = _without_notes(hint)
    flag = f"--{name.replace('_', '-')}"
    if kind is bool and is_on:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    said: dict[str, Any] = {}
    for note in notes:
        match note:
            case Ge(ge=limit):
                said["min"] = limit
            case Le(le=limit):
                said["max"] = limit
            case FieldInfo(description=str(text)):
                said["help"] = text
            case _:
                pass
    parser = differs.pop("parser", None)
    if parser is not None:  # which has the bounds, and leaves a default alone
        kind, differs["show_default"] = str | None, False
        differs["parser"] = partial(_parsed, parser)
        said = {"help": said.get("help")}
    return Annotated[
        differs.pop("type", kind), typer.Option(differs.pop("flag", flag), **(said | differs))
    ]
