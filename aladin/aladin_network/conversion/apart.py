"""Conversion of a model of transformers in a process that ends with it.

Torch, transformers and the exporter take more than two gigabytes that a process never gives back.
The other process writes what it logs, and why it failed, as lines of JSON; this one logs them. It
ends when its input is closed, and so with this process, however that ends.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, cast

from typing_extensions import override

from aladin_network.errors import AladinError, CheckpointError
from aladin_network.files import read_json

_LOG = logging.getLogger(__name__)

_MOST_CHARS = 300


def convert_apart(folder: Path, out: Path, known_as: str | None) -> None:
    """Convert a dual encoder to a checkpoint with graphs, in another process.

    Args:
        folder: Folder of the model.
        out: Folder of the checkpoint, which appears complete.
        known_as: Name to record instead of the folder, or None.

    Raises:
        CheckpointError: If the folder is no dual encoder, or the conversion fails.
    """
    arguments = [str(folder), str(out), known_as or ""]
    last, failure = "", None
    with subprocess.Popen(
        [sys.executable, "-m", __name__, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                said = _parsed(line)
                if said is None:
                    last = line.strip()[:_MOST_CHARS] or last
                elif said["level"] is None:
                    failure = said["message"]
                else:
                    _LOG.log(said["level"], "%s", said["message"])
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        ended = f"{known_as or folder}: its conversion ended with status {process.returncode}"
        raise CheckpointError(failure or f"{ended} ({last})")


def _parsed(line: str) -> dict[str, Any] | None:
    """Return what the other process says; libraries print as they like."""
    try:
        said: object = json.loads(line)
    except ValueError:
        return None
    if not isinstance(said, dict):
        return None
    parts = cast(dict[str, Any], said)
    return parts if parts.keys() == {"level", "message"} else None


def convert_here(folder: Path, out: Path, known_as: str | None) -> None:
    """Convert a dual encoder in this process; see `convert_apart`."""
    from aladin_network.conversion.towers import TowersOptions, convert_towers
    from aladin_network.encoders.pretrained import is_dual_encoder
    from aladin_network.graphs.export import export_where_possible

    if not (is_dual_encoder(str(folder), "vision") and is_dual_encoder(str(folder), "text")):
        kind = read_json(folder / "config.json").get("model_type")
        raise CheckpointError(
            f"{known_as or folder}: expected a dual encoder such as CLIP or SigLIP, got a model of"
            f" the type {kind!r}; `aladin convert towers` makes a network of it, to be trained"
        )
    # The checkpoint is complete or not there: its writer renames a finished folder.
    convert_towers(str(folder), out, TowersOptions(known_as=known_as))
    export_where_possible(out)


class _Lines(logging.Handler):
    @override
    def emit(self, record: logging.LogRecord) -> None:
        _say(record.levelno, record.getMessage())


def _say(level: int | None, message: str) -> None:
    sys.stdout.write(json.dumps({"level": level, "message": message}) + "\n")
    sys.stdout.flush()


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(1)  # nobody is left to whom anything could be reported


def _main(folder: str, out: str, known_as: str) -> int:
    threading.Thread(target=_end_with_input, daemon=True).start()
    own = logging.getLogger("aladin_network")
    own.addHandler(_Lines())
    own.setLevel(logging.INFO)
    own.propagate = False
    try:
        convert_here(Path(folder), Path(out), known_as or None)
    except AladinError as error:
        _say(None, str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
