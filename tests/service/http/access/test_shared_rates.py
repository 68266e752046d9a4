"""Rates in a Redis: without one, on one that does not answer, and on a real one."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aladin_network.errors import ConfigError
from aladin_service.http.access import rate_limits
from aladin_service.http.access.policy import make_policy
from aladin_service.http.access.rate_limits import RedisRates, TokenBucket
from aladin_service.http.errors import RateLimitedError
from aladin_service.keys_file import add_key
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings

pytestmark = pytest.mark.anyio

SEARCH = {"url": "/v1/search/images", "json": {"text": "a dog"}}
# So slow that nothing is refilled while a test runs, and so that a bucket's tokens can be counted.
SLOW_PER_S = 1e-6
# For a program that was started to answer.
START_S = 10.0


class RedisServer:
    """A real Redis on a port of this machine, which can be ended and started again.

    Attributes:
        url: by which it is named in the settings.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        """Start it with nothing in it, and return when it answers."""
        options = {"port": self._port, "bind": "127.0.0.1", "save": "", "dir": self._folder}
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self._process = subprocess.Popen(["redis-server", *words], stdout=subprocess.DEVNULL)
        deadline_s = time.monotonic() + START_S
        while not self._answers():
            assert time.monotonic() < deadline_s, "the Redis does not start"
            time.sleep(0.02)

    def stop(self) -> None:
        """End it, if it runs, without letting it say good-bye."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1) as asked:
                asked.sendall(b"PING\r\n")
                return asked.recv(7) == b"+PONG\r\n"
        except OSError:
            return False


@pytest.fixture
def redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    """A Redis that runs."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    # A busy machine may keep it from answering for longer than a service waits.
    monkeypatch.setattr(rate_limits, "_TIMEOUT_S", 5.0)
    server = RedisServer(tmp_path)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def alone(metrics: Metrics) -> float:
    """Return how many requests were counted without the store."""
    found = metrics.registry.get_sample_value("aladin_rates_counted_alone_total")
    assert found is not None
    return found


async def admitted(
    rates: RedisRates, bucket: TokenBucket, count: int, who: str = "key:ci", paid: int = 0
) -> bool:
    """Ask once; return whether there were enough tokens."""
    try:
        await rates.take(who, bucket, count, paid)
    except RateLimitedError:
        return False
    return True


@pytest.fixture
def nobody() -> Iterator[str]:
    """The URL of a Redis that takes connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"redis://user:secret@127.0.0.1:{silent.getsockname()[1]}/3"


@pytest.mark.parametrize(
    "url",
    [
        "localhost:6379",
        "http://localhost",
        "redis://localhost:secret",
        "redis://:secret/more@host",
        "redis://[secret",
    ],
)
def test_what_is_no_redis_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^ALADIN_RATE_STORE: expected redis://") as refused:
        make_policy(ServiceSettings(rate_store=url))  # pyright: ignore[reportArgumentType]
    assert "secret" not in str(refused.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(ConfigError, match=r"aladin-search\[redis\]"):
        RedisRates("redis://localhost", Metrics())


async def test_a_redis_that_hangs_costs_one_request_its_time_and_is_told_once(
    nobody: str, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    rates = RedisRates(nobody, metrics, clock)
    bucket = TokenBucket(SLOW_PER_S, 3, clock)
    started_s = time.perf_counter()
    assert [await admitted(rates, bucket, 1) for _ in range(5)] == [True] * 3 + [False] * 2
    assert time.perf_counter() - started_s < 1
    assert alone(metrics) == 5
    clock.now_s += 2  # it is tried again, by one
    assert not await admitted(rates, bucket, 1)
    await rates.close()
    (told,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "falling back to per-process rate limits" in told.message
    assert "secret" not in caplog.text
    assert "user" not in caplog.text


async def test_only_one_request_waits_while_it_is_tried_again(nobody: str, clock: Any) -> None:
    rates = RedisRates(nobody, Metrics(), clock)
    bucket = TokenBucket(SLOW_PER_S, 1000, clock)
    assert await admitted(rates, bucket, 1)
    clock.now_s += 2
    trying = asyncio.create_task(admitted(rates, bucket, 1))
    await asyncio.sleep(0)
    for _ in range(100):
        assert await admitted(rates, bucket, 1)
    assert not trying.done()
    assert await trying
    await rates.close()


class ScriptedRedis:
    """Speaks enough of the protocol to run the one script, with answers that the test gives.

    Attributes:
        answers: to the next runs of the script, as the protocol has them.
        runs: keys and arguments of those that were asked for.
        databases: that were chosen.
    """

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.runs: list[list[str]] = []
        self.databases: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection until it is closed."""
        while head := await reader.readline():
            words: list[str] = []
            for _ in range(int(head[1:])):
                size = int((await reader.readline())[1:])
                words.append((await reader.readexactly(size + 2))[:-2].decode())
            answer = b"+OK\r\n"
            if words[0] == "SELECT":
                self.databases.append(words[1])
            elif words[0] == "EVALSHA":
                self.runs.append(words[3:])
                answer = self.answers.pop(0)
            writer.write(answer)
        writer.close()


