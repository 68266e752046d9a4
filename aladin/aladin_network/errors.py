"""Every error this project raises on purpose.

    AladinError
      ConfigError             unknown key, impossible combination
      InputError              the caller's data
        ImageError            a picture that cannot be used
          ImageTooLargeError  more pixels or bytes than the limit
        RegionError           regions of a photo that cannot be used
          RegionsTooLargeError  more bytes than the limit
        TextTooLongError
        ShapeError            a tensor of the wrong shape
        DataError             a line of a data file
        StaleNegativesError   negatives mined from other data, by another model or otherwise
      CheckpointError         missing file, wrong schema version
      SearchIndexError
        IndexNotReadyError    no live generation
        IndexMismatchError    built with another model or schema
        IndexCorruptError     a file is not what the manifest says
        GenerationRefusedError  the live generation is unsound, an earlier one answers
        IndexWriteError       a build cannot write, e.g. to a full disk
          UnwritableFolderError  nothing can be written into the index's folder
        NoSuchTargetError     the index has no images, or no texts
        UnknownItemError      no item with this id
        DuplicateItemError    an item with this id is there already
        EngineError           the engine that keeps the index refuses
          EngineUnavailableError  it does not answer, or not in time
      OverloadedError         queue full
      ShuttingDownError       the service ends and takes nothing more
      WorkerDiedError         whoever ran the request ended before it was done
      NoWorkerError           nobody is there to run requests
      ClusterError            the nodes that encode a corpus cannot be had, or fail
      NonFiniteLossError      training diverged
      ProcessLostError        another process of a training job ended
      ToldElsewhereError      another process of a training job says what went wrong

Errors are raised in the domain and rendered at the front doors: into exit codes by
``service/aladin_service/failures.py`` and into HTTP by one table in
``service/aladin_service/http/error_responses.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class AladinError(Exception):
    """Base of every error that this project raises on purpose; may travel between processes."""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle what the error is, not the arguments that it was made of."""
        return _rebuild, (type(self), self.args), self.__dict__


class ConfigError(AladinError):
    """A configuration has an unknown key or an impossible combination of values."""


class InputError(AladinError):
    """The caller's data cannot be used; the message says what was expected and what came."""


class ImageError(InputError):
    """A picture that cannot be decoded or used."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"{source}: {reason}")
        self.source = source
        self.reason = reason


class ImageTooLargeError(ImageError):
    """A picture with more bytes or pixels than the limit; found before it is decoded."""


class RegionError(InputError):
    """Regions of a photo that cannot be used."""


class RegionsTooLargeError(RegionError):
    """A file of regions with more bytes than the limit; found before it is unpacked."""


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
        self.expected = expected
        self.actual = actual


class DataError(InputError):
    """A line of a data file that cannot be used."""

    def __init__(self, file: Path | str, line: int | None, reason: str) -> None:
        where = str(file) if line is None else f"{file}:{line}"
        super().__init__(f"{where}: {reason}")
        self.file = Path(file)
        self.line = line
        self.reason = reason


class StaleNegativesError(InputError):
    """Mined negatives that belong to other data, another model or other settings."""

    def __init__(self, file: Path | str, differences: Sequence[tuple[str, object, object]]) -> None:
        """Name every difference.

        Args:
            file: of the negatives.
            differences: what it is that differs, what was expected, what was found.
        """
        listed = "; ".join(
            f"{what}: expected {expected}, found {found}" for what, expected, found in differences
        )
        super().__init__(f"{file}: these negatives were mined from something else: {listed}")
        self.file = Path(file)
        self.differences = tuple(differences)


class CheckpointError(AladinError):
    """A checkpoint is incomplete, cut short or of another schema version."""


class SearchIndexError(AladinError):
    """Base of the errors about an index on disk."""


class IndexNotReadyError(SearchIndexError):
    """There is no live generation to search."""


class IndexMismatchError(SearchIndexError):
    """The index was built with another model, schema version or dimension."""

    def __init__(self, what: str, expected: object, actual: object) -> None:
        super().__init__(f"{what}: expected {expected}, got {actual}")
        self.expected = expected
        self.actual = actual


class IndexCorruptError(SearchIndexError):
    """A file of the index is not what its manifest says."""

    def __init__(self, file: Path | str, reason: str) -> None:
        super().__init__(f"{file}: {reason}")
        self.file = Path(file)
        self.reason = reason


class GenerationRefusedError(SearchIndexError):
    """The live generation is unsound: an earlier one answers, and nothing can be changed."""

    def __init__(self) -> None:
        super().__init__(
            "the newest generation of the index is unsound and was refused: nothing can be added "
            "or deleted until a sound one is published"
        )


class IndexWriteError(SearchIndexError):
    """A build cannot write to the disk; the live generation is as it was."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = Path(path)
        self.reason = reason


