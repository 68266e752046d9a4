"""``aladin key remove``."""

from __future__ import annotations

import typer

from aladin_service.commands.key.arguments import KeysOption, NameArgument


def remove(name: NameArgument, keys: KeysOption) -> None:
    """Remove an API key.

    In: FILE. Out: FILE without the key, which a running service refuses a second later.
    """
    from aladin_service.keys.keys_file import remove_key

    remove_key(keys, name)
    typer.echo(f"the key {name!r} is removed", err=True)
