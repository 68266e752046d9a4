"""Replicas before Milvus in compose: the parts find each other and may do little."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer.main

from aladin_index.format.layout import EngineLocation
from aladin_service.cli import app
from aladin_service.http.access.policy import make_policy
from aladin_service.http.connections import trusted_proxies
from aladin_service.settings import ServiceSettings

Tree = dict[str, Any]
Compose = Callable[..., Tree]

PINNED = re.compile(r"^[a-z0-9./_-]+:v?\d+\.\d+\.\d+@sha256:[0-9a-f]{64}$")
# Pinned by their exact tags: their digests could not be checked where these were raised.
BY_TAG = ("milvusdb/milvus:v2.5.27",)
OURS = ("service", "index", "push")
OTHERS = ("balancer", "engine", "prometheus", "grafana")


@pytest.fixture(scope="module")
def services(compose: Compose) -> dict[str, Tree]:
    """The services of compose.milvus.yaml."""
    return compose("compose.milvus.yaml")["services"]


def mounts(service: Tree) -> dict[str, tuple[str, bool]]:
    """Return what is mounted where in a container, and whether it can be written."""
    parts = [volume.split(":") for volume in service.get("volumes", [])]
    return {target: (source, mode != ["ro"]) for source, target, *mode in parts}


def options(service: Tree) -> dict[str, str]:
    """Return the options of a command of ours and their values."""
    words: list[str] = service["command"]
    return {
        word: value
        for word, value in zip(words, [*words[1:], ""], strict=True)
        if word.startswith("--")
    }


def settings_of(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> ServiceSettings:
    """Read the settings that a replica is given; each has to be one."""
    for name, value in tree["services"]["service"]["environment"].items():
        if name.startswith("ALADIN_"):
            assert name.removeprefix("ALADIN_").lower() in ServiceSettings.model_fields, name
            monkeypatch.setenv(name, str(value))
    # The balancer's address is known only to be of a private network.
    proxies = trusted_proxies(tree["services"]["service"]["environment"])
    for address in ("10.0.0.2", "172.18.0.2", "192.168.16.2"):
        assert any(ipaddress.ip_address(address) in network for network in proxies)
    return ServiceSettings()


def test_there_are_three_replicas_and_one_way_in(services: dict[str, Tree]) -> None:
    assert set(services) == {*OURS, *OTHERS}
    assert services["service"]["deploy"]["replicas"] == 3
    published = {name: each["ports"] for name, each in services.items() if "ports" in each}
    assert set(published) == {"balancer", "prometheus", "grafana"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)


@pytest.mark.parametrize("name", [*OURS, *OTHERS])
def test_a_container_can_do_little(services: dict[str, Tree], name: str) -> None:
    service = services[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    assert service["pids_limit"] > 0
    assert service["restart"] in ("unless-stopped", "on-failure:3")
    assert not {"privileged", "cap_add", "devices"} & set(service)
    # Milvus writes beside its volume.
    assert service.get("read_only", False) is (name != "engine")


def test_images_of_others_are_pinned_exactly(compose: Compose) -> None:
    for name, service in compose("compose.milvus.yaml")["services"].items():
        if name in OURS:
            assert re.fullmatch(r"aladin-search:\d+\.\d+\.\d+-serve", service["image"])
        else:
            image = service["image"]
            assert PINNED.match(image) or image in BY_TAG, image


# Releases without the vulnerabilities that were published of those pinned before:
# CVE-2026-26190 of Milvus, CVE-2026-21720 and CVE-2026-21727 of Grafana.
SOUND = {"milvusdb/milvus": (2, 5, 27), "grafana/grafana": (12, 4, 0)}


def test_images_are_not_of_releases_with_published_vulnerabilities(
    services: dict[str, Tree],
) -> None:
    found: dict[str, tuple[int, ...]] = {}
    for service in services.values():
        name, _, tag = service["image"].split("@")[0].rpartition(":")
        if name in SOUND:
            found[name] = tuple(int(part) for part in tag.removeprefix("v").split("."))
    assert found.keys() == SOUND.keys()
    for name, version in found.items():
        assert version >= SOUND[name], (name, version)


def test_the_engine_is_reached_by_our_containers_alone(compose: Compose) -> None:
    tree = compose("compose.milvus.yaml")
    members: dict[str, set[str]] = {}
    for name, service in tree["services"].items():
        if "network_mode" in service:
            continue
        for network in service.get("networks", ["default"]):
            members.setdefault(network, set()).add(name)
    assert members == {
        "engine": {"engine", "service", "push"},
        "default": {"balancer", "service", "prometheus", "grafana"},
    }
    # Without a way out, and without one in.
    assert tree["networks"] == {"engine": {"internal": True}}


def test_the_engine_asks_for_the_password_that_the_service_has(compose: Compose) -> None:
    services = compose("compose.milvus.yaml")["services"]
    environment = services["engine"]["environment"]
    token = services["service"]["environment"]["ALADIN_ENGINE_TOKEN"]
    assert services["push"]["environment"]["ALADIN_ENGINE_TOKEN"] == token
    assert environment["COMMON_SECURITY_AUTHORIZATIONENABLED"] == "true"
    assert token == f"root:{environment['COMMON_SECURITY_DEFAULTROOTPASSWORD']}"
    assert token.endswith("engine-secret")


def test_nothing_starts_without_a_password(docker: Path) -> None:
    text = (docker / "compose.milvus.yaml").read_text(encoding="utf-8")
    uses = re.findall(r"\$\{ENGINE_PASSWORD([^}]*)\}", text)
    assert uses
    assert all(use.startswith(":?") for use in uses)


def test_what_is_mounted_is_there(compose: Compose, docker: Path) -> None:
    tree = compose("compose.milvus.yaml")
    sources = {source for each in tree["services"].values() for source, _ in mounts(each).values()}
    named = {source for source in sources if not source.startswith(".")}
    assert named == set(tree["volumes"])
    assert all((docker / source).is_dir() for source in sources - named)


def test_commands_are_of_the_command_line(services: dict[str, Tree]) -> None:
    for name in OURS:
        command: Any = typer.main.get_command(app)
        words = list(services[name]["command"])
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(options(services[name])) <= known, name


def test_what_is_built_is_pushed_and_what_is_pushed_is_served(services: dict[str, Tree]) -> None:
    built, pushed, served = (services[name] for name in ("index", "push", "service"))
    assert built["command"][:2] == ["prepare", "/index"]
    assert pushed["command"][:3] == ["index", "push", "/index"]
    assert served["command"][:2] == ["serve", "/index"]
    assert "--wait" in served["command"]  # the replicas start before the first push
    assert mounts(pushed)["/index"] == (mounts(built)["/index"][0], False)
    folder = options(pushed)["--out"]
    assert mounts(pushed)[folder] == mounts(served)["/index"]
    assert mounts(pushed)[folder][1]
    # Photos are shown from where the job found them.
    assert mounts(served)["/photos"] == mounts(built)["/photos"]
    assert mounts(served)["/demo"][0] == mounts(built)["/demo"][0]
    assert pushed["depends_on"]["index"] == {"condition": "service_completed_successfully"}
    assert pushed["depends_on"]["engine"] == {"condition": "service_healthy"}


def test_a_new_volume_is_its_users_wherever_it_is_first_mounted(
    services: dict[str, Tree], docker: Path
) -> None:
    dockerfile = (docker / "Dockerfile").read_text(encoding="utf-8")
    found = re.search(r"--owner aladin --group aladin ([/a-z ]+)", dockerfile)
    assert found is not None
    written = {
        target
        for name in OURS
        for target, (source, may_write) in mounts(services[name]).items()
        if may_write and not source.startswith(".")
    }
    assert written <= set(found[1].split())


def test_the_engine_is_found_by_its_name(compose: Compose) -> None:
    services = compose("compose.milvus.yaml")["services"]
    given = options(services["push"])
    EngineLocation(url=given["--url"], name=given["--name"])
    address = urlsplit(given["--url"])
    assert address.hostname == "engine"
    assert "milvus" in services["engine"]["image"]
    # What it keeps outlives its container.
    assert any(may_write for _, may_write in mounts(services["engine"]).values())
    assert services["engine"]["healthcheck"]["test"][0] == "CMD"


def test_the_balancer_and_each_replica_count_the_same_rate(
    compose: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = compose("compose.milvus.yaml")
    policy = make_policy(settings_of(tree, monkeypatch), "0.0.0.0")
    rate = tree["services"]["balancer"]["environment"]["CLIENT_REQUESTS_PER_S"]
    assert policy.clients is not None
    assert policy.clients.of("10.0.0.1").per_s == float(rate) == 50
    assert policy.anonymous == {"read", "metrics"}


def test_with_keys_nobody_is_anonymous(compose: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = compose("compose.milvus.yaml", "compose.keys.yaml")
    settings = settings_of(tree, monkeypatch)
    assert settings.allow_anonymous is False
    assert settings.keys_file == Path("/run/secrets") / tree["services"]["service"]["secrets"][0]


def test_with_a_card_the_same_folder_is_served(compose: Compose) -> None:
    tree = compose("compose.milvus.yaml", "compose.gpu.yaml")["services"]
    base = compose("compose.milvus.yaml")["services"]
    for name in ("service", "index"):
        assert tree[name]["command"] == [*base[name]["command"], "--device", "auto"]


def test_a_replica_has_longer_to_stop_than_it_takes(
    compose: Compose, services: dict[str, Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    grace_s = int(services["service"]["stop_grace_period"].removesuffix("s"))
    assert grace_s > settings_of(compose("compose.milvus.yaml"), monkeypatch).shutdown_s


def test_the_balancer_finds_the_replicas(services: dict[str, Tree], docker: Path) -> None:
    balancer = services["balancer"]
    ((folder, _),) = mounts(balancer).values()
    text = (docker / folder / "haproxy.cfg").read_text(encoding="utf-8")
    found = re.search(r"^ +server-template replica (\d+) (\w+):(\d+)$", text, re.MULTILINE)
    assert found is not None
    most, name, port = found.groups()
    assert name == "service"
    assert port == options(services[name])["--port"]
    assert int(most) >= services[name]["deploy"]["replicas"]
    bound = re.search(r"^ +bind :(\d+)$", text, re.MULTILINE)
    assert bound is not None
    assert balancer["ports"][0].split(":")[-1] == bound[1]
