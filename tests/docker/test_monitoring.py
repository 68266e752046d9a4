"""The dashboard and the alarms ask only for what the service tells, and for all of it."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from aladin_index.engines.guard import EngineCall
from aladin_index.format.manifest import AnnEntry, CollectionEntry, Manifest, ModelEntry
from aladin_index.generations.info import describe_manifest
from aladin_index.search.results import TookMs
from aladin_network.files import FileEntry
from aladin_service.http.access.control import NEEDED
from aladin_service.http.state_metrics import StateNow, render_state
from aladin_service.observe.metrics import REJECTIONS, Metrics
from aladin_service.search.job import Answered, QueueName
from aladin_service.work.health import WorkersHealth

DOCKER = Path(__file__).parents[2] / "docker"
DASHBOARD = DOCKER / "grafana" / "dashboards" / "aladin.json"
ALERTS = DOCKER / "prometheus" / "alerts.yml"

# What Prometheus itself adds to every sample, and the one series that it makes of every target.
ADDED_LABELS = {"instance", "job"}
ADDED_SERIES = {"up"}

Values = dict[str, set[str]]


class Asked(NamedTuple):
    """One query of the dashboard or of the alarms."""

    where: str
    query: str
    legend: str


def exposed() -> dict[str, Values]:
    """Return the values of each label of each series of a service to which all has happened."""
    metrics = Metrics()
    took_ms = TookMs(decode=1, encode=1, retrieve=1, rerank=1, total=4)
    for lane in get_args(QueueName):
        metrics.answered(lane, Answered(b"", 1, ("rerank_timeout",), took_ms, True))
    for reason in REJECTIONS:
        metrics.rejected(reason)
    metrics.request("GET", "/v1/index", 200, 0.1)
    metrics.engine_call(EngineCall("search", 0.1, None))
    entry = FileEntry(bytes=1, sha256="")
    collection = CollectionEntry(
        count=1,
        skipped=0,
        embedding_dim=1,
        token_dim=1,
        token_count=1,
        token_dtype="float16",
        ann=AnnEntry(factory="Flat", search_width=None, recall=1, recall_at=1, recall_queries=1),
    )
    manifest = Manifest(
        schema_version=1,
        generation=1,
        metric="inner_product",
        default_candidates=1,
        fingerprint="",
        made_by="build",
        replaces=None,
        model=ModelEntry(id="", files={"model.safetensors": entry}),
        images=collection,
        texts=collection,
        files={"images/tokens.npy": entry, "texts/tokens.npy": entry},
    )
    now = StateNow(
        ready=True,
        workers=WorkersHealth(wanted=1, alive=1, generation=1, engine="up"),
        max_waiting=1,
        live=describe_manifest(Path("/nowhere"), manifest, {"images": 1, "texts": 1}),
    )
    found: dict[str, Values] = {}
    text = (metrics.render() + render_state(now)).decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values = found.setdefault(sample.name, defaultdict(set))
            for label, value in sample.labels.items():
                values[label].add(value)
    return found


EXPOSED = exposed()


def panels() -> list[dict[str, Any]]:
    """Return the dashboard's panels without the headings of its rows."""
    all_panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [panel for panel in all_panels if panel["type"] != "row"]


def asked() -> Iterator[Asked]:
    """Return every query that somebody wrote."""
    for panel in panels():
        for target in panel["targets"]:
            yield Asked(panel["title"], target["expr"], target["legendFormat"])
    for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            yield Asked(rule["alert"], rule["expr"], rule["annotations"]["summary"])


def parse(query: str) -> Any:
    """Parse a query, with a length of time where Grafana puts one."""
    return promql_parser.parse(query.replace("$__rate_interval", "5m"))


def nodes(node: Any) -> Iterator[Any]:
    """Return a query's node and all below it."""
    yield node
    named = (getattr(node, name, None) for name in ("lhs", "rhs", "expr", "vector_selector"))
    for below in (*named, *getattr(node, "args", [])):
        if below is not None:
            yield from nodes(below)


def selectors(query: str) -> list[Any]:
    """Return the series that a query selects."""
    found = [node for node in nodes(parse(query)) if isinstance(node, promql_parser.VectorSelector)]
    assert found
    return found


@pytest.mark.parametrize("one", [pytest.param(each, id=each.where) for each in asked()])
def test_a_query_asks_for_series_labels_and_values_that_there_are(one: Asked) -> None:
    routes = [row.path for row in NEEDED]
    for selector in selectors(one.query):
        assert selector.name in EXPOSED.keys() | ADDED_SERIES
        labels = EXPOSED.get(selector.name, {})
        for matcher in selector.matchers.matchers:
            assert matcher.name in labels.keys() | ADDED_LABELS
            if matcher.name == "route":
                for pattern in matcher.value.split("|"):
                    assert any(re.fullmatch(pattern, route) for route in routes)
            elif matcher.op in (promql_parser.MatchOp.Equal, promql_parser.MatchOp.NotEqual):
                known = {"aladin"} if matcher.name == "job" else labels[matcher.name]
                assert matcher.value in known
    series = [EXPOSED.get(selector.name, {}) for selector in selectors(one.query)]
    known = ADDED_LABELS.union(*series)
    for node in nodes(parse(one.query)):
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            assert set(node.modifier.labels) <= known
    shown = set(re.findall(r"{{\s*(?:\$labels\.)?(\w+)\s*}}", one.legend))
    assert shown <= known


def test_all_that_is_exposed_is_shown_or_watched() -> None:
    used = {selector.name for one in asked() for selector in selectors(one.query)}
    families = {re.sub("_(bucket|sum|count)$", "", name) for name in used}
    own = {name for name in EXPOSED if name.startswith("aladin_")}
    unused = {name for name in own if re.sub("_(bucket|sum|count)$", "", name) not in families}
    assert unused == set()


def test_panels_ask_the_provisioned_source() -> None:
    file = DOCKER / "grafana" / "provisioning" / "datasources" / "prometheus.yml"
    (source,) = yaml.safe_load(file.read_text(encoding="utf-8"))["datasources"]
    assert {panel["datasource"]["uid"] for panel in panels()} == {source["uid"]}
    ids = [panel["id"] for panel in panels()]
    assert len(set(ids)) == len(ids)