@pytest.fixture
async def scripted() -> AsyncGenerator[tuple[ScriptedRedis, str]]:
    """A Redis that answers as the test says, and its URL."""
    redis = ScriptedRedis()
    server = await asyncio.start_server(redis.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield redis, f"redis://127.0.0.1:{port}/3"


async def test_what_the_redis_says_is_done(
    scripted: tuple[ScriptedRedis, str], clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "_TIMEOUT_S", 5.0)
    redis, url = scripted
    redis.answers += [b"$0\r\n\r\n", b"$4\r\n0.25\r\n", b"$0\r\n\r\n"]
    metrics = Metrics()
    rates, bucket = RedisRates(url, metrics, clock), TokenBucket(0.5, 4, clock)
    await rates.take("key:ci", bucket, 3)
    with pytest.raises(RateLimitedError) as refused:
        await rates.take("key:ci", bucket, 2)
    assert refused.value.retry_after_s == 0.25
    await rates.take("client:10.0.0.1", TokenBucket(0.5, 4, clock), 1)
    assert redis.runs == [
        ["aladin:rate:key:ci", "0.5", "4", "3", "0"],
        ["aladin:rate:key:ci", "0.5", "4", "2", "0"],
        ["aladin:rate:client:10.0.0.1", "0.5", "4", "1", "0"],
    ]
    assert set(redis.databases) == {"3"}
    assert alone(metrics) == 0
    # What was let in is missing here, what was refused is not.
    bucket.take(1)
    with pytest.raises(RateLimitedError):
        bucket.take(1)
    await rates.close()


async def test_a_redis_that_fails_is_asked_again_after_a_second(
    scripted: tuple[ScriptedRedis, str],
    clock: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rate_limits, "_TIMEOUT_S", 5.0)
    redis, url = scripted
    metrics = Metrics()
    rates, bucket = RedisRates(url, metrics, clock), TokenBucket(SLOW_PER_S, 10, clock)
    with caplog.at_level(logging.INFO, "aladin_service.http.access.rate_limits"):
        redis.answers += [b"-ERR broken\r\n"] * 2
        for wait_s, runs in ((0, 1), (0.9, 1), (0.1, 2), (0.9, 2)):
            clock.now_s += wait_s
            await rates.take("key:ci", bucket, 1)
            assert len(redis.runs) == runs
        assert alone(metrics) == 4
        redis.answers.append(b"$0\r\n\r\n")
        clock.now_s += 0.1
        await rates.take("key:ci", bucket, 1)
    assert (len(redis.runs), alone(metrics)) == (3, 4)
    assert [record.getMessage() for record in caplog.records] == [
        f"{url}: broken; falling back to per-process rate limits",
        f"{url} is available again; using shared rate limits",
    ]
    await rates.close()


async def test_the_log_names_the_redis_without_what_is_secret(
    nobody: str, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rates = RedisRates(f"{nobody}?password=secret", Metrics(), clock)
    await rates.take("key:ci", TokenBucket(SLOW_PER_S, 3, clock), 1)
    await rates.close()
    (record,) = caplog.records
    assert re.fullmatch(
        r"redis://127\.0\.0\.1:\d+/3: .*; falling back to per-process rate limits",
        record.getMessage(),
    )


async def test_the_service_answers_without_its_redis(door: Any, nobody: str) -> None:
    limits = {"anonymous_requests_per_s": SLOW_PER_S, "anonymous_burst": 2}
    async with door(rate_store=nobody, **limits) as client:
        answers = [(await client.post(**SEARCH)).status_code for _ in range(3)]
    assert answers == [200, 200, 429]


@pytest.mark.cluster
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    burst=st.integers(1, 6),
    counts=st.lists(st.tuples(st.integers(1, 9), st.sampled_from([0, 1])), min_size=1, max_size=12),
    per_s=st.sampled_from([1e-6, 1e-3]),
)
def test_a_shared_bucket_takes_what_one_of_a_process_does(
    redis: RedisServer, burst: int, counts: list[tuple[int, int]], per_s: float
) -> None:
    async def both() -> None:
        rates = RedisRates(redis.url, Metrics())
        own, noted = TokenBucket(per_s, burst), TokenBucket(per_s, burst)
        who = f"client:{time.monotonic_ns()}"  # a bucket of its own
        for count, paid in counts:
            try:
                own.take(count, paid)
                expected_s = 0.0
            except RateLimitedError as refused:
                expected_s = refused.retry_after_s
            try:
                await rates.take(who, noted, count, paid)
                found_s = 0.0
            except RateLimitedError as refused:
                found_s = refused.retry_after_s
            # They have clocks of their own: to a second.
            assert found_s == pytest.approx(expected_s, abs=1)
        await rates.close()

    asyncio.run(both())


@pytest.mark.cluster
async def test_a_batch_above_the_burst_passes_with_a_full_bucket_and_leaves_a_debt(
    redis: RedisServer, door: Any, keys_file: Path
) -> None:
    key = add_key(keys_file, "ci", ["read"], requests_per_s=5.0, burst=4)
    batch = {"queries": [{"target": "images", "text": "a dog"}] * 10}
    headers = {"x-api-key": key}
    async with door(rate_store=redis.url, keys_file=keys_file) as client:
        answer = await client.post("/v1/search/batch", json=batch, headers=headers)
        assert answer.status_code == 200
        refused = await client.post(**SEARCH, headers=headers)  # at 6 below nothing
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) == 2
        await asyncio.sleep(10 / 5.0)
        answer = await client.post("/v1/search/batch", json=batch, headers=headers)
        assert answer.status_code == 200


