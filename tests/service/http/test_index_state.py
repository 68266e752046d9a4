"""What the service tells of its index and of slow queries, on an index with a past."""

from __future__ import annotations

import asyncio
import json
import pickle
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from aladin_index.build.builder import build_index
from aladin_index.encode.source_items import ImageItem
from aladin_index.format.layout import generation_folder
from aladin_index.format.left_out import record_stop, write_follow_record
from aladin_index.format.manifest import FidelityPoint, Tuning, read_manifest
from aladin_index.format.records import Evaluation, SkippedItem, store_evaluation
from aladin_index.generations.compact import compact_index
from aladin_index.generations.published import publish_entries, rollback_index
from aladin_index.search.options import SearchOptions
from aladin_network.errors import OverloadedError
from aladin_service.api_key import SCOPES
from aladin_service.http.access.policy import make_policy
from aladin_service.http.routes.search import run_search
from aladin_service.http.shared_state import ServiceState
from aladin_service.item_sources import image_items, text_items
from aladin_service.keys_file import add_key
from aladin_service.observe.metrics import Metrics
from aladin_service.search.job import Answered, SearchJob, TextQuery
from aladin_service.settings import ServiceSettings
from aladin_service.work.report_jobs import ReportIndex
from aladin_service.work.worker import WorkerPlan
from aladin_service.work.workers import Workers

pytestmark = pytest.mark.anyio

Service = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]

TUNING = Tuning(
    candidates=4,
    fidelity=1.0,
    fidelity_wanted=0.99,
    at=10,
    queries=6,
    curve=[
        FidelityPoint(candidates=2, fidelity=0.5, search_ms=0.25),
        FidelityPoint(candidates=4, fidelity=1.0, search_ms=0.5),
    ],
)


