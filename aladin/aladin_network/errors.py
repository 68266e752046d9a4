"""All errors that this project raises.

Errors are raised in the domain and rendered by the interfaces: into exit codes by
``service/aladin_service/failures.py`` and into HTTP by one table in
``service/aladin_service/http/error_responses.py``.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

# Characters of a value that a message repeats, and of a reason with several of them.
_MOST_SHOWN, _MOST_REASON = 80, 400

_LITERALS = reprlib.Repr()
_LITERALS.maxstring = _LITERALS.maxother = _LITERALS.maxlong = _MOST_SHOWN


def brief(value: object) -> str:
    """Return an untrusted value as a Python literal for a message; a long one lacks its middle."""
    return shortened(_LITERALS.repr(value), 2 * _MOST_SHOWN)


def shortened(text: str, most: int = _MOST_REASON) -> str:
    """Return a text of at most so many characters; a longer one lacks its middle."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end - 1]}…{text[-end:]}"


class AladinError(Exception):
    """Base class of all errors of this project; can be pickled between processes."""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the error's state rather than its constructor's arguments."""
        return _rebuild, (type(self), self.args), self.__dict__


class ConfigError(AladinError):
    """A configuration has an unknown key or an impossible combination of values."""


class InputError(AladinError):
    """Invalid input data; the message gives the expected and the actual value."""


class ImageError(InputError):
    """An unusable picture, for example one that cannot be decoded."""

    def __init__(self, source: str, reason: str) -> None:
        reason = shortened(reason)
        super().__init__(f"{source}: {reason}")
        self.source = source
        self.reason = reason


class ImageTooLargeError(ImageError):
    """A picture with more bytes or pixels than the limit; detected before decoding."""


class RegionError(InputError):
    """Unusable regions of a photo."""


class RegionsTooLargeError(RegionError):
    """A file of regions with more bytes than the limit; detected before unpacking."""


class TextTooLongError(InputError):
    """A text longer than the limit."""

    def __init__(self, length: int, limit: int, unit: str = "tokens") -> None:
        super().__init__(f"the text has {length} {unit}, at most {limit} are allowed")
        self.length = length
        self.limit = limit


class ShapeError(InputError):
    """A tensor whose shape is not the expected one."""

    def __init__(self, expected: str, actual: object) -> None:
        super().__init__(f"expected shape {expected}, got {actual}")


class DataError(InputError):
    """A line of a data file that cannot be used."""

    def __init__(self, file: Path | str, line: int | None, reason: str) -> None:
        where, reason = str(file) if line is None else f"{file}:{line}", shortened(reason)
        super().__init__(f"{where}: {reason}")
        self.file = Path(file)
        self.line = line
        self.reason = reason


class StaleNegativesError(InputError):
    """Mined negatives that belong to other data, another model or other settings."""

    def __init__(self, file: Path | str, differences: Sequence[tuple[str, object, object]]) -> None:
        """List all differences in the message."""
        listed = "; ".join(
            f"{what}: expected {expected}, found {found}" for what, expected, found in differences
        )
        super().__init__(
            f"{file}: these negatives were mined with other inputs or settings: {listed}"
        )
        self.file = Path(file)
        self.differences = tuple(differences)


class CheckpointError(AladinError):
    """A checkpoint is incomplete, truncated or of another schema version."""


class SearchIndexError(AladinError):
    """Base of the errors about an index on disk."""


class IndexNotReadyError(SearchIndexError):
    """There is no live generation to search."""


class IndexMismatchError(SearchIndexError):
    """The index was built with another model, schema version or dimension."""

    def __init__(self, what: str, expected: object, actual: object) -> None:
        super().__init__(f"{what}: expected {expected}, got {actual}")


class IndexCorruptError(SearchIndexError):
    """A file of the index differs from its description in the manifest."""

    def __init__(self, file: Path | str, reason: str) -> None:
        super().__init__(f"{file}: {reason}")
        self.file = Path(file)
        self.reason = reason


class GenerationRefusedError(SearchIndexError):
    """The live generation is invalid: an earlier one is served, and changes are refused."""

    def __init__(self) -> None:
        super().__init__(
            "the newest generation of the index is invalid and was refused: nothing can be added "
            "or deleted until a valid one is published"
        )


class IndexWriteError(SearchIndexError):
    """A build cannot write to the disk; the live generation is unchanged."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = Path(path)
        self.reason = reason


