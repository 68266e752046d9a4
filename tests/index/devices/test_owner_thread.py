"""The thread that alone uses a card: order, errors, and nobody left waiting."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from aladin_index.devices.faiss_card import OwnerFailedError, OwnerThread


def test_one_thread_runs_everything_one_after_the_other() -> None:
    owner = OwnerThread("owner")
    threads: set[str] = set()
    inside = 0
    most = 0

    def task(number: int) -> int:
        nonlocal inside, most
        threads.add(threading.current_thread().name)
        inside += 1
        most = max(most, inside)
        inside -= 1
        return number * number

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: owner.run(lambda: task(n)), range(200)))
    owner.close()
    assert results == [n * n for n in range(200)]
    assert threads == {"owner"}
    assert most == 1


def test_an_error_fails_every_waiter_and_all_who_come_later() -> None:
    owner = OwnerThread("owner")
    begun, go_on = threading.Event(), threading.Event()

    def fail() -> None:
        begun.set()
        go_on.wait(10)
        raise ValueError("the card is gone")

    first = owner.post(fail)
    begun.wait(10)
    waiting = [owner.post(lambda: 1) for _ in range(5)]
    assert owner.post(lambda: 1).done() is False
    go_on.set()
    for future in (first, *waiting):
        with pytest.raises(OwnerFailedError, match="the card is gone") as caught:
            future.result(10)
        assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(OwnerFailedError, match="the card is gone"):
        owner.run(lambda: 1)
    owner.close()


def test_closing_ends_the_thread_and_fails_who_waits() -> None:
    owner = OwnerThread("to be closed")
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        go_on.wait(10)
        return "done"

    running = owner.post(slow)
    begun.wait(10)
    waiting = owner.post(lambda: "never")
    closing = threading.Thread(target=owner.close)
    closing.start()
    with pytest.raises(OwnerFailedError, match="closed"):
        waiting.result(10)
    go_on.set()
    closing.join(10)
    assert running.result(10) == "done"
    assert "to be closed" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(OwnerFailedError, match="closed"):
        owner.run(lambda: 1)