@pytest.fixture(scope="session")
def with_a_past(
    tiny_checkpoint: Path, data_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An index of two generations: three photos were left out, the texts are tuned."""
    folder = tmp_path_factory.mktemp("past")
    broken: list[ImageItem] = []
    for number in range(3):
        path = folder / f"broken-{number}.png"
        path.write_bytes(b"no photo")
        broken.append(ImageItem(id=f"broken {number}", path=path, uri=path.name))
    photos = [*image_items(data_file, None), *broken]
    root = folder / "index"
    build_index(tiny_checkpoint, root, photos, text_items(data_file, None))
    manifest = read_manifest(generation_folder(root, 1))
    assert manifest.texts is not None
    publish_entries(root, manifest, {"texts": replace(manifest.texts, tuning=TUNING)}, "tune")
    return root


@pytest.fixture
def index(with_a_past: Path, tmp_path: Path) -> Path:
    """A copy of `with_a_past` that a test may change."""
    return Path(shutil.copytree(with_a_past, tmp_path / "index"))


class WaitingWorkers:
    """Workers that never come to a query, or refuse it."""

    def __init__(self) -> None:
        """Wait."""
        self.asked = asyncio.Event()
        self.error: Exception | None = None

    async def search(self, job: SearchJob) -> Answered:
        """Say that the query is there."""
        del job
        self.asked.set()
        if self.error is not None:
            raise self.error
        return await asyncio.Future()


def state_with(workers: WaitingWorkers) -> ServiceState:
    """What routes share, without an application."""
    settings = ServiceSettings()
    return ServiceState(cast(Workers, workers), settings, Metrics(), make_policy(settings))


@pytest.fixture
def workers() -> WaitingWorkers:
    """Nobody that answers."""
    return WaitingWorkers()


async def state_of(client: httpx.AsyncClient, **params: int) -> dict[str, Any]:
    answer = await client.get("/v1/index/state", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_counts_curves_and_generations(service: Service, index: Path) -> None:
    async with service(index=index) as client:
        item = {"items": [{"id": "new", "text": "a new caption"}]}
        await client.post("/v1/items/texts", json=item)
        await client.delete("/v1/items/images/plain")
        state = await state_of(client)
    assert (state["generation"], state["default_candidates"]) == (2, 100)
    assert state["images"]["counts"] == {"built": 6, "added": 0, "deleted": 1, "live": 5}
    assert state["texts"]["counts"] == {"built": 12, "added": 1, "deleted": 0, "live": 13}
    assert state["images"]["tuning"] is None
    assert state["texts"]["tuning"]["candidates"] == 4
    assert state["texts"]["tuning"]["curve"] == [
        {"candidates": 2, "fidelity": 0.5, "search_ms": 0.25},
        {"candidates": 4, "fidelity": 1.0, "search_ms": 0.5},
    ]
    ann = state["images"]["ann"]
    assert (ann["factory"], ann["recall"], ann["recall_at"]) == ("Flat", 1.0, 6)
    assert ann["curve"] == [
        {"search_width": None, "oversample": 1.0, "recall": 1.0, "search_ms": None}
    ]
    live, first = state["generations"]
    assert (live["generation"], live["made_by"], live["standing"]) == (2, "tune", "live")
    assert (first["generation"], first["made_by"], first["standing"]) == (1, "build", "earlier")
    assert live["texts"] == {
        "built": 12,
        "added": 1,
        "deleted": 0,
        "left_out": 0,
        "ann_factory": "Flat",
        "ann_recall": 1.0,
        "candidates": 4,
        "tuned": True,
    }
    assert (first["texts"]["candidates"], first["texts"]["tuned"]) == (100, False)
    assert state["calibration"] is None
    assert state["damaged"] == []
    sizes = {each["part"]: each["bytes"] for each in state["disk"]}
    assert sizes["changes"] > 0
    assert list(sizes.values()) == sorted(sizes.values(), reverse=True)


async def test_what_was_left_out_is_told_by_pages(service: Service, index: Path) -> None:
    async with service(index=index) as client:
        whole = (await state_of(client))["images"]["left_out"]
        pages = [
            (await state_of(client, offset=offset, limit=2))["images"]["left_out"]
            for offset in (0, 2, 4)
        ]
        texts = (await state_of(client))["texts"]["left_out"]
    assert [item["id"] for item in whole["items"]] == ["broken 0", "broken 1", "broken 2"]
    assert all("not an image" in item["reason"] for item in whole["items"])
    assert [page["total"] for page in pages] == [3, 3, 3]
    assert [page["offset"] for page in pages] == [0, 2, 4]
    assert [page["items"] for page in pages] == [whole["items"][:2], whole["items"][2:], []]
    assert texts == {"total": 0, "offset": 0, "items": []}


async def test_the_index_says_how_many_are_left_out_and_why(service: Service, index: Path) -> None:
    async with service(index=index) as client:
        left_out = (await client.get("/v1/index")).json()["left_out"]
        names = [name for group in left_out["reasons"] for name in group["names"]]
        assert (left_out["total"], sorted(names)) == (3, ["broken 0", "broken 1", "broken 2"])
        assert sum(group["count"] for group in left_out["reasons"]) == 3
        assert (left_out["other_files"], left_out["not_followed"]) == ({}, None)

        heic = [SkippedItem(f"{number}.heic", "HEIC needs a package") for number in range(30)]
        write_follow_record(index, [*heic, SkippedItem("a.jpg", "damaged")], {"videos": 8})
        record_stop(index, "it was killed")
        followed = (await client.get("/v1/index")).json()["left_out"]
        state = (await state_of(client, limit=2))["images"]["left_out"]
    assert followed == {
        "total": 31,
        "reasons": [
            {
                "reason": "HEIC needs a package",
                "count": 30,
                "names": [f"{number}.heic" for number in range(20)],
            },
            {"reason": "damaged", "count": 1, "names": ["a.jpg"]},
        ],
        "other_files": {"videos": 8},
        "not_followed": "it was killed",
    }
    assert (state["total"], [item["id"] for item in state["items"]]) == (31, ["0.heic", "1.heic"])


async def test_an_impossible_page_is_refused(service: Service) -> None:
    async with service() as client:
        for field, value in (("offset", "-1"), ("limit", "201"), ("limit", "many")):
            answer = await client.get("/v1/index/state", params={field: value})
            assert answer.status_code == 422
            assert answer.json()["error"]["message"].startswith(f"{field}:")


async def test_evaluations_say_which_generation_they_are_of(service: Service, index: Path) -> None:
    model_id = read_manifest(generation_folder(index, 1)).model.id
    for generation, split in ((1, "test"), (2, None)):
        store_evaluation(
            index,
            Evaluation(
                generation=generation,
                model_id=model_id,
                data="/home/somebody/flickr8k/captions.jsonl",
                split=split,
                images=6,
                texts=12,
                measured_at_s=1_700_000_000.0,
                figures={"two_stage": {"rsum": 400.0 + generation}},
                curve={"points": []} if generation == 2 else None,
            ),
        )
    async with service(index=index) as client:
        second, first = (await state_of(client))["evaluations"]
    assert second == {
        "generation": 2,
        "is_live": True,
        "measured_at": "2023-11-14T22:13:20Z",
        "data": "captions.jsonl",  # the folders above stay private
        "split": None,
        "images": 6,
        "texts": 12,
        "figures": {"two_stage": {"rsum": 402.0}},
        "curve": {"points": []},
    }
    assert (first["generation"], first["is_live"], first["split"]) == (1, False, "test")
    assert first["curve"] is None


def test_what_a_worker_found_can_travel_to_another_process(index: Path) -> None:
    with closing(WorkerPlan(index=index, settings=ServiceSettings()).make()) as worker:
        report = ReportIndex(offset=0, limit=2).run(worker)
    assert pickle.loads(pickle.dumps(report)) == report
    assert len(report.left_out["images"]) == 2


async def test_a_rollback_is_seen(service: Service, index: Path) -> None:
    rollback_index(index)
    async with service(index=index) as client:
        state = await state_of(client)
    assert state["generation"] == 1
    standings = {each["generation"]: each["standing"] for each in state["generations"]}
    assert standings == {2: "rolled back", 1: "live"}


async def test_a_generation_stays_rolled_back_when_a_newer_one_is_published(
    service: Service, index: Path
) -> None:
    rollback_index(index)
    first = read_manifest(generation_folder(index, 1))
    assert first.texts is not None
    publish_entries(index, first, {"texts": replace(first.texts, tuning=TUNING)}, "tune")
    async with service(index=index) as client:
        state = await state_of(client)
    standings = {each["generation"]: each["standing"] for each in state["generations"]}
    assert standings == {3: "live", 2: "rolled back", 1: "earlier"}


async def test_a_generation_that_was_refused_is_seen(service: Service, index: Path) -> None:
    async with service(index=index) as client:
        await client.delete("/v1/items/images/plain")
        compact_index(index, keep=2)
        (generation_folder(index, 3) / "images" / "tokens.npy").write_bytes(b"cut")
        state = await state_of(client)
    assert (state["generation"], state["live_since"]) == (2, None)
    standings = {each["generation"]: each["standing"] for each in state["generations"]}
    assert standings == {3: "refused", 2: "live", 1: "earlier"}


async def test_damage_is_told_and_the_rest_too(service: Service, index: Path) -> None:
    (generation_folder(index, 1) / "manifest.json").write_text("{}")
    async with service(index=index) as client:
        state = await state_of(client)
    assert [each["generation"] for each in state["generations"]] == [2]
    (damaged,) = state["damaged"]
    assert damaged["name"] == "generations/000001/manifest.json"
    assert str(index) not in json.dumps(state)


@pytest.mark.parametrize("content", [None, "", "[[1]]", "{", "5", "[" * 100_000])
async def test_a_list_of_what_was_left_out_that_is_damaged_is_named(
    service: Service, index: Path, content: str | None
) -> None:
    file = generation_folder(index, 2) / "images" / "left_out.json"
    async with service(index=index) as client:
        whole = await state_of(client)
        file.unlink()
        if content is not None:
            file.write_text(content)
        state = await state_of(client)
    (damaged,) = state.pop("damaged")
    assert damaged["name"] == "generations/000002/images/left_out.json"
    assert str(index) not in damaged["reason"]
    assert state["images"]["left_out"] == {**whole["images"]["left_out"], "items": []}
    assert state["texts"] == whole["texts"]
    assert state["generations"] == whole["generations"]


async def test_without_an_index_there_is_nothing_to_tell(service: Service, tmp_path: Path) -> None:
    async with service(index=tmp_path) as client:
        answer = await client.get("/v1/index/state")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "index_not_ready"


async def test_slow_queries_are_told_with_what_they_asked(service: Service) -> None:
    async with service() as client:
        headers = {"X-Request-ID": "mine"}
        body = {"text": "a red dog", "k": 2, "candidates": 3, "filter": {"number": 1}}
        await client.post("/v1/search/images", json=body, headers=headers)
        await client.post("/v1/search/texts", json={"id": "plain"})
        await client.post("/v1/search/texts", json={"id": "nowhere"})
        parts = {"all": [{"text": "a dog"}], "not": [{"text": "a car"}], "like": ["plain"]}
        assert (await client.post("/v1/search/images", json=parts)).status_code == 200
        batch = {"queries": [{"target": "images", "text": f"dog {n}"} for n in range(3)]}
        await client.post("/v1/search/batch", json=batch)
        answer = (await client.get("/v1/index/slow-queries")).json()
    queries = answer["queries"]
    totals = [query["total_ms"] for query in queries]
    assert totals == sorted(totals, reverse=True)
    told = {(query["kind"], query["asked"]): query for query in queries}
    assert len(queries) == len(told) == 7
    assert told["parts", "all a dog, not a car, like plain"]["status"] == 200
    dog = told["text", "a red dog"]
    assert (dog["target"], dog["k"], dog["candidates"], dog["filtered"]) == ("images", 2, 3, True)
    assert (dog["request_id"], dog["status"]) == ("mine", 200)
    stages = sum(dog["took_ms"][stage] for stage in ("decode", "encode", "retrieve", "rerank"))
    assert 0 < stages + dog["queue_ms"] <= dog["total_ms"] == dog["took_ms"]["total"]
    assert told["item", "nowhere"]["status"] == 404
    assert told["item", "nowhere"]["took_ms"] is None
    assert told["item", "plain"]["target"] == "texts"
    assert answer["limit"] == 20


async def test_as_many_are_kept_as_the_setting_says(service: Service) -> None:
    for limit in (2, 0):
        async with service(slow_queries=limit) as client:
            for number in range(4):
                await client.post("/v1/search/images", json={"text": f"dog {number}"})
            answer = (await client.get("/v1/index/slow-queries")).json()
        assert (answer["limit"], len(answer["queries"])) == (limit, limit)


async def test_a_query_whose_client_hung_up_is_kept(workers: WaitingWorkers) -> None:
    service = state_with(workers)
    waiting = asyncio.create_task(
        run_search(service, TextQuery("a slow dog"), "images", SearchOptions())
    )
    await workers.asked.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    (query,) = service.slow_queries.slowest()
    assert (query.asked, query.status, query.took_ms) == ("a slow dog", 499, None)


async def test_a_query_that_was_not_let_in_is_not_slow(workers: WaitingWorkers) -> None:
    service = state_with(workers)
    workers.error = OverloadedError(1.0)
    with pytest.raises(OverloadedError):
        await run_search(service, TextQuery("a dog"), "images", SearchOptions())
    assert service.slow_queries.slowest() == []


async def test_what_others_asked_is_told_to_keys_for_the_metrics_alone(
    service: Service, tmp_path: Path
) -> None:
    keys_file = tmp_path / "keys.json"
    keys: dict[str, str] = {scope: add_key(keys_file, scope, [scope]) for scope in SCOPES}
    async with service(keys_file=keys_file) as client:
        statuses = {
            path: {
                scope: (await client.get(path, headers={"X-API-Key": key})).status_code
                for scope, key in keys.items()
            }
            for path in ("/v1/index/state", "/v1/index/slow-queries")
        }
        nobody = await client.get("/v1/index/slow-queries")
    assert statuses["/v1/index/state"] == {"read": 200, "write": 403, "metrics": 403}
    assert statuses["/v1/index/slow-queries"] == {"read": 403, "write": 403, "metrics": 200}
    assert nobody.status_code == 401


async def test_no_path_of_this_machine_is_told(service: Service, index: Path) -> None:
    """Neither of what a build writes now nor of what one has written before."""
    async with service(index=index) as client:
        state = await state_of(client)
    reasons = [item["reason"] for item in state["images"]["left_out"]["items"]]
    assert [reason.split(": ")[0] for reason in reasons] == [f"broken-{n}.png" for n in range(3)]
    assert all("not an image of a known format" in reason for reason in reasons)
    file = generation_folder(index, 2) / "images" / "left_out.json"
    written = [["broken 0", "/home/me/up: loads/broken-0.png: not an image (JPEG)"]]
    text = json.dumps(written).ljust(file.stat().st_size)  # of the length that the manifest has
    file.unlink()  # it may be another generation's, too
    file.write_text(text)
    async with service(index=index) as client:
        items = (await state_of(client))["images"]["left_out"]["items"]
    assert items == [{"id": "broken 0", "reason": "not an image (JPEG)"}]