async def test_a_service_alone_lets_a_batch_above_the_burst_pass(nobody: str, clock: Any) -> None:
    rates = RedisRates(nobody, Metrics(), clock)
    bucket = TokenBucket(SLOW_PER_S, 4, clock)
    assert await admitted(rates, bucket, 1)
    assert await admitted(rates, bucket, 9, paid=1)
    assert not await admitted(rates, bucket, 1)
    await rates.close()


@pytest.mark.cluster
async def test_tokens_come_back_with_time_and_no_more_than_the_burst(redis: RedisServer) -> None:
    rates, bucket = RedisRates(redis.url, Metrics()), TokenBucket(5.0, 2)
    assert [await admitted(rates, bucket, 1) for _ in range(3)] == [True, True, False]
    with pytest.raises(RateLimitedError) as refused:
        await rates.take("key:ci", bucket, 1)
    assert 0 < refused.value.retry_after_s <= 0.2
    await asyncio.sleep(refused.value.retry_after_s + 0.001)
    assert await admitted(rates, bucket, 1)
    await asyncio.sleep(1)  # time for five
    assert [await admitted(rates, bucket, 1) for _ in range(3)] == [True, True, False]
    await rates.close()


@pytest.mark.cluster
async def test_services_that_ask_at_the_same_time_get_one_bucket_between_them(
    redis: RedisServer,
) -> None:
    metrics = Metrics()
    services = [RedisRates(redis.url, metrics) for _ in range(3)]
    for rates in services:  # connected: what follows is not kept waiting
        assert await admitted(rates, TokenBucket(1.0, 1), 1, who=f"key:{id(rates)}")
    bucket = TokenBucket(SLOW_PER_S, 50)
    asked = [admitted(rates, bucket, 1) for _ in range(40) for rates in services]
    assert sum(await asyncio.gather(*asked)) == 50
    assert alone(metrics) == 0
    # Another client has nothing to do with it.
    assert await admitted(services[0], TokenBucket(SLOW_PER_S, 50), 50, who="key:other")
    for rates in services:
        await rates.close()


