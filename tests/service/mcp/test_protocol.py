"""The official SDK's client with the server, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Request

from aladin_service.http.agents import AgentServer
from aladin_service.http.app import create_app
from aladin_service.http.middleware import LayeredApplication
from aladin_service.keys_file import add_key
from aladin_service.mcp.tools import TOOL_NAMES
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from aladin_service.work.worker import WorkerPlan
from aladin_service.work.workers import ThreadWorkers

mcp = pytest.importorskip("mcp")

pytestmark = [pytest.mark.anyio, pytest.mark.clients]

Connect = Callable[[], AbstractAsyncContextManager[Any]]
Serve = Callable[..., AbstractContextManager[str]]


def stdio(*words: str, **variables: str) -> Any:
    return mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "aladin_service", "mcp", *words],
        env=dict(os.environ) | {"ALADIN_QUERY_PRECISION": "float32"} | variables,
    )


@asynccontextmanager
async def connected(server: Any, mode: str = "auto") -> AsyncGenerator[Any]:
    async with mcp.Client(server, mode=mode, read_timeout_seconds=60) as client:
        yield client


@pytest.fixture(params=["index", "url", "http", "http-legacy"])
def connect(request: pytest.FixtureRequest, index_folder: Path) -> Connect:
    """Connects by each of the ways to the index of `index_folder`."""
    if request.param == "index":
        return lambda: connected(stdio(str(index_folder)), "legacy")
    url: str = request.getfixturevalue("url")
    if request.param == "url":
        return lambda: connected(stdio("--url", url))
    mode = "legacy" if request.param == "http-legacy" else "auto"
    return lambda: connected(f"{url}/mcp", mode)


def texts(result: Any) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")


def pictures(result: Any) -> int:
    return sum(block.type == "image" for block in result.content)


async def test_an_agent_finds_looks_and_is_told_what_is_wrong(connect: Connect, url: str) -> None:
    async with connect() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == set(TOOL_NAMES)
        for tool in tools.values():
            assert tool.annotations.read_only_hint and not tool.annotations.open_world_hint
        assert tools["search"].input_schema["properties"]["k"]["maximum"] == 50
        # What their answer would not tell is not offered.
        hidden = {"candidates", "rerank", "fusion", "explain", "timeout_ms", "facets"}
        assert not hidden & tools["search"].input_schema["properties"].keys()
        info = (await client.call_tool("describe", {})).structured_content
        assert (info["photos"]["count"], info["texts"]["count"]) == (6, 12)

        arguments = {"query": "a red dog runs", "k": 3, "thumbnails": True}
        found = await client.call_tool("search", arguments)
        assert not found.is_error
        ids = [hit["id"] for hit in found.structured_content["hits"]]
        body = {"text": "a red dog runs", "k": 3}
        expected = httpx.post(f"{url}/v1/search/images", json=body).json()["hits"]
        assert ids == [hit["id"] for hit in expected]
        assert all(each in texts(found) for each in ids) and pictures(found) == 3
        shown = await client.call_tool("show", {"id": ids[0], "query": "a red dog runs"})
        assert len(shown.structured_content["words"]) == 4 and pictures(shown) == 1
        for name, arguments, message in (
            ("search", {}, "expected exactly one of query, id, got none"),
            ("show", {"id": "nobody"}, "no item 'nobody' among the images of this index"),
            ("delete_everything", {}, "Unknown tool: delete_everything"),
        ):
            result = await client.call_tool(name, arguments)
            assert result.is_error and message in texts(result)


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    file = tmp_path / "keys.json"
    given = {
        "reader": add_key(file, "reader", scopes=["read"]),
        "writer": add_key(file, "writer", scopes=["write"]),
        "slow": add_key(file, "slow", scopes=["read"], requests_per_s=0.001, burst=8),
    }
    return file, given


def application(index: Path, **settings: Any) -> Any:
    given, metrics = ServiceSettings(**settings), Metrics()
    workers = ThreadWorkers(WorkerPlan(index=index, settings=given).make(), given, metrics)
    return create_app(workers, given, metrics)


CALL: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "search", "arguments": {"query": "a dog"}},
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


async def test_a_key_with_the_scope_is_needed_and_each_picture_counts_as_a_request(
    index_folder: Path, serve_in_thread: Serve, keys: tuple[Path, dict[str, str]]
) -> None:
    file, secrets = keys
    thumbnails = {"name": "search", "arguments": {"query": "a dog", "thumbnails": True}}
    with serve_in_thread(application(index_folder, keys_file=file)) as url:

        def post(key: str | None, params: Any = CALL["params"]) -> httpx.Response:
            headers = ACCEPT if key is None else ACCEPT | {"Authorization": f"Bearer {key}"}
            body = CALL | {"params": params}
            return httpx.post(f"{url}/mcp", json=body, headers=headers, timeout=60)

        challenge = 'Bearer realm="aladin-search"'
        for key, status, expected in (
            (None, 401, challenge),
            ("wrong", 401, f'{challenge}, error="invalid_token"'),
            (secrets["writer"], 403, f'{challenge}, error="insufficient_scope", scope="read"'),
        ):
            refused = post(key)
            assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (status, expected)
            assert refused.json()["error"]["message"]
        answered = post(secrets["reader"])
        assert answered.status_code == 200
        assert answered.headers["Content-Type"] == "application/json"
        assert answered.headers["X-Request-ID"]
        assert answered.json()["result"]["structuredContent"]["hits"]
        # One search and six pictures of a burst of eight.
        assert not post(secrets["slow"], thumbnails).json()["result"]["isError"]
        second = post(secrets["slow"], thumbnails).json()["result"]
        assert second["isError"]
        assert "rate limit exceeded; retry in" in second["content"][0]["text"]
        assert post(secrets["slow"]).status_code == 429

        for key, says in ((secrets["reader"], None), ("wrong", "invalid API key")):
            async with connected(stdio("--url", url, ALADIN_API_KEY=key)) as client:
                assert len((await client.list_tools()).tools) == len(TOOL_NAMES)
                result = await client.call_tool("search", {"query": "a dog"})
                assert result.is_error == (says is not None)
                assert says is None or texts(result) == f"Error executing tool search: {says}"


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_call_runs_nothing_but_its_tool(
    index_folder: Path, serve_in_thread: Serve, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    done: list[str] = []
    whole = LayeredApplication.framework

    async def noted(app: Any, scope: Any, receive: Any, send: Any) -> None:
        done.append(scope.get("path", scope["type"]))
        await whole(app, scope, receive, send)

    monkeypatch.setattr(LayeredApplication, "framework", noted)
    with serve_in_thread(application(index_folder)) as url:
        async with connected(f"{url}/mcp", mode) as client:
            await client.list_tools()
            assert set(done) == {"lifespan", "/mcp"}
            await client.call_tool("show", {"id": "plain"})
    assert [path for path in done if path not in ("lifespan", "/mcp")] == [
        "/v1/items/images/plain",
        "/v1/images/plain",
    ]


async def test_the_service_s_rules_hold_for_agents(
    index_folder: Path, serve_in_thread: Serve
) -> None:
    with serve_in_thread(application(index_folder, max_json_bytes=1024)) as url:
        for method in ("GET", "DELETE"):
            refused = httpx.request(method, f"{url}/mcp", headers=ACCEPT)
            assert (refused.status_code, refused.headers["Allow"]) == (405, "POST")
        foreign = httpx.post(f"{url}/mcp", json=CALL, headers=ACCEPT | {"Origin": "http://x.org"})
        assert (foreign.status_code, foreign.json()["error"]["code"]) == (403, "cross_site")
        large = httpx.post(f"{url}/mcp", content=b" " * 1025, headers=ACCEPT)
        assert (large.status_code, large.json()["error"]["code"]) == (413, "body_too_large")
        headers = ACCEPT | {"Content-Type": "application/json"}
        for body in (b"", b"{", b"[]", b"null", b'{"jsonrpc": "2.0"}', b"\xff", b"[" * 1000):
            broken = httpx.post(f"{url}/mcp", content=body, headers=headers)
            assert (broken.status_code, broken.json()["jsonrpc"]) == (400, "2.0")
        assert 'route="/mcp"' in httpx.get(f"{url}/metrics").text
    with serve_in_thread(application(index_folder, mcp=False)) as url:
        absent = httpx.post(f"{url}/mcp", json=CALL, headers=ACCEPT)
        assert (absent.status_code, absent.json()["error"]["code"]) == (404, "unknown_route")


@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
async def test_a_call_whose_client_hangs_up_is_cancelled(version: str) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        del scope, receive, send
        begun.set()
        try:
            await asyncio.Future()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    app = LayeredApplication()
    app.inside = slow
    server = AgentServer(app, 10_000)
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    call = CALL | {"params": CALL["params"] | {"_meta": meta}}
    headers = ACCEPT | {
        "Content-Type": "application/json",
        "MCP-Protocol-Version": version,
        "Mcp-Method": "tools/call",
        "Mcp-Name": "search",
    }
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": raw}
    request = Request(scope | {"state": {"request_id": "1", "limit": None}})
    asking = asyncio.create_task(server.answer(request, json.dumps(call).encode()))
    async with asyncio.timeout(20):
        await begun.wait()
        asking.cancel()
        await cancelled.wait()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await server.stop()


def blocks(language: str) -> list[str]:
    guide = Path(__file__).parents[3] / "docs" / "MCP.md"
    pattern = rf"```{language}\n(.*?)```"
    return re.findall(pattern, guide.read_text(encoding="utf-8"), re.DOTALL)


async def test_the_guide_s_configuration_names_servers_that_start(
    url: str, index_folder: Path
) -> None:
    (text,) = blocks("json")
    places = {"/path/to/index": str(index_folder), "https://photos.example.org": url}
    for place, here in places.items():
        assert place in text
        text = text.replace(place, here)
    servers = json.loads(text)["mcpServers"]
    for name in ("photos", "photos-of-a-service"):
        entry = servers[name]
        assert Path(entry["command"]).name == "aladin"
        async with connected(stdio(*entry["args"][1:], **entry.get("env", {}))) as client:
            info = await client.call_tool("describe", {})
        # The service has no keys, so that of the guide is not checked.
        assert info.structured_content["photos"]["count"] == 6
    assert servers["photos-over-http"]["url"].endswith("/mcp")


def test_the_guide_s_program_finds_photos(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = blocks("python")
    exec(program.replace("http://127.0.0.1:8000", url), {})
    body = {"text": "two dogs in the snow", "k": 3}
    hits = httpx.post(f"{url}/v1/search/images", json=body).json()["hits"]
    assert capsys.readouterr().out.strip() == str([hit["id"] for hit in hits])


def test_stdout_has_messages_only_and_the_command_ends_with_stdin(index_folder: Path) -> None:
    command = [sys.executable, "-m", "aladin_service", "mcp", str(index_folder)]
    ended = subprocess.run(command, input="", capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, "")
