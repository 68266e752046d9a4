"""Times that vary: against drawn samples, a simulated line, and formulas added up slowly."""

import math

import numpy as np
import pytest

from aladin_index.capacity.workload import Latency, waiting


def test_quantiles_are_the_two_that_it_was_made_of() -> None:
    latency = Latency(0.002, 0.005)
    assert latency.quantile(0.5) == pytest.approx(0.002)
    assert latency.quantile(0.95) == pytest.approx(0.005)
    assert latency.quantile(0.99) > 0.005 > latency.quantile(0.9) > 0.002


def test_what_does_not_vary_is_as_long_at_every_quantile() -> None:
    latency = Latency.spread_by(0.001, 1.0)
    assert [latency.quantile(share) for share in (0.1, 0.5, 0.999)] == [0.001] * 3
    assert latency.slowest_of(1000) == Latency(0.001, 0.001)


def test_the_slowest_of_one_is_that_one() -> None:
    assert Latency(0.002, 0.005).slowest_of(1) == pytest.approx((0.002, 0.005))


@pytest.mark.parametrize("count", [2, 10, 200])
def test_the_slowest_of_some_is_that_of_drawn_ones(count: int) -> None:
    latency = Latency(1.0, 3.0)
    sigma = math.log(3) / 1.6448536
    drawn = np.exp(sigma * np.random.default_rng(0).standard_normal((40_000, count))).max(axis=1)
    found = latency.slowest_of(count)
    assert found.p50_s == pytest.approx(np.quantile(drawn, 0.5), rel=0.03)
    assert found.p95_s == pytest.approx(np.quantile(drawn, 0.95), rel=0.05)


def test_one_after_the_other_adds_up() -> None:
    assert Latency(1, 2).then(Latency(0.5, 4)) == Latency(1.5, 6)


def test_one_server_makes_wait_as_its_closed_form_says() -> None:
    # M/M/1: P(wait > t) = rho exp(-(mu - lambda) t).
    service_s, arrivals = 0.01, 80.0
    found = waiting(service_s, arrivals, 1)
    assert found.p50_s == pytest.approx(math.log(0.8 / 0.5) / 20)
    assert found.p95_s == pytest.approx(math.log(0.8 / 0.05) / 20)


def delayed(load: float, servers: int) -> float:
    """Erlang's C formula as it is written in textbooks."""
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    return last / (sum(load**k / math.factorial(k) for k in range(servers)) + last)


@pytest.mark.parametrize(("servers", "load"), [(2, 1.5), (3, 2.5), (16, 15.0)])
def test_several_servers_make_wait_as_erlang_says(servers: int, load: float) -> None:
    found = waiting(1.0, load, servers)
    chance = delayed(load, servers)
    for share, seconds in ((0.5, found.p50_s), (0.05, found.p95_s)):
        expected = max(0.0, math.log(chance / share) / (servers - load))
        assert seconds == pytest.approx(expected)


def test_a_simulated_line_is_waited_in_as_long() -> None:
    random = np.random.default_rng(0)
    servers, service_s, arrivals = 3, 1.0, 1.8
    free = np.zeros(servers)
    now, waits = 0.0, []
    for _ in range(40_000):
        now += random.exponential(1 / arrivals)
        first = int(free.argmin())
        start = max(now, free[first])
        waits.append(start - now)
        free[first] = start + random.exponential(service_s)
    found = waiting(service_s, arrivals, servers)
    assert found.p50_s == np.quantile(waits, 0.5) == 0
    assert found.p95_s == pytest.approx(float(np.quantile(waits, 0.95)), rel=0.1)


def test_nobody_waits_where_little_comes_and_forever_where_too_much_does() -> None:
    assert waiting(0.01, 0.1, 8) == Latency(0, 0)
    assert waiting(0.01, 800, 8) == Latency(math.inf, math.inf)
    # A thousand servers do not overflow.
    assert 0 <= waiting(1.0, 950, 1000).p95_s < 0.1
