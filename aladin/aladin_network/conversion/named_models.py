"""Models by name: a checkpoint, a folder of another project's model, or a name of the hub.

On the hub, a name may stand for a model of transformers, for one that has ONNX graphs or for a
checkpoint. A dual encoder of transformers is converted once, to a checkpoint in a cache, which gets
its graphs; one that has graphs is described and linked (`aladin_network.conversion.graph_models`),
without torch; later calls return that. The key of a folder is the content of its files, so that a
changed folder is converted anew; that of a hub name is the name with its revision. Torch is
imported in a process of its own, which ends with the conversion: its memory is not kept.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

from aladin_network.conversion.apart import convert_apart
from aladin_network.conversion.layouts import GraphFiles, Variant, graph_files, plain_files
from aladin_network.errors import CheckpointError, ConfigError, is_installed, missing_package
from aladin_network.files import atomic_folder, link_or_copy, lock_to_write, read_json, sha256_of
from aladin_network.sources.hub_files import PINS, check_pin, downloaded
from aladin_network.sources.hub_messages import missing_folder
from aladin_network.sources.limits import check_model_folder

_LOG = logging.getLogger(__name__)

# Chosen for a folder of photos on a computer without a GPU: the fastest of the well-known dual
# encoders (32 x 32 px patches, 50 per photo), 303 MB to download, MIT licence, and without torch.
# In half precision, which ranks as the original does; `:quantized` is half of that and twice as
# fast, and what it finds was not measured.
# SigLIP 2 (google/siglip2-base-patch16-224, Apache 2.0) finds more and reads many languages, at
# four times the time per photo and 1.5 GB.
DEFAULT_MODEL = "Xenova/clip-vit-base-patch32:fp16"

# Part of every key: to be raised if the conversion of the same files changes.
_VERSION = 3
_CONFIG = "config.json"
# Files of a checkpoint: names that `aladin_network.checkpoint` gives, which imports torch.
_CHECKPOINT = (_CONFIG, "model.safetensors", "tokenizer.json")
# What is fitted to the weights; the calibration belongs to the correction.
_FITTED = ("correction.safetensors", "calibration.json")
_HUB_NAME = re.compile(r"(?P<name>[\w-][\w.-]*/[\w-][\w.-]*)(@(?P<revision>[\w./-]+))?")
# What only a model of the transformers library needs.
_FRAMEWORK = ("torch", "transformers")


class _Source(NamedTuple):
    """A model that has to be converted."""

    name: str
    key: str
    folder: Path | None
    variant: Variant
    revision: str | None = None

    @property
    def known_as(self) -> str:
        """The name without a revision, as a checkpoint records it."""
        return ":".join([self.name, *filter(None, self.variant)])


def named_model(name: str, cache_folder: Callable[[], Path]) -> Path:
    """Return the checkpoint that a name stands for; convert the model if that was never done.

    Processes that name the same model at once convert it once: the others wait. A conversion that
    is killed leaves nothing that a later one would take for complete.

    Args:
        name: Folder of a checkpoint; folder of a dual encoder as transformers saves it, or in one
            of the `LAYOUTS` of graphs; or name of any of them on the hub, such as
            ``openai/clip-vit-base-patch32``, with ``@REVISION`` for another revision than that of
            `PINS` or else the newest. Behind a colon follows the variant of graphs that come in
            several, such as ``:quantized``, and the language of queries, such as ``:deu_Latn``, for
            networks that are told.
        cache_folder: Returns the folder of converted models, which is created if it does not
            exist; called only if `name` is no checkpoint.

    Returns:
        Folder of a checkpoint; `name` itself if it is one.

    Raises:
        CheckpointError: If there is no such model, the hub cannot be reached, the model is no dual
            encoder, or the cache cannot be written.
        ConfigError: If the model has no graphs, and the packages that compute it are missing.
    """
    source = _source_of(name)
    if isinstance(source, Path):
        return source
    cache = cache_folder()
    out = cache / source.key
    if not (out / _CONFIG).exists():
        with _only_converter(cache, source):
            if not (out / _CONFIG).exists():
                _convert(source, out)
    return out


def _source_of(name: str) -> Path | _Source:
    """Return what a name stands for: a folder that is taken as it is, or what to convert."""
    whole = Path(name).expanduser()
    base, *words = [name] if whole.is_dir() else name.split(":")
    folder, variant = Path(base).expanduser(), Variant.of(words)
    if not folder.is_dir():
        return _on_hub(base, variant)
    check_model_folder(folder)
    files = _files_of(base, folder, variant)
    if not isinstance(files, GraphFiles) and "model_type" not in _read_config(folder):
        return folder  # a checkpoint, or something that its reader describes
    return _local(folder, files, variant)


def _files_of(name: str, folder: Path, variant: Variant) -> GraphFiles | list[str]:
    """Choose the files of a model that are read, from those in a folder."""
    places = [path for form in ("*", "*/*") for path in folder.glob(form)]
    found = [path.relative_to(folder).as_posix() for path in places if path.is_file()]
    return _choose(name, found, variant)


def _choose(name: str, found: Collection[str], variant: Variant) -> GraphFiles | list[str]:
    """Choose the files of a model that are read: its weights in one form.

    Graphs are taken where a variant is asked for, where there is nothing else, or where nothing
    else could be read here.
    """
    plain = plain_files(found)
    has_weights = any(file.endswith((".safetensors", ".bin")) for file in plain)
    if not variant and has_weights and all(map(is_installed, _FRAMEWORK)):
        return plain
    try:
        graphs = graph_files(found, variant)
    except CheckpointError as error:
        raise CheckpointError(f"{name}: {error}") from error
    if graphs is None and variant:
        asked = ":".join(filter(None, variant))
        raise CheckpointError(f"{name}: it has no graphs, so there is no {asked!r} of it")
    return graphs or plain


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        data: object = read_json(folder / _CONFIG)
    except (OSError, ValueError):
        return {}
    return cast(dict[str, Any], data) if isinstance(data, dict) else {}


def _need_framework(name: str) -> None:
    """Refuse a model that only transformers computes where that is not installed."""
    if not all(map(is_installed, _FRAMEWORK)):
        raise ConfigError(
            missing_package(f"{name} has no graphs, and", _FRAMEWORK[0])
            + f"; or name a model that has graphs, such as {DEFAULT_MODEL}"
        )


def _local(folder: Path, files: GraphFiles | list[str], variant: Variant) -> _Source:
    """Identify a folder by the content of the files that the conversion reads."""
    digest = hashlib.sha256(b"%d %s" % (_VERSION, ":".join(filter(None, variant)).encode()))
    try:
        for name in sorted(files.names if isinstance(files, GraphFiles) else files):
            content = f"{name} {sha256_of(folder / name)}\n"
            digest.update(content.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise CheckpointError(f"{error.filename}: cannot be read ({error.strerror})") from error
    plain = re.sub(r"[^\w.-]+", "-", folder.resolve().name) or "model"
    return _Source(str(folder.resolve()), f"{plain}-{digest.hexdigest()[:16]}", folder, variant)


def _on_hub(name: str, variant: Variant) -> _Source:
    match, missing = _HUB_NAME.fullmatch(name), missing_folder(name)
    if match is None or missing is not None:
        raise CheckpointError(
            f"{name}: {missing or 'no such folder'}; expected a checkpoint, a folder of a model of"
            f" the transformers library, or its name on the hub, such as {DEFAULT_MODEL}"
        )
    pin = PINS.get(match["name"])
    revision = match["revision"] or (None if pin is None else pin.revision)
    known_as = ":".join([f"{match['name']}@{revision or 'main'}", *filter(None, variant)])
    digest = hashlib.sha256(f"{_VERSION} {known_as}".encode()).hexdigest()
    plain = "--".join([match["name"].replace("/", "--"), *filter(None, variant)])
    return _Source(match["name"], f"{plain}-{digest[:16]}", None, variant, revision)


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
    folder = source.folder or _downloaded(source)
    files = _files_of(source.name, folder, source.variant)
    # A checkpoint is complete or not there: its writers rename a finished folder.
    if isinstance(files, GraphFiles):
        _LOG.info("linking the graphs of %s to %s", source.known_as, out)
        from aladin_network.conversion.graph_models import link_graph_model

        link_graph_model(folder, files, out, source.known_as)
    elif "schema_version" in _read_config(folder):  # a checkpoint
        with atomic_folder(out) as partial:
            for name in (*_CHECKPOINT, *_FITTED):
                if (folder / name).exists():
                    link_or_copy(folder / name, partial / name)
    else:
        _need_framework(source.name)
        _LOG.info("converting %s, once, to %s", source.name, out)
        convert_apart(folder, out, None if source.folder is not None else source.name)


def _downloaded(source: _Source) -> Path:
    """Return the model's files in the hub's own cache, downloaded if they must be."""

    def choose(found: Collection[str]) -> Collection[str]:
        files = _choose(source.name, found, source.variant)
        if isinstance(files, GraphFiles):
            return files.names
        _need_framework(source.name)  # before anything is downloaded
        return files

    folder = downloaded(source.name, source.revision, choose, source.variant.graph)
    check_pin(source.name, source.revision, folder)
    return folder