class UnwritableFolderError(IndexWriteError):
    """The folder of an index cannot be created or is not writable."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(path, reason)
        self.args = (f"cannot write to {path}: {reason}",)


class NoSuchTargetError(SearchIndexError):
    """The index contains no items of the requested kind."""

    def __init__(self, target: str, present: str) -> None:
        super().__init__(f"this index has no {target}, only {present}")
        self.target = target


class UnknownItemError(SearchIndexError):
    """No item of the index has this id."""

    def __init__(self, target: str, item_id: str) -> None:
        super().__init__(f"no item {brief(item_id)} among the {target} of this index")
        self.target = target
        self.item_id = item_id


class DuplicateItemError(SearchIndexError):
    """An item to be added has the id of an existing item."""

    def __init__(self, target: str, item_id: str) -> None:
        super().__init__(
            f"{target}: id {brief(item_id)} is in the index already; replace it or skip it on "
            "duplicates"
        )
        self.target = target
        self.item_id = item_id


class EngineError(SearchIndexError):
    """The vector database that holds the index refuses a request."""

    def __init__(self, engine: str, reason: str) -> None:
        super().__init__(f"{engine}: {reason}")
        self.engine = engine
        self.reason = reason


class EngineUnavailableError(EngineError):
    """The vector database of the index does not respond, or not in time; try again later."""

    retry_after_s = 1.0


class OverloadedError(AladinError):
    """The queue is full."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"too many queries are waiting, try again in {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


class WorkerDiedError(AladinError):
    """The worker of a query or a job ended before it was done."""

    retry_after_s = 1.0

    def __init__(self) -> None:
        super().__init__("the worker that ran this request ended; try again")


class NoWorkerError(AladinError):
    """No worker is available: all have ended, and none could be started for several seconds."""

    retry_after_s = 5.0

    def __init__(self) -> None:
        super().__init__("no worker is available; try again")


class ShuttingDownError(AladinError):
    """The service is shutting down: it completes accepted requests and rejects new ones."""

    def __init__(self) -> None:
        super().__init__("the service is shutting down")


class DecodingProcessError(AladinError):
    """A process that decodes photos for a card has ended before it was done."""

    def __init__(self) -> None:
        super().__init__(
            "a process that decodes photos ended, maybe for lack of memory: run `aladin index "
            "build` again with --resume and fewer --readers; a script of your own needs "
            "`if __name__ == '__main__':` around what it does"
        )


class ClusterError(AladinError):
    """The nodes that encode a corpus are unavailable, or fail repeatedly."""


class NonFiniteLossError(AladinError):
    """The loss of a training step is NaN or infinite."""

    def __init__(self, stage: str, step: int, value: float) -> None:
        super().__init__(f"stage {stage!r}, step {step}: the loss is {value}, not a finite number")


class ProcessLostError(AladinError):
    """Another process of a training job has ended, and this one cannot continue alone."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"lost another process of this training job ({reason})")
        self.reason = reason


class ReportedElsewhereError(AladinError):
    """This process ends because of an error that another process of its job reports."""

    def __init__(self) -> None:
        super().__init__("another process of this training job has failed")


_DISTRIBUTION = "aladin-search"
# The extra of pyproject.toml that brings a package which only some installations have.
EXTRA_OF = {
    "torch": "train",
    "transformers": "train",
    "peft": "train",
    "tensorboard": "train",
    "matplotlib": "train",
    "sklearn": "train",
    "onnx": "train",
    "onnxscript": "train",
    "pyarrow": "parquet",
    "rawpy": "raw",
    "pymilvus": "milvus",
    "ray": "ray",
    "mcp": "mcp",
    "opentelemetry": "otel",
}

# Where there is no GPU to use, PyTorch's own packages are several times smaller than those of PyPI.
_CPU_BUILDS = "--extra-index-url https://download.pytorch.org/whl/cpu"


def missing_package(user: str, package: str) -> str:
    """Describe a package that `user` needs and that is not here, with the line that installs it."""
    return f"{user} needs the package {package}: {install_line(EXTRA_OF.get(package))}"


def install_line(extra: str | None) -> str:
    """Return the line to paste that adds an extra, or what the package itself needs."""
    added = f"'{_DISTRIBUTION}[{extra}]'" if extra else _DISTRIBUTION
    line = f"{sys.executable} -m pip install {added}"
    return f"{line} (without a GPU, add {_CPU_BUILDS})" if extra == "train" else line


def need_packages(user: str, *packages: str) -> None:
    """Refuse work for which a package is missing, before it begins; nothing is imported.

    Raises:
        ConfigError: If one of the packages is not installed.
    """
    for package in packages:
        if not is_installed(package):
            raise ConfigError(missing_package(user, package))


def is_installed(package: str) -> bool:
    """Tell whether a package can be imported, without importing it."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of who looks for modules elsewhere
        return False


def _rebuild(kind: type[AladinError], args: tuple[object, ...]) -> AladinError:
    """Restore a pickled error without calling ``__init__``, whose parameters differ."""
    error = kind.__new__(kind)
    error.args = args
    return error
