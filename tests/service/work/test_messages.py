"""Messages between the service and a worker process."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from aladin_network.errors import DuplicateItemError, ImageError
from aladin_service.work.messages import Done, Unwanted, Wire, pack, read_message


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


async def read_all(connected: socket.socket) -> list[Any]:
    reader, writer = await asyncio.open_unix_connection(sock=connected)
    messages: list[Any] = []
    try:
        while True:
            messages.append(await read_message(reader))
    except EOFError:
        return messages
    finally:
        writer.close()


def test_messages_of_all_sizes_and_threads_arrive_whole_and_in_their_order(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = sockets
    wire = Wire(theirs)
    sizes = [3_000_000, *(100 * number for number in range(50))]

    def send(sender: int) -> None:
        for size in sizes:
            wire.send(Done(sender, result=bytes(size)))

    def send_all() -> None:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(send, range(4)))
        wire.send(Unwanted(5, 6))
        theirs.close()

    sending = threading.Thread(target=send_all)
    sending.start()
    *messages, last = asyncio.run(read_all(ours))
    sending.join()
    assert last == Unwanted(5, 6)
    for sender in range(4):
        assert [len(each.result) for each in messages if each.number == sender] == sizes


def test_a_worker_reads_what_the_service_sends(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = sockets
    ours.sendall(pack(Unwanted(1, 2)) + pack(Unwanted(3, 4))[:7])
    wire = Wire(theirs)
    assert wire.receive() == Unwanted(1, 2)
    ours.close()
    with pytest.raises(EOFError):  # a message that was cut short is none
        wire.receive()


@pytest.mark.parametrize(
    "error", [DuplicateItemError("texts", "a"), ImageError("photo", "cut short")]
)
def test_errors_arrive_as_they_are(
    sockets: tuple[socket.socket, socket.socket], error: Exception
) -> None:
    ours, theirs = sockets
    ours.sendall(pack(Done(1, [error])))
    (answer,) = Wire(theirs).receive().result
    assert type(answer) is type(error)
    assert (str(answer), vars(answer)) == (str(error), vars(error))
