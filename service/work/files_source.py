"""The generations of an index of files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from aladin.checkpoint import Checkpoint
from aladin.errors import AladinError
from index.changes.writer import ChangesWriter
from index.devices.search_device import SearchDevice
from index.layout import CURRENT, live_generation
from index.probe import probe_index
from index.reader import SearchIndex, open_index


class FilesSource:
    """An `IndexSource`: what CURRENT names, looked up by each request, for that costs next to none.

    So whatever was published is there for all requests that come after.
    """

    looks_itself = False

    def __init__(self, path: Path, device: SearchDevice | None, *, warm: bool) -> None:
        """Open nothing yet.

        Args:
            path: of the index; it may be empty or missing.
            device: where the network and the searches go; None: the processor.
            warm: have each generation's files read into memory when it is opened.
        """
        self.path = path
        self._device = device
        self._warm = warm

    def start(self, on_look: Callable[[], None]) -> None:
        """Do nothing: others look."""

    def published(self) -> tuple[int, int, int] | None:
        """Return what tells one state of CURRENT from another: it is replaced, never written to.

        Nor is it the same where the whole folder was replaced by a copy, whose file may have the
        number and the time of modification of the one that was removed.
        """
        try:
            state = (self.path / CURRENT).stat()
        except OSError:
            return None
        return state.st_dev, state.st_ino, state.st_ctime_ns

    def live_number(self) -> int | None:
        """Read the number of the live generation."""
        try:
            return live_generation(self.path)
        except AladinError:
            return None

    def away(self) -> None:
        """Return None: files are always here."""

    def open(
        self, checkpoint: Checkpoint | None = None, generation: int | None = None
    ) -> SearchIndex:
        """Open a generation; see `IndexSource.open`."""
        index = open_index(
            self.path, checkpoint=checkpoint, device=self._device, generation=generation
        )
        try:
            probe_index(index)
        except BaseException:
            index.close()
            raise
        if self._warm:
            index.warm()
        return index

    def writer(self, model_id: str) -> ChangesWriter:
        """Return what changes the index."""
        return ChangesWriter(self.path, model_id)

    def close(self) -> None:
        """Do nothing: what was opened is others' to close."""
