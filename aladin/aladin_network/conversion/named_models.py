"""Models by name: a checkpoint, a folder of the transformers library, or a name of the hub.

On the hub, a name may stand for a model of transformers or for a checkpoint. A dual encoder is
converted once, to a checkpoint in a cache, which gets its graphs; later calls return that. The key
of a folder is the content of its files, so that a changed folder is converted anew; that of a hub
name is the name with its revision. Torch is imported only if something has to be converted.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

from aladin_network.errors import CheckpointError
from aladin_network.files import atomic_folder, lock_to_write, read_json, sha256_of
from aladin_network.sources.hub_messages import missing_folder, one_hub_warning
from aladin_network.sources.limits import check_model_folder

_LOG = logging.getLogger(__name__)

# Chosen for a folder of photos on a computer without a GPU: the fastest of the well-known dual
# encoders (32 x 32 px patches, 50 per photo), 0.6 GB to download, MIT licence. SigLIP 2
# (google/siglip2-base-patch16-224, Apache 2.0) finds more and reads many languages, at four times
# the time per photo and 1.5 GB.
DEFAULT_MODEL = "openai/clip-vit-base-patch32"

# Part of every key: to be raised if the conversion of the same files changes.
_VERSION = 2
_CONFIG = "config.json"
# Files of a checkpoint: names that `aladin_network.checkpoint` gives, which imports torch.
_CHECKPOINT = (_CONFIG, "model.safetensors", "tokenizer.json")
# What is fitted to the weights; the calibration belongs to the correction.
_FITTED = ("correction.safetensors", "calibration.json")
# Of a model's files, those that the conversion reads; weights in other forms are not downloaded.
_DESCRIPTIONS = ("*.json", "*.txt", "*.model")
_WEIGHTS, _OLD_WEIGHTS = "*.safetensors", "*.bin"
_HUB_NAME = re.compile(r"(?P<name>[\w-][\w.-]*/[\w-][\w.-]*)(@(?P<revision>[\w./-]+))?")
_WAYS_OUT = (
    "connect to a network for the download, give a folder of such a model or a checkpoint, or set"
    " HF_HOME to a hub cache that holds it, or HF_ENDPOINT to a hub that can be reached"
)


class _Source(NamedTuple):
    """A model that has to be converted."""

    name: str
    key: str
    folder: Path | None
    revision: str | None = None


def named_model(name: str, cache_folder: Callable[[], Path]) -> Path:
    """Return the checkpoint that a name stands for; convert the model if that was never done.

    Processes that name the same model at once convert it once: the others wait. A conversion that
    is killed leaves nothing that a later one would take for complete.

    Args:
        name: Folder of a checkpoint; folder of a dual encoder as transformers saves it; or name of
            either on the hub, such as ``openai/clip-vit-base-patch32``, with ``@REVISION`` for
            another revision than the newest.
        cache_folder: Returns the folder of converted models, which is created if it does not
            exist; called only if `name` is no checkpoint.

    Returns:
        Folder of a checkpoint; `name` itself if it is one.

    Raises:
        CheckpointError: If there is no such model, the hub cannot be reached, the model is no dual
            encoder, or the cache cannot be written.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        check_model_folder(folder)
        if "model_type" not in _read_config(folder):
            return folder  # a checkpoint, or something that its reader describes
        source = _local(folder)
    else:
        source = _on_hub(name)
    cache = cache_folder()
    out = cache / source.key
    if not (out / _CONFIG).exists():
        with _only_converter(cache, source):
            if not (out / _CONFIG).exists():
                _convert(source, out)
                from aladin_network.graphs.export import export_where_possible

                export_where_possible(out)
    return out


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        data: object = read_json(folder / _CONFIG)
    except (OSError, ValueError):
        return {}
    return cast(dict[str, Any], data) if isinstance(data, dict) else {}


