"""The doors of an index: each translates a case, and returns what all of them have in common.

A door that cannot express a case returns None.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from typer.testing import CliRunner

import aladin_search
from aladin_index.search.results import SEARCH_ANSWER
from aladin_network.errors import AladinError
from aladin_service.cli import app
from aladin_service.http.error_responses import failure_of
from tests.contract.cases import Case

# What a search found, or the code of the error that refused it.
Found = dict[str, Any]
Ask = Callable[[Case], Coroutine[Any, Any, Found | None]]

_QUERIES = ("text", "image", "id", "box")
_TERMS = ("all", "not", "like")
_TOOL_OPTIONS = {"k", "offset", "filter", "sort", "lexical"}


@dataclass(frozen=True)
class Pictures:
    """Files of the pictures that are searched with, by their names in the cases."""

    files: Mapping[str, Path]

    def body(self, query: Mapping[str, Any]) -> dict[str, Any]:
        """Return a request with pictures as base64, those of its terms included."""
        made = dict(query)
        if "image" in made:
            made["image"] = base64.b64encode(self.files[made["image"]].read_bytes()).decode()
        if "all" in made:
            made["all"] = [self.body(term) for term in made["all"]]
        return made


def found_in(answer: Mapping[str, Any]) -> Found:
    """Return what is compared of an answer in the form of HTTP."""
    hits: list[dict[str, Any]] = []
    for hit in answer["hits"]:
        align = hit["stages"]["align"]
        found = {"id": hit["id"], "score": hit["score"], "match": hit["stages"]["match"]["score"]}
        if align is not None:
            found["align"] = align["score"]
        if hit.get("evidence"):
            keys = ("token", "region", "score")
            found["evidence"] = [[word[key] for key in keys] for word in hit["evidence"]]
        hits.append(found)
    found = {"hits": hits, "reranked": answer["reranked"], "degraded": answer["degraded"]}
    return found if answer["facets"] is None else found | {"facets": _counts(answer["facets"])}


def _counts(facets: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts by value; equal ones have no order."""
    return {
        field: [
            facet["among"],
            dict(sorted((str(v["value"]), v["count"]) for v in facet["values"])),
        ]
        for field, facet in facets.items()
    }


def over_http(client: httpx.AsyncClient, pictures: Pictures) -> Ask:
    """Ask by `POST /v1/search/{target}`."""

    async def ask(case: Case) -> Found:
        body = pictures.body(case.body)
        answer = await client.post(f"/v1/search/{case.target}", json=body)
        if answer.is_success:
            return found_in(answer.json())
        return {"refused": answer.json()["error"]["code"]}

    return ask


def from_python(index: aladin_search.Index, pictures: Pictures) -> Ask:
    """Ask an `aladin_search.Index`."""

    def term(given: Mapping[str, Any]) -> aladin_search.Term:
        image = given.get("image")
        return aladin_search.Term(**{**given, "image": image and pictures.files[image]})

    async def ask(case: Case) -> Found:
        given = dict(case.body)
        if "image" in given:
            given["image"] = pictures.files[given["image"]]
        for role, name in (("all", "all"), ("not", "not_")):
            if role in given:
                given[name] = [term(each) for each in given.pop(role)]
        try:
            answer = index.search(target=case.target, **given).answer
        except AladinError as error:
            return {"refused": failure_of(error).code}
        # Through JSON, so that all doors are compared in one form.
        return found_in(json.loads(SEARCH_ANSWER.dump_json(answer)))

    return ask


def by_command(index: Path, pictures: Pictures) -> Ask:
    """Ask `aladin search --json`; terms of the command line are texts without weights."""

    def words(case: Case) -> list[object] | None:
        options = {name: value for name, value in case.body.items() if name not in _TERMS}
        terms = case.body.get("all", [])
        if "offset" in options:
            return None  # the command line has no pages
        if not _are_texts(terms):
            return None
        text: list[object] = []
        made: list[object] = ["--target", case.target]
        for each in ({**options}, *terms):
            if "text" in each:
                made += ["--and", each["text"]] if text else []
                text = text or [each["text"]]
            if "image" in each:
                made += ["--image", pictures.files[each["image"]]]
            if "id" in each:
                made += ["--id", each["id"]]
        for role in ("not", "like"):
            for each in case.body.get(role, []):
                made += [f"--{role}", each if role == "like" else each["text"]]
        for name, value in options.items():
            if name in ("text", "image", "id"):
                continue
            flag = "-k" if name == "k" else f"--{name}"
            if name == "box":
                made += [flag, ",".join(map(str, value))]
            elif name == "filter":
                made += [flag, json.dumps(value)]
            elif name == "facets":
                made += [word for field in value for word in ("--facet", field)]
            elif name == "rerank":
                made += [] if value else ["--no-rerank"]
            elif name == "explain":
                made += [flag] if value else []
            else:
                made += [flag, value]
        return [index, *text, *made, "--json"]

    async def ask(case: Case) -> Found | None:
        line = words(case)
        if line is None:
            return None
        result = CliRunner().invoke(app, ["search", *map(str, line)])
        if result.exit_code == 0:
            return found_in(json.loads(result.stdout))
        assert result.exit_code == 2, result.stderr
        return {"refused": None}

    return ask


def by_tool(client: httpx.AsyncClient) -> Ask:
    """Ask the tool search of /mcp: texts and items alone, with the options that agents have."""

    async def ask(case: Case) -> Found | None:
        arguments = dict(case.body)
        options = {name for name in arguments if name not in (*_QUERIES, *_TERMS)}
        terms = arguments.pop("all", [])
        if not options <= _TOOL_OPTIONS or "image" in arguments:
            return None
        if not _are_texts(terms) or (not terms and not {"text", "id"} & set(arguments)):
            return None
        texts = [each["text"] for each in terms]
        arguments["find"] = _KINDS[case.target]
        if "id" not in arguments:
            arguments["query"] = arguments.pop("text") if "text" in arguments else texts.pop(0)
        if texts:
            arguments["and"] = texts
        if "not" in arguments:
            arguments["not"] = [each["text"] for each in arguments["not"]]
        call = {"name": "search", "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        headers = {"accept": "application/json, text/event-stream"}
        answer = (await client.post("/mcp", json=message, headers=headers)).json()
        if "error" in answer or answer["result"].get("isError"):
            return {"refused": None}
        hits = answer["result"]["structuredContent"]["hits"]
        return {"hits": [{"id": hit["id"], "score": hit["score"]} for hit in hits]}

    return ask


_KINDS = {"images": "photos", "texts": "texts"}


def _are_texts(terms: Sequence[Mapping[str, Any]]) -> bool:
    return all(set(each) == {"text"} for each in terms)
