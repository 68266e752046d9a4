"""Messages between the service and a worker process."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from aladin_network.errors import DuplicateItemError, ImageError
from aladin_service.work.messages import Done, Unwanted, Wire, pack, read_message


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


async def read_all(connected: socket.socket) -> list[object]:
    """Read on the service's side until the other end is gone."""
    reader, writer = await asyncio.open_unix_connection(sock=connected)
    messages: list[object] = []
    try:
        while True:
            messages.append(await read_message(reader))
    except EOFError:
        return messages
    finally:
        writer.close()


def test_messages_of_all_sizes_arrive_in_their_order(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = sockets
    sent = [Unwanted(1, 2), Done(3, result=b"x" * 3_000_000), Done(4), Unwanted(5, 6)]

    def send() -> None:
        wire = Wire(theirs)
        for message in sent:
            wire.send(message)
        theirs.close()

    thread = threading.Thread(target=send)
    thread.start()
    assert asyncio.run(read_all(ours)) == sent
    thread.join()


def test_many_threads_send_at_once(sockets: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = sockets
    wire = Wire(theirs)

    def send(sender: int) -> None:
        for number in range(50):
            wire.send(Done(sender, result=bytes(number * 100)))

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
    for thread in threads:
        thread.start()

    def close() -> None:
        for thread in threads:
            thread.join()
        theirs.close()

    closing = threading.Thread(target=close)
    closing.start()
    messages = asyncio.run(read_all(ours))
    closing.join()
    for sender in range(4):
        lengths = [len(each.result) for each in messages if each.number == sender]  # type: ignore[attr-defined]
        assert lengths == [100 * number for number in range(50)]


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