def _local(folder: Path) -> _Source:
    """Identify a folder by the content of the files that the conversion reads."""
    digest = hashlib.sha256(b"%d" % _VERSION)
    try:
        weights = list(folder.glob(_WEIGHTS)) or list(folder.glob(_OLD_WEIGHTS))
        described = (path for each in _DESCRIPTIONS for path in folder.glob(each))
        for path in sorted([*weights, *described]):
            content = f"{path.name} {sha256_of(path)}\n"
            digest.update(content.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise CheckpointError(f"{error.filename}: cannot be read ({error.strerror})") from error
    plain = re.sub(r"[^\w.-]+", "-", folder.resolve().name) or "model"
    return _Source(str(folder), f"{plain}-{digest.hexdigest()[:16]}", folder)


def _on_hub(name: str) -> _Source:
    match, missing = _HUB_NAME.fullmatch(name), missing_folder(name)
    if match is None or missing is not None:
        raise CheckpointError(
            f"{name}: {missing or 'no such folder'}; expected a checkpoint, a folder of a model of"
            f" the transformers library, or its name on the hub, such as {DEFAULT_MODEL}"
        )
    key = f"{_VERSION} {match['name']}@{match['revision'] or 'main'}"
    digest = hashlib.sha256(key.encode()).hexdigest()
    plain = match["name"].replace("/", "--")
    return _Source(match["name"], f"{plain}-{digest[:16]}", None, match["revision"])


@contextmanager
def _only_converter(cache: Path, source: _Source) -> Generator[None]:
    """Wait until no other process converts the same model; a lock ends with its process."""
    path = cache / f".{source.key}.lock"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = path.open("w")
    except OSError as error:
        reason = f"{error.strerror}; ALADIN_MODELS_DIR names another folder"
        raise CheckpointError(f"{cache}: converted models cannot be kept here ({reason})") from None
    with lock:
        try:
            lock_to_write(lock.fileno(), cache, wait=False)
        except BlockingIOError:
            _LOG.info("waiting for another process, which converts %s", source.name)
            lock_to_write(lock.fileno(), cache)
        yield


def _convert(source: _Source, out: Path) -> None:
    for leftover in out.parent.glob(f".{out.name}.*.partial"):  # of a process that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    folder, known_as = source.folder, None
    if folder is None:
        folder, known_as = _downloaded(source), source.name
        if "schema_version" in _read_config(folder):  # a checkpoint
            _link(folder, out)
            return
    # Imported now, because a missing model is to be reported before torch is loaded.
    from aladin_network.conversion.towers import TowersOptions, convert_towers
    from aladin_network.encoders.pretrained import is_dual_encoder

    _LOG.info("converting %s, once, to %s", source.name, out)
    if not (is_dual_encoder(str(folder), "vision") and is_dual_encoder(str(folder), "text")):
        kind = _read_config(folder).get("model_type")
        raise CheckpointError(
            f"{source.name}: expected a dual encoder such as CLIP or SigLIP, got a model of the"
            f" type {kind!r}; `aladin convert towers` makes a network of it, to be trained"
        )
    # The checkpoint is complete or not there: its writer renames a finished folder.
    convert_towers(str(folder), out, TowersOptions(known_as=known_as))


def _link(folder: Path, out: Path) -> None:
    """Take a checkpoint over from the hub's cache, without a copy where the disk allows that."""
    with atomic_folder(out) as partial:
        for name in (*_CHECKPOINT, *_FITTED):
            file = (folder / name).resolve()  # the hub's cache keeps links to files
            if not file.exists():
                continue
            try:
                (partial / name).hardlink_to(file)
            except OSError:
                shutil.copyfile(file, partial / name)


def _downloaded(source: _Source) -> Path:
    """Return the model's files in the hub's own cache, downloaded if they must be."""
    from huggingface_hub import snapshot_download, try_to_load_from_cache
    from huggingface_hub.errors import (
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )
    from huggingface_hub.utils import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()

    def fetch(patterns: Iterable[str]) -> Path:
        return Path(
            snapshot_download(
                source.name,
                revision=source.revision,
                allow_patterns=list(patterns),
                ignore_patterns=["*/*"],
            )
        )

    try:
        _LOG.info("looking for %s on the hub and in its cache", source.name)
        with one_hub_warning():
            folder = fetch([*_DESCRIPTIONS, _WEIGHTS])
            return folder if any(folder.glob(_WEIGHTS)) else fetch([*_DESCRIPTIONS, _OLD_WEIGHTS])
    except Exception as error:  # its HTTP client's errors change with the library's version
        cached = (
            try_to_load_from_cache(source.name, _CONFIG, revision=source.revision)
            if isinstance(error, LocalEntryNotFoundError)
            else None
        )
        if isinstance(cached, str):
            return Path(cached).parent  # only some of the files are in the cache
        reasons: dict[type[Exception], str] = {
            RevisionNotFoundError: f"the hub has no revision {source.revision} of it",
            RepositoryNotFoundError: "the hub has no such model, or shows it to other users only",
            LocalEntryNotFoundError: "the hub cannot be reached, its cache on this machine has no"
            " such model, and there is no such folder",
            HfHubHTTPError: f"the hub refuses it ({_first_line(error)})",
            Exception: f"the hub cannot be reached ({_first_line(error)})",
        }
        reason = next(reason for kind, reason in reasons.items() if isinstance(error, kind))
        raise CheckpointError(f"{source.name}: {reason}; {_WAYS_OUT}") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
