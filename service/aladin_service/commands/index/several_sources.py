"""``--images`` and ``--texts`` with several sources, as a shell writes them for ``*.jpg``."""

from __future__ import annotations

from typing import Any

from typer.core import TyperArgument

from aladin_service.commands.help_style import Command

_SOURCE_OPTIONS = ("--images", "--texts")


class SourcesCommand(Command):
    """A command whose --images and --texts take all words up to the next option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line in which several words may follow one of these options."""
        parameters = self.get_params(ctx)
        flags = {
            name
            for parameter in parameters
            if getattr(parameter, "is_flag", False)
            for name in (*parameter.opts, *parameter.secondary_opts)
        }
        flags |= set(self.get_help_option_names(ctx))
        needs_argument = any(
            isinstance(parameter, TyperArgument) and parameter.required for parameter in parameters
        )
        return super().parse_args(ctx, repeat_option(args, flags, needs_argument=needs_argument))


def repeat_option(words: list[str], flags: set[str], *, needs_argument: bool) -> list[str]:
    """Write --images and --texts before each of the words that follow them.

    If the command needs an argument that is at no other place, the last word after one of the
    options is the argument; what follows ``--`` is unchanged.
    """
    end = words.index("--") if "--" in words else len(words)
    result: list[str] = []
    source: str | None = None  # the option whose values follow
    takes_value = False  # whether the next word is the value of an option
    has_argument = end + 1 < len(words)
    last_repeated: int | None = None
    for word in words[:end]:
        if takes_value:
            takes_value = False
        elif word.startswith("-") and word != "-":
            name, has_value, _ = word.partition("=")
            name = name.replace("_", "-")
            source = name if name in _SOURCE_OPTIONS else None
            takes_value = not has_value and name not in flags
        elif source is not None:
            last_repeated = len(result)
            result.append(source)
        else:
            has_argument = True
        result.append(word)
    if needs_argument and not has_argument and last_repeated is not None:
        del result[last_repeated]
        result.append(result.pop(last_repeated))
    return result + words[end:]
