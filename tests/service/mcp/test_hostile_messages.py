"""Messages that no agent should send: made-up JSON, and made-up arguments of the tools."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from aladin_service.mcp.tools import TOOL_NAMES

pytest.importorskip("mcp")
pytestmark = pytest.mark.clients

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=30)
    | st.sampled_from(["plain", "a red dog runs", "..", "\0", "1e999", "\ud800"])
)
values = st.recursive(
    scalars,
    lambda part: (
        st.lists(part, max_size=4)
        | st.dictionaries(
            st.text(max_size=8) | st.sampled_from(["$not", "and", "gte"]), part, max_size=4
        )
    ),
    max_leaves=12,
)
fields = ["query", "id", "find", "k", "offset", "filter", "sort", "min_probability"]
fields += ["and", "not", "like", "lexical", "box", "thumbnails", "size_px", "unknown"]
calls = st.fixed_dictionaries(
    {
        "name": st.sampled_from([*TOOL_NAMES, "no_such_tool"]) | scalars,
        "arguments": st.dictionaries(st.sampled_from(fields), values, max_size=5) | values,
    }
)
# Words and a photo are there, so that what is wrong is deeper.
likely = st.fixed_dictionaries(
    {
        "name": st.sampled_from(TOOL_NAMES),
        "arguments": st.fixed_dictionaries(
            {}, optional={name: values for name in fields if name != "unknown"}
        ).map(lambda given: {"query": "a red dog"} | given),
    }
)
messages = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0") | scalars, "id": st.integers(0, 9) | scalars},
    optional={
        "method": st.sampled_from(["tools/call", "tools/list", "initialize", "ping"]) | scalars,
        "params": calls | values,
    },
)
sound = st.fixed_dictionaries(
    {
        "name": st.just("search"),
        "arguments": st.fixed_dictionaries(
            {"query": st.text(min_size=1, max_size=30) | st.just("a red dog")},
            optional={
                "k": st.integers(1, 50),
                "offset": st.integers(0, 9),
                "not": st.lists(st.just("a car"), max_size=9),
                "like": st.lists(st.sampled_from(["plain", "nobody"]), max_size=3),
                "find": st.sampled_from(["photos", "texts"]),
                "lexical": st.floats(0, 1),
            },
        ),
    }
)
agents = (calls | likely | sound).map(
    lambda params: {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
)
bodies = (agents | messages | values).map(lambda value: json.dumps(value).encode()) | st.binary(
    max_size=60
)


@pytest.fixture(scope="module")
def agent(url: str) -> Any:
    with httpx.Client(base_url=url, timeout=30) as client:
        yield lambda body: client.post("/mcp", content=body, headers=HEADERS)


def test_no_message_is_too_much(agent: Any) -> None:
    answered: dict[str, int] = {"result": 0, "isError": 0, "error": 0}

    @settings(
        max_examples=400,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(bodies)
    def send(body: bytes) -> None:
        answer = agent(body)
        assert answer.status_code < 500, (body, answer.text)
        assert "Traceback" not in answer.text
        if answer.status_code != 200:
            return
        message = answer.json()
        assert message["jsonrpc"] == "2.0"
        assert ("result" in message) != ("error" in message), (body, message)
        if "error" in message:
            answered["error"] += 1
            # -32603 is an internal error.
            assert message["error"]["code"] != -32603, (body, message)
        else:
            answered["isError" if message["result"].get("isError") else "result"] += 1

    send()
    # All three kinds of answers were seen, so the messages were not all alike.
    assert min(answered.values()) > 5, answered
    works = {"jsonrpc": "2.0", "id": 7, "method": "tools/call"}
    works["params"] = {"name": "search", "arguments": {"query": "a red dog", "k": 2}}
    found = agent(json.dumps(works)).json()["result"]
    assert len(found["structuredContent"]["hits"]) == 2


def called(**arguments: Any) -> bytes:
    params = {"name": "search", "arguments": {"query": "a red dog"} | arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return json.dumps(message).encode()


MANY = {
    "parts": called(**{"and": [""] * 300_000}),
    "ids": called(like=[1] * 330_000),
    "arguments": called(**{f"{number}": 0 for number in range(90_000)}),
    "fields": json.dumps({f"{number}": 0 for number in range(90_000)}).encode(),
}


@pytest.mark.parametrize("name", MANY)
def test_many_values_are_refused_before_they_are_parsed(agent: Any, name: str) -> None:
    assert 900_000 < len(MANY[name]) < 2**21
    agent(called())
    started = time.process_time()
    answer = agent(MANY[name][: 2**20])
    seconds = time.process_time() - started
    assert answer.status_code == 413
    assert "10000 names and values in JSON" in answer.json()["error"]["message"]
    assert seconds < 0.5
