"""Photos by URL, from a server on this machine that the fetcher takes for one of the internet.

What finds addresses and what connects to them are the fetcher's own parts, here ones that know a
small internet of their own: names with public addresses, all of which lead to the test's server.
"""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpcore
import pytest

from aladin_network.errors import AladinError, ImageTooLargeError
from aladin_service.photos.photo_fetcher import PhotoFetcher
from aladin_service.photos.photo_url import ImageUrlFailedError, ImageUrlRefusedError
from aladin_service.photos.pinned_network import IpAddress
from aladin_service.settings import ServiceSettings

pytestmark = pytest.mark.anyio

PUBLIC = "93.184.215.14"
PHOTO = b"a photo, as far as anybody looked"
Answer = Callable[[str, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop of asynchronous tests."""
    return "asyncio"


class SmallInternet(httpcore.AnyIOBackend):
    """Names with their addresses, and one server that all addresses lead to."""

    def __init__(self, names: dict[str, list[list[str]]], port: int) -> None:
        """Each name has a list of what it resolves to, one time after the other."""
        self.names = names
        self.port = port
        self.looked_up: list[str] = []
        self.connected: list[tuple[str, int]] = []

    async def resolve(self, host: str) -> Sequence[IpAddress]:
        self.looked_up.append(host)
        if host not in self.names:
            raise OSError("Name or service not known")
        answers = self.names[host]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [ip_address(address) for address in found]

    async def connect_tcp(self, host: str, port: int, *args: Any, **options: Any) -> Any:
        self.connected.append((host, port))
        if host == "93.184.215.99":  # nobody is there
            raise httpcore.ConnectError("refused")
        return await super().connect_tcp("127.0.0.1", self.port, *args, **options)


@asynccontextmanager
async def serving(
    answer: Answer,
    names: dict[str, list[list[str]]] | None = None,
    server_tls: ssl.SSLContext | None = None,
    client_tls: ssl.SSLContext | None = None,
    **limits: Any,
) -> AsyncGenerator[tuple[PhotoFetcher, SmallInternet]]:
    """Run a server that writes what it likes to each request, and a fetcher that finds it."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            await answer(head, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=server_tls)
    internet = SmallInternet(
        names or {"photos.test": [[PUBLIC]], "a.cdn.test": [["93.184.215.20"]]},
        server.sockets[0].getsockname()[1],
    )
    settings = ServiceSettings(image_url_hosts=("photos.test", "*.cdn.test"), **limits)
    try:
        yield PhotoFetcher(settings, internet.resolve, internet, client_tls), internet
    finally:
        server.close()


def photo(data: bytes = PHOTO, head: str = "200 OK") -> Answer:
    """A server that sends a photo."""

    async def answer(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {head}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)

    return answer


def redirects(*locations: str) -> Answer:
    """A server that sends on to one place after the other, and has the photo at last."""
    left = list(locations)

    async def answer(head: str, writer: asyncio.StreamWriter) -> None:
        if left:
            writer.write(f"HTTP/1.1 302 Found\r\nLocation: {left.pop(0)}\r\n\r\n".encode())
        else:
            await photo()(head, writer)

    return answer


async def test_a_photo_is_fetched_from_the_address_that_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    heads: list[str] = []

    async def answer(head: str, writer: asyncio.StreamWriter) -> None:
        heads.append(head)
        await photo()(head, writer)

    # The second look-up would lead home: there is none.
    names = {"photos.test": [[PUBLIC], ["127.0.0.1"]]}
    async with serving(answer, names) as (fetcher, internet):
        assert await fetcher.fetch(["http://photos.test/a.jpg?b=c"]) == [PHOTO]
    assert internet.looked_up == ["photos.test"]
    assert internet.connected == [(PUBLIC, 80)]
    assert heads[0].startswith("GET /a.jpg?b=c HTTP/1.1\r\n")
    fields = {line.partition(":")[0].lower() for line in heads[0].splitlines()[1:] if line}
    assert fields == {"host", "user-agent", "accept", "accept-encoding"}
    assert "host: photos.test\r\n" in heads[0].lower()


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["10.1.2.3"], [PUBLIC, "192.168.0.1"], []])
async def test_inside_and_not_there_look_the_same(addresses: list[str]) -> None:
    names = {"photos.test": [addresses], "a.cdn.test": [["93.184.215.99"]]}
    messages: list[str] = []
    async with serving(photo(), names) as (fetcher, internet):
        for host in ("photos.test", "a.cdn.test", "unknown.cdn.test"):
            with pytest.raises(ImageUrlFailedError) as failure:
                await fetcher.fetch([f"http://{host}/a.jpg"])
            messages.append(str(failure.value).replace(host, "HOST"))
    assert set(messages) == {"image_url: no photo could be fetched from HOST"}
    assert internet.connected == [("93.184.215.99", 80)]  # and nowhere inside