class UnwritableFolderError(IndexWriteError):
    """The folder of an index cannot be made, or nothing can be written into it."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(path, reason)
        self.args = (f"cannot write to {path}: {reason}",)


class NoSuchTargetError(SearchIndexError):
    """The index was built without the side that is to be searched."""

    def __init__(self, target: str, present: str) -> None:
        super().__init__(f"this index has no {target}, only {present}")
        self.target = target


class UnknownItemError(SearchIndexError):
    """No item of the index has this id."""

    def __init__(self, target: str, item_id: str) -> None:
        super().__init__(f"no item {item_id!r} among the {target} of this index")
        self.target = target
        self.item_id = item_id


class DuplicateItemError(SearchIndexError):
    """An item that is to be added has the id of one that is there."""

    def __init__(self, target: str, item_id: str) -> None:
        super().__init__(
            f"{target}: id {item_id!r} is in the index already; replace it or skip it on duplicates"
        )
        self.target = target
        self.item_id = item_id


class EngineError(SearchIndexError):
    """The engine that keeps the index refuses what it was asked."""

    def __init__(self, engine: str, reason: str) -> None:
        super().__init__(f"{engine}: {reason}")
        self.engine = engine
        self.reason = reason


class EngineUnavailableError(EngineError):
    """The engine that keeps the index does not answer, or not in time; it may later.

    Attributes:
        retry_after_s: by then the engine has been looked at again.
    """

    retry_after_s = 1.0


class OverloadedError(AladinError):
    """The queue is full; try again after ``retry_after_s`` seconds."""

    def __init__(self, retry_after_s: float) -> None:
        super().__init__(f"too many queries are waiting, try again in {retry_after_s:g} s")
        self.retry_after_s = retry_after_s


class WorkerDiedError(AladinError):
    """The worker that ran a query or a job ended before it was done.

    Attributes:
        retry_after_s: by then another worker is up.
    """

    def __init__(self) -> None:
        super().__init__("the worker that ran this request ended; try again")
        self.retry_after_s = 1.0


class NoWorkerError(AladinError):
    """No worker takes requests: all have ended, and none could be started for some seconds.

    Attributes:
        retry_after_s: another worker may be up by then.
    """

    def __init__(self) -> None:
        super().__init__("no worker takes requests now; try again")
        self.retry_after_s = 5.0


class ShuttingDownError(AladinError):
    """The service finishes what it took, and takes nothing more."""

    def __init__(self) -> None:
        super().__init__("the service is shutting down")


class ClusterError(AladinError):
    """The nodes that are to encode a corpus cannot be had, or fail at it again and again."""


class NonFiniteLossError(AladinError):
    """The loss of a training step is NaN or infinite."""

    def __init__(self, stage: str, step: int, value: float) -> None:
        super().__init__(f"stage {stage!r}, step {step}: the loss is {value}, not a finite number")
        self.stage = stage
        self.step = step


class ProcessLostError(AladinError):
    """Another process of a training job has ended, and this one cannot go on alone."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"lost another process of this training job ({reason})")
        self.reason = reason


class ToldElsewhereError(AladinError):
    """This process ends because of an error that another one of its job reports."""

    def __init__(self) -> None:
        super().__init__("another process of this training job has failed")


def _rebuild(kind: type[AladinError], args: tuple[object, ...]) -> AladinError:
    """Make an error again; its own ``__init__`` would take other arguments."""
    error = kind.__new__(kind)
    error.args = args
    return error
