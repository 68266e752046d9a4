"""What the settings of a recipe have to fulfil: a table of (what holds, what to say otherwise)."""

from __future__ import annotations

from collections.abc import Iterable

from aladin_network.errors import ConfigError

# Whether a setting is possible, and the message if it is not.
Rule = tuple[bool, str]


def check(where: str, rules: Iterable[Rule]) -> None:
    """Raise a `ConfigError` with the message of the first rule that does not hold."""
    for holds, message in rules:
        if not holds:
            raise ConfigError(f"{where}{message}")