async def test_the_next_address_is_tried() -> None:
    names = {"photos.test": [["93.184.215.99", PUBLIC]]}
    async with serving(photo(), names) as (fetcher, _):
        assert await fetcher.fetch(["http://photos.test/"]) == [PHOTO]


async def test_redirects_are_followed_and_checked_one_by_one() -> None:
    places = ("/b.jpg", "http://a.cdn.test/c.jpg", "http://photos.test/d.jpg")
    async with serving(redirects(*places)) as (fetcher, internet):
        assert await fetcher.fetch(["http://photos.test/a.jpg"]) == [PHOTO]
    assert internet.looked_up == ["photos.test", "photos.test", "a.cdn.test", "photos.test"]


@pytest.mark.parametrize(
    "place", ["http://127.0.0.1/", "http://localhost/", "http://evil.test/", "file:///etc/passwd"]
)
async def test_a_redirect_out_of_the_list_is_refused(place: str) -> None:
    async with serving(redirects(place)) as (fetcher, internet):
        with pytest.raises(ImageUrlRefusedError):
            await fetcher.fetch(["http://photos.test/a.jpg"])
    assert len(internet.connected) == 1


async def test_a_name_that_leads_inside_after_a_redirect() -> None:
    names = {"photos.test": [[PUBLIC], ["127.0.0.1"]]}
    async with serving(redirects("/again"), names) as (fetcher, internet):
        with pytest.raises(ImageUrlFailedError):
            await fetcher.fetch(["http://photos.test/a.jpg"])
    assert internet.connected == [(PUBLIC, 80)]


async def test_redirects_without_end() -> None:
    async with serving(redirects(*["/again"] * 50)) as (fetcher, internet):
        with pytest.raises(ImageUrlFailedError, match="more than 3 redirects"):
            await fetcher.fetch(["http://photos.test/a.jpg"])
    assert len(internet.connected) == 4


@pytest.mark.parametrize("declared", [True, False])
async def test_bytes_are_limited_while_they_come(declared: bool) -> None:
    sent = 0

    async def answer(_: str, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        length = "Content-Length: 100000000\r\n" if declared else ""
        writer.write(f"HTTP/1.1 200 OK\r\n{length}\r\n".encode())
        for _ in range(1000):
            writer.write(bytes(100_000))
            sent += 100_000
            await writer.drain()

    async with serving(answer, max_image_bytes=200_000) as (fetcher, _):
        with pytest.raises(ImageTooLargeError, match="limit of 200000"):
            await fetcher.fetch(["http://photos.test/a.jpg"])
    assert sent < 50_000_000


async def test_the_photos_of_a_request_are_limited_together() -> None:
    async with serving(photo(bytes(1000)), max_body_bytes=2500) as (fetcher, _):
        urls = ["http://photos.test/a", "http://a.cdn.test/b"]
        assert await fetcher.fetch(urls) == [bytes(1000)] * 2
        with pytest.raises(ImageTooLargeError, match="2500 in one request"):
            await fetcher.fetch([*urls, "http://photos.test/c"])


async def test_time_is_limited_in_all() -> None:
    async def trickle(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        for _ in range(200):
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with serving(trickle, image_url_timeout_s=0.3) as (fetcher, _):
        started = asyncio.get_running_loop().time()
        with pytest.raises(ImageUrlFailedError):
            await fetcher.fetch(["http://photos.test/a.jpg"])
        assert asyncio.get_running_loop().time() - started < 2


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (photo(head="404 Not Found"), "status 404 instead of a photo"),
        (photo(head="200 OK\r\nContent-Length: 7"), "no photo could be fetched"),
        (photo(head="fine"), "no photo could be fetched"),
    ],
)
async def test_other_answers(answer: Answer, told: str) -> None:
    async with serving(answer) as (fetcher, _):
        with pytest.raises(AladinError, match=told):
            await fetcher.fetch(["http://photos.test/a.jpg"])


async def test_certificates_are_checked_against_the_name(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=photos.test", "-addext", "subjectAltName=DNS:photos.test"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    server_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_tls.load_cert_chain(certificate, key)
    names: list[str | None] = []
    server_tls.sni_callback = lambda _, name, __: names.append(name)
    client_tls = ssl.create_default_context(cafile=str(certificate))
    async with serving(photo(), None, server_tls, client_tls) as (fetcher, internet):
        assert await fetcher.fetch(["https://photos.test/a.jpg"]) == [PHOTO]
        assert internet.connected == [(PUBLIC, 443)]
        with pytest.raises(ImageUrlFailedError):
            await fetcher.fetch(["https://a.cdn.test/a.jpg"])
    assert names == ["photos.test", "a.cdn.test"]
