"""Files of the hub's models, in the hub's own cache: one look at the list, then what is wanted."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection
from pathlib import Path

from aladin_network.errors import CheckpointError, ConfigError
from aladin_network.sources.hub_messages import one_hub_warning

_LOG = logging.getLogger(__name__)

_CONFIG = "config.json"
_WAYS_OUT = (
    "without a network: on a machine that has one, `hf download {name} --local-dir FOLDER` (`pip"
    " install huggingface-hub`), carry FOLDER here, and give its path in place of the name; or set"
    " HF_HOME to a hub cache that holds it, or HF_ENDPOINT to a hub that can be reached"
)

Choose = Callable[[Collection[str]], Collection[str]]


def downloaded(name: str, revision: str | None, choose: Choose) -> Path:
    """Return the folder of a model in the hub's cache; what is missing there is downloaded.

    Args:
        name: Name of the model, OWNER/NAME.
        revision: Revision, or None for the newest.
        choose: Returns those files of the model that are needed, from the paths of all.

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
        raise CheckpointError(f"{name}: {reason}; {_WAYS_OUT.format(name=name)}") from error


_NOWHERE = (
    "the hub cannot be reached, its cache on this machine has no such model, and there is no such"
    " folder"
)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
