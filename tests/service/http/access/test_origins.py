"""Hosts and origins, pages of other sites that may use the service, and headers of all answers."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from aladin_network.errors import ConfigError
from aladin_service.http.access.control import AccessControl
from aladin_service.http.access.origins import check_origins, check_site, is_own_host
from aladin_service.http.access.policy import make_policy
from aladin_service.http.errors import CrossSiteError
from aladin_service.http.middleware import RequestContext
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from tests.service.http.conftest import FakeWorkers, Open

OWN_HOSTS = (
    *("localhost", "localhost:8000", "LOCALHOST.", "app.localhost:80", "127.0.0.1:8000"),
    *("127.1.2.3", "[::1]:8000", "192.168.1.7:8000", "[2001:db8::1]", "search.example.org"),
    "Search.Example.Org:443",
)
FOREIGN_HOSTS = (
    *("", "evil.example", "evil.example:8000", "localhost.evil.example", "notlocalhost"),
    *("127.0.0.1.evil.example", "evil.example#localhost", "localhost:80:80", "localhost:evil"),
    *("[::1", "::1", "2130706433", "x.search.example.org"),
)
OWN, FRIEND, EVIL = "http://127.0.0.1:8000", "https://friend.example", "http://evil.example"


@pytest.mark.parametrize(
    ("header", "own"),
    [*((host, True) for host in OWN_HOSTS), *((host, False) for host in FOREIGN_HOSTS)],
)
def test_addresses_localhost_and_named_hosts_are_our_own(header: str, own: bool) -> None:
    assert is_own_host(header, {"search.example.org"}) is own
    assert is_own_host(header, {"*"})


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ({}, None),
        ({"origin": OWN}, None),
        ({"origin": "https://127.0.0.1:8000"}, None),  # a proxy has taken TLS off
        ({"origin": FRIEND}, None),
        ({"origin": FRIEND, "sec-fetch-site": "cross-site"}, None),
        ({"origin": "https://search.example", "sec-fetch-site": "same-origin"}, None),
        ({"sec-fetch-site": "none"}, None),
        ({"host": ""}, None),
        ({"origin": EVIL}, EVIL),
        ({"origin": "http://127.0.0.1:3000"}, "http://127.0.0.1:3000"),
        ({"origin": "http://127.0.0.1"}, "http://127.0.0.1"),
        ({"origin": "null"}, "null"),
        ({"origin": "null", "host": ""}, "null"),
        ({"origin": EVIL, "host": ""}, EVIL),
        ({"origin": "http://["}, "http://["),
        ({"origin": ""}, ""),
        ({"origin": "http://friend.example"}, "http://friend.example"),
        ({"origin": "http://127.0.0.1:8000@evil.example"}, "http://127.0.0.1:8000@evil.example"),
        ({"origin": OWN, "sec-fetch-site": "same-site"}, OWN),
        ({"origin": EVIL, "sec-fetch-site": "cross-site"}, EVIL),
        ({"sec-fetch-site": "cross-site"}, "cross-site"),
    ],
)
def test_pages_of_other_sites_are_refused_by_name(
    headers: dict[str, str], named: str | None
) -> None:
    given = Headers({"host": "127.0.0.1:8000"} | headers)
    check_site(Headers({}), ())
    if named is None:
        check_site(given, {FRIEND})
        return
    with pytest.raises(CrossSiteError) as refused:
        check_site(given, {FRIEND})
    assert repr(named) in str(refused.value)


@pytest.mark.parametrize(
    "wrong", ["*", "null", "example.org", "https://example.org/", "https://*/x", ""]
)
def test_a_setting_of_no_origin_is_refused_by_name(wrong: str) -> None:
    check_origins(["https://example.org", "http://localhost:3000"])
    with pytest.raises(ConfigError, match="ALADIN_CORS_ORIGINS: expected origins") as failure:
        check_origins(["https://example.org", wrong])
    assert str(failure.value).endswith(repr(wrong))


PREFLIGHT = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type",
}


def listed(answer: httpx.Response, header: str) -> set[str]:
    return set(answer.headers[f"access-control-{header}"].lower().split(", "))


@pytest.mark.anyio
async def test_an_allowed_page_asks_before_it_has_a_key_and_then_reads_errors_too(
    door: Open, workers: FakeWorkers, keys_file: Path, keys: dict[str, str]
) -> None:
    async with door(host="0.0.0.0", keys_file=keys_file, cors_origins=(FRIEND,)) as client:
        asked = await client.options("/v1/search/images", headers={"origin": FRIEND} | PREFLIGHT)
        assert "post" in listed(asked, "allow-methods")
        assert {"authorization", "content-type", "x-api-key"} <= listed(asked, "allow-headers")
        from_page = {"origin": FRIEND, "sec-fetch-site": "cross-site"}
        with_key = from_page | {"authorization": f"Bearer {keys['read']}"}
        body = {"text": "a dog"}
        answer = await client.post("/v1/search/images", json=body, headers=with_key)
        assert listed(answer, "expose-headers") == {"retry-after", "x-request-id"}
        assert "origin" in answer.headers["vary"].lower()
        assert "access-control-allow-credentials" not in answer.headers
        refused = [
            await client.request(method, path, headers=from_page)
            for method, path in (("GET", "/v1/index"), ("GET", "/v1/nothing"), ("PUT", "/v1/index"))
        ]
        workers.failure = RuntimeError("secret internals")
        failed = await client.post("/v1/search/images", json=body, headers=with_key)
    answers = [asked, answer, *refused, failed]
    assert [each.status_code for each in answers] == [200, 200, 401, 404, 405, 500]
    assert {each.headers["access-control-allow-origin"] for each in answers} == {FRIEND}


@pytest.mark.anyio
@pytest.mark.parametrize(("origins", "refusal"), [((), 405), ((FRIEND,), 400)])
async def test_other_pages_read_nothing(door: Open, origins: tuple[str, ...], refusal: int) -> None:
    async with door(cors_origins=origins) as client:
        for origin in (EVIL, "http://friend.example", f"{FRIEND}:444", "null"):
            headers = {"origin": origin}
            asked = await client.options("/v1/search/images", headers=headers | PREFLIGHT)
            assert asked.status_code == refusal
            for answer in (asked, await client.get("/v1/index", headers=headers)):
                assert "access-control-allow-origin" not in answer.headers
                assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.anyio
async def test_options_for_no_allowed_method_are_refused_and_caches_told_of_origins(
    door: Open,
) -> None:
    async with door(cors_origins=(FRIEND,)) as client:
        for wanted, status in (({}, 405), ({"access-control-request-method": "PUT"}, 400)):
            headers = {"origin": FRIEND} | wanted
            answer = await client.options("/v1/search/images", headers=headers)
            assert answer.status_code == status
        for headers in ({"origin": FRIEND}, {"origin": EVIL}, {}):
            answer = await client.get("/healthz", headers=headers)
            assert "Origin" in answer.headers["vary"].split(", ")


NOTHING = {
    name: ["'none'"] for name in ("default-src", "frame-ancestors", "base-uri", "form-action")
}
PAGE = NOTHING | {
    "script-src": ["'self'"],
    "style-src": ["'self'"],
    "connect-src": ["'self'"],
    "img-src": ["'self'", "blob:"],
}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("GET", "/page/page.js", 200),
        ("GET", "/docs", 200),
        ("GET", "/healthz", 200),
        ("POST", "/v1/search/images", 401),
        ("GET", "/v1/nothing", 404),
        ("PUT", "/", 405),
        ("DELETE", "/v1/items/texts/a", 500),
    ],
)
async def test_every_answer_has_its_headers_once(
    door: Open,
    workers: FakeWorkers,
    keys_file: Path,
    keys: dict[str, str],
    method: str,
    path: str,
    status: int,
) -> None:
    headers = {}
    if status == 500:
        workers.failure = RuntimeError("secret internals")
        headers = {"x-api-key": keys["write"]}
    async with door(keys_file=keys_file) as client:
        answer = await client.request(method, path, headers=headers)
    assert answer.status_code == status
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
    assert answer.headers.get_list("referrer-policy") == ["no-referrer"]
    assert answer.headers.get_list("cross-origin-resource-policy") == ["same-origin"]
    (header,) = answer.headers.get_list("content-security-policy")
    parts = [part.split() for part in header.split(";")]
    policy = {name: sources for name, *sources in parts}
    assert len(policy) == len(parts)  # a browser ignores what is said a second time
    assert policy == (PAGE if path in ("/", "/docs") else NOTHING)
    assert "server" not in answer.headers
    # None differs by who asks; files of the page by whether they may be compressed.
    assert answer.headers.get("vary", "Accept-Encoding") == "Accept-Encoding"
    assert "secret" not in answer.text


@pytest.mark.anyio
async def test_what_is_no_request_reaches_the_application() -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive, send
        seen.append(scope)

    async def nothing(*_: object) -> None:  # pyright: ignore[reportUnusedFunction]
        pytest.fail("nothing is received and nothing is sent")

    controlled = AccessControl(app, make_policy(ServiceSettings()))
    wrapped = RequestContext(controlled, Metrics())
    await wrapped({"type": "lifespan"}, nothing, nothing)  # pyright: ignore[reportArgumentType]
    assert seen == [{"type": "lifespan"}]
