"""Opens a photo library: a second process keeps its index in step, and this one serves it."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from aladin_index.format.layout import CURRENT
from aladin_network.errors import AladinError
from aladin_service.library.keeper import KeepPlan, OnPass, ShowProgress, keep
from aladin_service.library.libraries import Library
from aladin_service.observe.logs import LogSetup, log_setup, log_to_stderr

_LOG = logging.getLogger(__name__)

# Interval at which the first generation is looked for.
_TICK_S = 0.05
_NICENESS = 5  # of the second process: queries come first


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

    An existing index is served at once; a new one as soon as it has its first photos.

    Args:
        library: The library; its folder is created if it does not exist.
        plan: What is kept in step, for the same index.
        host: Address to listen on.
        port: Port; 0 for any free one; or None for 8000 or the next free one.
        show_progress: Opens the display of the progress; sent to the second process.
        on_pass: Called after each pass over the folders; sent to the second process.
        on_address: Called with the address of the page as soon as connections are accepted.

    Raises:
        LibraryInUseError: If another process serves the library.
        InputError: If there is no index yet, and no photo that can be used.
        ConfigError: If the address cannot be listened on, or the library cannot be written.
        SearchIndexError: If the index is damaged.
        CheckpointError: If its model cannot be loaded.
    """
    with library.claimed() as claim, ExitStack() as process:
        library.save()  # not before: a refused start changes nothing
        keeper = process.enter_context(_keeper(plan, show_progress, on_pass))
        # Imported now: it takes seconds, in which the other process begins.
        from aladin_service.http.server import check_address, serve_index

        if plan.checkpoint is not None:
            check_address(host, port)  # before the first photos are encoded
        keeper.wait_for_index(plan.index)
        threading.Thread(target=keeper.log_failure, name="keeper", daemon=True).start()

        def announce(address: str) -> None:
            claim.announce(address)
            on_address(address)

        serve_index(plan.index, host, port, exif=plan.exif, on_listening=announce)


class _Keeper:
    """The process that keeps the index in step.

    Attributes:
        is_ending: Whether it is being ended, so that its exit status says nothing.
    """

    def __init__(self, process: BaseProcess, failures: Connection) -> None:
        self.is_ending = False
        self._process = process
        self._failures = failures

    def wait_for_index(self, index: Path) -> None:
        """Wait for the first generation.

        Raises:
            AladinError: If the process has failed before.
        """
        while not (index / CURRENT).exists():
            if not self._process.is_alive():
                raise self._failure()
            time.sleep(_TICK_S)

    def log_failure(self) -> None:
        """Wait for the end of the process, and log why it failed; returns if it did not."""
        wait([self._process.sentinel])  # the block that ends the process joins it
        if self.is_ending:
            return
        self._process.join()
        if self._process.exitcode not in (0, -signal.SIGTERM):
            _LOG.error("the index does not follow its folders any more: %s", self._failure())

    def _failure(self) -> Exception:
        try:
            return self._failures.recv()
        except EOFError:  # it was killed
            code = self._process.exitcode
            return AladinError(f"the process that keeps the index ended with exit status {code}")


@contextmanager
def _keeper(plan: KeepPlan, show_progress: ShowProgress, on_pass: OnPass) -> Generator[_Keeper]:
    """Keep the index in step, in a process that is ended with the block: a kill loses nothing."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    arguments = (plan, show_progress, on_pass, theirs, log_setup())
    process = context.Process(target=_keep, args=arguments, name="keeper", daemon=True)
    process.start()
    theirs.close()
    keeper = _Keeper(process, ours)
    try:
        yield keeper
    finally:
        keeper.is_ending = True
        process.terminate()
        process.join()
        ours.close()


def _keep(
    plan: KeepPlan,
    show_progress: ShowProgress,
    on_pass: OnPass,
    failures: Connection,
    logs: LogSetup,
) -> None:
    """Run the second process, and send the error with which it ends."""
    from aladin_service.work.process_setup import end_with_parent, silence_decoders

    end_with_parent()
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
