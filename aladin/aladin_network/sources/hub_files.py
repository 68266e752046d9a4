"""Files of the hub's models, in the hub's own cache: one look at the list, then what is wanted."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from aladin_network.errors import CheckpointError, ConfigError
from aladin_network.files import sha256_of
from aladin_network.sources.hub_messages import one_hub_warning

_LOG = logging.getLogger(__name__)

_CONFIG = "config.json"
_WAYS_OUT = (
    "without a network: on a machine that has one, `hf download {name}{files} --local-dir FOLDER`"
    " (`pip install huggingface-hub`), carry FOLDER here, and give {path} in place of the name;"
    " or set HF_HOME to a hub cache that holds it, or HF_ENDPOINT to a hub that can be reached"
)

Choose = Callable[[Collection[str]], Collection[str]]


class Pin(NamedTuple):
    """The state of a model that its name alone stands for.

    Attributes:
        revision: Commit on the hub.
        sha256: What the files of this commit must be, by their paths; others are not checked.
    """

    revision: str
    sha256: Mapping[str, str]


# As several public projects give them that do not depend on each other.
PINS = {
    "Xenova/clip-vit-base-patch32": Pin(
        "d15189d7028b43f1d3e65039190477f6af591c2a",
        {
            "config.json": "493ef57ff783e42d1530c91b53469b7fdf8db8a9c1408e86998fcb7899a4f495",
            "preprocessor_config.json": (
                "6f638fb9401a6d6296feff533ee7efe657b787c49f954f82f5906b36ef2a1b1f"
            ),
            "tokenizer.json": "f7f3b7af117d467b58374797691a6438d3e6b9e9cef800dfd5dced7f697a90cd",
            "onnx/vision_model_quantized.onnx": (
                "583fd1110a514667812fee7d684952aaf82a99b959760c8d7dca7e0ab9839299"
            ),
            "onnx/text_model_quantized.onnx": (
                "73baab855d406190da9faa498cfedf65f15cf309f4cc7385b7b032e6d08e5c3a"
            ),
            "onnx/vision_model_fp16.onnx": (
                "35c4e0fb0aeee527dcde1693520b214a34424a786babd530f35366bad5844efd"
            ),
            "onnx/text_model_fp16.onnx": (
                "df587ffbf248bf20d44fa6e16adc5ebc27ead691860e5333dbdaab5fd6bf3f6e"
            ),
            "onnx/vision_model.onnx": (
                "fd6e1402a588279d1723c7534d4bcba5bc0b14b47dfab0e46f8c47b8270d7d40"
            ),
            "onnx/text_model.onnx": (
                "3f6571f5bad13a97c469c1622e1cfc4d9aef78b79fdbfcff804ca357bfada8cc"
            ),
        },
    ),
}


def check_pin(name: str, revision: str | None, folder: Path) -> None:
    """Check files of the hub's cache against the pin of the model, if it is of that revision.

    Raises:
        CheckpointError: If a file is another one.
    """
    pin = PINS.get(name)
    if pin is None or pin.revision != revision:
        return
    for file, expected in pin.sha256.items():
        if (folder / file).is_file() and (found := sha256_of(folder / file)) != expected:
            raise CheckpointError(
                f"{name}: {folder / file}: expected the SHA-256 {expected}, got {found}; remove the"
                " file, and it is downloaded again"
            )


def downloaded(name: str, revision: str | None, choose: Choose, variant: str = "") -> Path:
    """Return the folder of a model in the hub's cache; what is missing there is downloaded.

    Args:
        name: Name of the model, OWNER/NAME.
        revision: Revision, or None for the newest.
        choose: Returns those files of the model that are needed, from the paths of all.
        variant: Variant of its graphs that is wanted, for the message.

    Raises:
        CheckpointError: If there is no such model, or the hub cannot be reached and its cache has
            nothing of it.
        ConfigError: Of `choose`.
    """
    from huggingface_hub import HfApi, snapshot_download, try_to_load_from_cache
    from huggingface_hub.errors import (
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )
    from huggingface_hub.utils import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        _LOG.info("looking for %s on the hub and in its cache", name)
        with one_hub_warning():
            found = HfApi().model_info(name, revision=revision)
            names = [each.rfilename for each in found.siblings or ()]
            wanted = list(choose(names))
            # By its commit, so that all files are of one state, and none is asked for in vain.
            return Path(snapshot_download(name, revision=found.sha, allow_patterns=wanted))
    except (CheckpointError, ConfigError):
        raise
    except Exception as error:  # its HTTP client's errors change with the library's version
        is_answer = isinstance(error, HfHubHTTPError) and not isinstance(
            error, LocalEntryNotFoundError
        )
        cached = None if is_answer else try_to_load_from_cache(name, _CONFIG, revision=revision)
        if isinstance(cached, str):
            return Path(cached).parent
        reasons: dict[type[Exception], str] = {
            RevisionNotFoundError: f"the hub has no revision {revision} of it",
            RepositoryNotFoundError: "the hub has no such model, or shows it to other users only",
            LocalEntryNotFoundError: _NOWHERE,
            OfflineModeIsEnabled: _NOWHERE,
            HfHubHTTPError: f"the hub refuses it ({_first_line(error)})",
            Exception: f"the hub cannot be reached ({_first_line(error)})",
        }
        reason = next(reason for kind, reason in reasons.items() if isinstance(error, kind))
        files = f" --include '*.json' '*_{variant}.onnx'" if variant else ""
        path = f"FOLDER:{variant}" if variant else "its path"
        ways_out = _WAYS_OUT.format(name=name, files=files, path=path)
        raise CheckpointError(f"{name}: {reason}; {ways_out}") from error


_NOWHERE = (
    "the hub cannot be reached, its cache on this machine has no such model, and there is no such"
    " folder"
)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
