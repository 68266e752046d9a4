"""Opens a photo library: a second process keeps its index in step, and this one serves it."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from aladin_index.format.layout import CURRENT
from aladin_index.format.skipped import record_stop
from aladin_network.errors import AladinError
from aladin_network.files import removed_if_refused
from aladin_service.library.keeper import KeepPlan, OnPass, ShowProgress, keep
from aladin_service.library.libraries import Library
from aladin_service.observe.logs import LogSetup, log_setup, log_to_stderr
from aladin_training.parallel.parent import end_with_parent

_LOG = logging.getLogger(__name__)

# Interval at which the first generation is looked for.
_TICK_S = 0.05
_NICENESS = 5  # of the second process: queries come first
# A second process that ends is started again after these pauses; then it is given up, unless the
# last one ran for long.
_PAUSES_S = (1.0, 4.0, 16.0, 60.0)
_LONG_S = 600.0


def open_library(
    library: Library,
    plan: KeepPlan,
    *,
    host: str,
    port: int | None,
    show_progress: ShowProgress,
    on_pass: OnPass,
    on_address: Callable[[str], None],
) -> None:
    """Serve a library until SIGINT or SIGTERM, and keep its index in the state of its folders.

    An existing index is served at once; a new one as soon as it has its first photos. Requests need
    the key of the library, which the address of the page contains, or one of the settings' keys.
    """
    with (
        removed_if_refused(library.place, library.index) as opened,
        library.claimed() as claim,
        _keeper(plan, show_progress, on_pass) as keeper,
    ):
        # Imported now: it takes seconds, in which the other process begins.
        from aladin_service.http.server import check_address, serve_index
        from aladin_service.settings import read_settings, settings_with
        from aladin_service.work.worker import WorkerPlan

        token, keys = "", read_settings().keys_file
        if keys is None:
            keys, secret = library.keys()
            token = f"/?token={secret}"
        check_address(host, port, keys)  # before the first photos are encoded
        keeper.wait_for_index(plan.index)
        threading.Thread(target=keeper.supervise, name="keeper", daemon=True).start()

        def announce(page: str) -> None:
            address = f"{page}{token}"
            library.save()  # not before: a refused start changes nothing
            opened.set()
            claim.announce(address)
            on_address(address)

        workers = WorkerPlan(
            index=plan.index,
            settings=settings_with(keys_file=keys, exif=plan.exif),
            photo_folders=tuple(library.folders),
        )
        serve_index(workers, host, port, on_listening=announce)


class _Keeper:
    """The process that keeps the index in step."""

    def __init__(
        self,
        start: Callable[[], tuple[BaseProcess, Connection]],
        on_give_up: Callable[[str], None],
    ) -> None:
        """Start it."""
        self._start = start
        self._on_give_up = on_give_up
        self._process, self._failures = start()
        self._is_ending = threading.Event()
        self._exchange = threading.Lock()

    def wait_for_index(self, index: Path) -> None:
        """Wait for the first generation."""
        while not (index / CURRENT).exists():
            if not self._process.is_alive():
                raise self._failure()
            time.sleep(_TICK_S)

    def supervise(self) -> None:
        """Start the process again when it fails; returns when it is given up, or is not needed."""
        pauses_s = iter(_PAUSES_S)
        while True:
            started_s = time.monotonic()
            wait([self._process.sentinel])  # the block that ends the process joins it
            if self._is_ending.is_set():
                return
            self._process.join()
            if self._process.exitcode == 0:
                return
            failure = self._failure()
            if time.monotonic() - started_s > _LONG_S:
                pauses_s = iter(_PAUSES_S)
            pause_s = next(pauses_s, None)
            if pause_s is None:
                _LOG.error("the index does not follow its folders any more: %s", failure)
                self._on_give_up(str(failure))
                return
            # A signal to all processes ends this one, too, and soon.
            if self._is_ending.wait(pause_s):
                return
            _LOG.warning("%s; it is started again", failure)
            with self._exchange:
                if self._is_ending.is_set():
                    return
                self._failures.close()
                self._process, self._failures = self._start()

    def end(self) -> None:
        """End the process; a kill loses nothing."""
        with self._exchange:
            self._is_ending.set()
        self._process.terminate()
        self._process.join()
        self._failures.close()

    def _failure(self) -> Exception:
        self._process.join()  # its exit status is known a moment after its end
        try:
            return self._failures.recv()
        except EOFError:  # it was killed
            code = self._process.exitcode
            return AladinError(f"the process that keeps the index ended with exit status {code}")


@contextmanager
def _keeper(plan: KeepPlan, show_progress: ShowProgress, on_pass: OnPass) -> Generator[_Keeper]:
    """Keep the index in step, in a process that is ended with the block."""

    def start() -> tuple[BaseProcess, Connection]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        arguments = (plan, show_progress, on_pass, theirs, log_setup())
        process = context.Process(target=_keep, args=arguments, name="keeper", daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def give_up(reason: str) -> None:
        with suppress(OSError):  # it was logged, too
            record_stop(plan.index, reason)

    keeper = _Keeper(start, give_up)
    try:
        yield keeper
    finally:
        keeper.end()


def _keep(
    plan: KeepPlan,
    show_progress: ShowProgress,
    on_pass: OnPass,
    failures: Connection,
    logs: LogSetup,
) -> None:
    """Run the second process, and send the error with which it ends."""
    end_with_parent()
    from aladin_service.work.process_setup import silence_decoders

    os.nice(_NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for all; the first process ends this
    log_to_stderr(logs)
    silence_decoders()
    try:
        keep(plan, show_progress, on_pass, threading.Event())
    except AladinError as error:
        failures.send(error)
        raise SystemExit(1) from None
    except Exception as error:
        _LOG.exception("an unexpected error")
        failures.send(AladinError(f"{type(error).__name__}: {error}"))
        raise SystemExit(1) from None