@pytest.mark.cluster
async def test_two_services_share_the_limits_of_keys_and_of_clients(
    redis: RedisServer, door: Any, keys_file: Path
) -> None:
    key = add_key(keys_file, "ci", ["read"], requests_per_s=0.001, burst=10)
    limits = {
        "rate_store": redis.url,
        "anonymous_requests_per_s": 0.001,
        "anonymous_burst": 5,
        "allow_anonymous": True,
        "keys_file": keys_file,
    }
    async with door(**limits) as one, door(**limits) as other:

        async def statuses(headers: dict[str, str], count: int) -> list[int]:
            asked = [
                (await client.post(**SEARCH, headers=headers)).status_code
                for _ in range(count)
                for client in (one, other)
            ]
            return sorted(asked)

        assert await statuses({}, 5) == [200] * 5 + [429] * 5
        headers = {"x-api-key": key}
        # A batch costs its queries, wherever it is asked: 4 of 10.
        batch = {"queries": [{"target": "images", "text": "a dog"}] * 4}
        answer = await one.post("/v1/search/batch", json=batch, headers=headers)
        assert answer.status_code == 200
        assert await statuses(headers, 5) == [200] * 6 + [429] * 4
        refused = await other.post(**SEARCH, headers=headers)
        assert refused.json()["error"]["code"] == "rate_limited"
        assert int(refused.headers["Retry-After"]) > 60


@pytest.mark.cluster
async def test_a_redis_that_ends_gives_no_service_a_full_bucket_and_is_taken_up_again(
    redis: RedisServer, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    metrics = Metrics()
    rates = RedisRates(redis.url, metrics, clock)
    bucket = TokenBucket(SLOW_PER_S, 10, clock)
    assert await admitted(rates, bucket, 8)
    redis.stop()
    assert [await admitted(rates, bucket, 1) for _ in range(3)] == [True, True, False]
    assert alone(metrics) == 3
    redis.start()  # knows of nothing
    assert not await admitted(rates, bucket, 1)  # not asked before its time
    clock.now_s += 2
    assert await admitted(rates, bucket, 10)
    assert not await admitted(rates, bucket, 1)
    assert alone(metrics) == 4
    assert "is available again" in caplog.text
    await rates.close()


@pytest.mark.cluster
async def test_a_redis_that_was_started_again_meanwhile_is_not_missed(redis: RedisServer) -> None:
    metrics = Metrics()
    rates, bucket = RedisRates(redis.url, metrics), TokenBucket(SLOW_PER_S, 10)
    assert await admitted(rates, bucket, 1)
    redis.stop()
    redis.start()  # the connection from before is dead, and so are the scripts
    assert await admitted(rates, bucket, 10)
    assert alone(metrics) == 0
    await rates.close()


@pytest.mark.cluster
async def test_a_request_that_is_given_up_leaves_no_answer_for_another(redis: RedisServer) -> None:
    rates = RedisRates(redis.url, Metrics())
    full, empty = TokenBucket(SLOW_PER_S, 100), TokenBucket(SLOW_PER_S, 1)
    assert await admitted(rates, empty, 1, who="key:empty")
    redis.send(signal.SIGSTOP)
    given_up = asyncio.create_task(admitted(rates, empty, 1, who="key:empty"))
    await asyncio.sleep(0.02)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    redis.send(signal.SIGCONT)
    # The answer that nobody waited for is "refused".
    assert all([await admitted(rates, full, 1, who="key:full") for _ in range(20)])
    await rates.close()
