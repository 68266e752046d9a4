"""The compose files, alone and on top of each other: what every container may do, and what fits.

compose.yaml starts one service, compose.milvus.yaml replicas before Milvus.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer.main
import yaml

from aladin_index.format.layout import EngineLocation
from aladin_service.cli import app
from aladin_service.http.access.policy import make_policy
from aladin_service.http.connections import trusted_proxies
from aladin_service.settings import ServiceSettings

Tree = dict[str, Any]
Compose = Callable[..., Tree]
ONE, MILVUS = "compose.yaml", "compose.milvus.yaml"
PINNED = re.compile(r"^[a-z0-9./_-]+:v?\d+\.\d+\.\d+@sha256:[0-9a-f]{64}$")
# Pinned by their exact tags: their digests could not be checked where these were raised.
BY_TAG = ("milvusdb/milvus:v2.5.27",)
# Releases without the vulnerabilities that were published of those pinned before:
# CVE-2026-26190 of Milvus, CVE-2026-21720 and CVE-2026-21727 of Grafana.
SOUND = {"milvusdb/milvus": (2, 5, 27), "grafana/grafana": (12, 4, 0)}
# Our containers and those of others.
OURS = {ONE: ("service", "index"), MILVUS: ("service", "index", "push")}
OTHERS = {ONE: ("prometheus", "grafana"), MILVUS: ("balancer", "engine", "prometheus", "grafana")}

both = pytest.mark.parametrize("file", [ONE, MILVUS])
every_container = pytest.mark.parametrize(
    ("file", "name"), [(file, name) for file in OURS for name in (*OURS[file], *OTHERS[file])]
)
every_command = pytest.mark.parametrize(
    ("file", "name"), [(file, name) for file in OURS for name in OURS[file]]
)


@pytest.fixture
def one(compose: Compose) -> dict[str, Tree]:
    """The services of compose.yaml."""
    return compose(ONE)["services"]


@pytest.fixture
def milvus(compose: Compose) -> dict[str, Tree]:
    """The services of compose.milvus.yaml."""
    return compose(MILVUS)["services"]


def mounts(service: Tree) -> dict[str, tuple[str, bool]]:
    """Return what is mounted where in a container, and whether it can be written."""
    parts = [volume.split(":") for volume in service.get("volumes", [])]
    return {target: (source, mode != ["ro"]) for source, target, *mode in parts}


def options(service: Tree) -> dict[str, str]:
    """Return the options of a command of ours and their values."""
    words: list[str] = service["command"]
    pairs = zip(words, [*words[1:], ""], strict=True)
    return {word: value for word, value in pairs if word.startswith("--")}


def settings_of(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> ServiceSettings:
    """Read the settings that a compose file gives; each has to be one."""
    for name, value in tree["services"]["service"]["environment"].items():
        if name.startswith("ALADIN_"):
            assert name.removeprefix("ALADIN_").lower() in ServiceSettings.model_fields, name
            monkeypatch.setenv(name, str(value))
    return ServiceSettings()


@both
def test_there_are_these_services_and_few_ways_in(compose: Compose, file: str) -> None:
    services = compose(file)["services"]
    assert set(services) == {*OURS[file], *OTHERS[file]}
    profiles = [name for name, each in services.items() if each.get("profiles")]
    assert profiles == ["prometheus", "grafana"]
    published = {name: each["ports"] for name, each in services.items() if "ports" in each}
    way_in = "service" if file == ONE else "balancer"
    assert set(published) == {way_in, "prometheus", "grafana"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)


@every_container
def test_a_container_can_do_little(compose: Compose, file: str, name: str) -> None:
    service = compose(file)["services"][name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    assert service["pids_limit"] > 0
    assert service["restart"] in ("unless-stopped", "on-failure:3")
    denied = {"privileged", "cap_add", "devices"} | ({"user"} if file == ONE else set())
    assert not denied & set(service)
    # Milvus writes beside its volume.
    assert service.get("read_only", False) is (name != "engine")


@every_container
def test_an_image_is_ours_or_a_pinned_sound_release(compose: Compose, file: str, name: str) -> None:
    service = compose(file)["services"][name]
    image = service["image"]
    if name in OURS[file]:
        # Of the image without a training framework.
        assert re.fullmatch(r"aladin-search:\d+\.\d+\.\d+-serve", image)
        assert service.get("build", {"args": {"EXTRA": "serve"}})["args"] == {"EXTRA": "serve"}
        return
    assert PINNED.match(image) or image in BY_TAG, image
    of, _, tag = image.split("@")[0].rpartition(":")
    found = tuple(int(part) for part in tag.removeprefix("v").split("."))
    assert found >= SOUND.get(of, (0,)), image


def test_photos_and_models_cannot_be_written(one: dict[str, Tree]) -> None:
    written = {
        name: sorted(target for target, (_, may_write) in mounts(service).items() if may_write)
        for name, service in one.items()
    }
    assert written == {
        "service": ["/index"],
        "index": ["/demo", "/index"],
        "prometheus": ["/prometheus"],
        "grafana": ["/var/lib/grafana"],
    }


def test_the_service_sees_the_photos_where_the_job_indexed_them(one: dict[str, Tree]) -> None:
    def places(name: str) -> set[tuple[str, str]]:
        return {(source, target) for target, (source, _) in mounts(one[name]).items()}

    assert places("index") - places("service") == {("no-model", "/model")}
    assert places("service") <= places("index")


@both
def test_mounts_and_build_contexts_exist(compose: Compose, docker: Path, file: str) -> None:
    tree = compose(file)
    sources = {source for each in tree["services"].values() for source, _ in mounts(each).values()}
    named = {source for source in sources if not source.startswith(".")}
    assert named <= set(tree["volumes"])
    assert file == ONE or named == set(tree["volumes"])
    assert all((docker / source).is_dir() for source in sources - named)
    for service in tree["services"].values():
        if "build" in service:
            context = docker / service["build"]["context"]
            assert (context / service["build"]["dockerfile"]).is_file()


def test_a_compose_file_declares_the_secrets_that_it_hands_out(
    compose: Compose, docker: Path
) -> None:
    for file in docker.glob("compose*.yaml"):
        tree = compose(file.name)
        used = {name for each in tree["services"].values() for name in each.get("secrets", [])}
        assert used == set(tree.get("secrets", {}))


def test_the_example_of_settings_has_every_variable_with_its_value(
    docker: Path, variables: Callable[[str], dict[str, str]]
) -> None:
    used = variables("".join(file.read_text("utf-8") for file in docker.glob("compose*.yaml")))
    example = (docker / ".env.example").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^#([A-Z_]+)=(.*)$", example, re.MULTILINE))
    assert set(shown) == set(used)
    # Those without a value of their own show what one looks like.
    free = {"PHOTOS", "SOURCE", "MODEL", "ALLOWED_HOSTS", "ENGINE_PASSWORD"}
    assert {name: shown[name] for name in shown.keys() - free} == {
        name: used[name] for name in used.keys() - free
    }


@both
def test_without_keys_everybody_reads_and_with_keys_nobody_is_anonymous(
    compose: Compose, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    tree = compose(file)
    settings = settings_of(tree, monkeypatch)
    policy = make_policy(settings, "0.0.0.0")
    assert policy.anonymous == {"read", "metrics"}
    grace_s = int(tree["services"]["service"]["stop_grace_period"].removesuffix("s"))
    assert grace_s > settings.shutdown_s  # it has longer to stop than it takes
    keyed = compose(file, "compose.keys.yaml")
    settings = settings_of(keyed, monkeypatch)
    assert settings.allow_anonymous is False
    assert settings.keys_file == Path("/run/secrets") / keyed["services"]["service"]["secrets"][0]


@every_command
@pytest.mark.parametrize("on_top", [(), ("compose.gpu.yaml",)])
def test_commands_are_of_the_command_line_and_see_their_volumes(
    compose: Compose, file: str, name: str, on_top: tuple[str, ...]
) -> None:
    service = compose(file, *on_top)["services"][name]
    command: Any = typer.main.get_command(app)
    words = list(service["command"])
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    assert set(options(service)) <= known
    assert ("--wait" in words) == (name == "service")  # it may start before there is an index
    named = {f"/{word.split('/')[1]}" for word in words if word.startswith("/")}
    assert named <= set(mounts(service))


@both
def test_the_gpu_changes_the_image_and_the_device_alone(compose: Compose, file: str) -> None:
    base, gpu = compose(file)["services"], compose(file, "compose.gpu.yaml")["services"]
    for name in OURS[ONE]:
        assert gpu[name]["command"] == [*base[name]["command"], "--device", "auto"]
        assert gpu[name]["image"] == f"{base[name]['image'].rpartition('-')[0]}-gpu"
        assert gpu[name]["build"]["args"] == {"EXTRA": "gpu"}
        (device,) = gpu[name]["deploy"]["resources"]["reservations"]["devices"]
        assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}


@pytest.mark.parametrize("keys", [False, True])
def test_prometheus_reads_the_service_by_a_name_that_the_service_knows(
    compose: Compose, docker: Path, monkeypatch: pytest.MonkeyPatch, keys: bool
) -> None:
    tree = compose(ONE, *(["compose.keys.yaml"] if keys else []))
    prometheus = tree["services"]["prometheus"]
    (option,) = [each for each in prometheus["command"] if each.startswith("--config.file=")]
    file = docker / "prometheus" / Path(option.split("=")[1]).name
    config = yaml.safe_load(file.read_text(encoding="utf-8"))
    (job,) = config["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    (host,) = found["names"]
    assert (job["job_name"], found["type"]) == ("aladin", "A")  # each container, by one name
    assert host in settings_of(tree, monkeypatch).allowed_hosts
    for each in (ONE, MILVUS):
        assert str(found["port"]) in compose(each)["services"][host]["command"]
    assert [(file.parent / rules).name for rules in config["rule_files"]] == ["alerts.yml"]
    assert (file.parent / "alerts.yml").is_file()
    assert ("authorization" in job) == keys
    if keys:
        (secret,) = prometheus["secrets"]
        assert job["authorization"]["credentials_file"] == f"/run/secrets/{secret}"


def test_grafana_asks_for_a_password_and_finds_its_dashboards_and_source(
    one: dict[str, Tree], docker: Path
) -> None:
    grafana, provisioning = one["grafana"], docker / "grafana" / "provisioning"
    assert grafana["environment"]["GF_AUTH_ANONYMOUS_ENABLED"] == "false"
    (secret,) = grafana["secrets"]
    assert grafana["environment"]["GF_SECURITY_ADMIN_PASSWORD__FILE"] == f"/run/secrets/{secret}"
    (file,) = (provisioning / "dashboards").glob("*.yml")
    (provider,) = yaml.safe_load(file.read_text(encoding="utf-8"))["providers"]
    folder, _ = mounts(grafana)[provider["options"]["path"]]
    assert list((docker / folder).glob("*.json"))
    sources = (provisioning / "datasources" / "prometheus.yml").read_text(encoding="utf-8")
    (source,) = yaml.safe_load(sources)["datasources"]
    assert urlsplit(source["url"]).hostname in one


def test_the_engine_is_reached_by_our_containers_alone(compose: Compose) -> None:
    tree = compose(MILVUS)
    members: dict[str, set[str]] = {}
    for name, service in tree["services"].items():
        if "network_mode" not in service:
            for network in service.get("networks", ["default"]):
                members.setdefault(network, set()).add(name)
    assert members == {
        "engine": {"engine", "service", "push"},
        "default": {"balancer", "service", "prometheus", "grafana"},
    }
    # Without a way out, and without one in.
    assert tree["networks"] == {"engine": {"internal": True}}


def test_the_engine_has_the_name_and_the_password_that_the_service_uses(
    milvus: dict[str, Tree], docker: Path
) -> None:
    environment = milvus["engine"]["environment"]
    token = milvus["service"]["environment"]["ALADIN_ENGINE_TOKEN"]
    assert milvus["push"]["environment"]["ALADIN_ENGINE_TOKEN"] == token
    assert environment["COMMON_SECURITY_AUTHORIZATIONENABLED"] == "true"
    assert token == f"root:{environment['COMMON_SECURITY_DEFAULTROOTPASSWORD']}"
    assert token.endswith("engine-secret")
    uses = re.findall(r"\$\{ENGINE_PASSWORD([^}]*)\}", (docker / MILVUS).read_text("utf-8"))
    assert uses and all(use.startswith(":?") for use in uses)  # nothing starts without one
    given = options(milvus["push"])
    EngineLocation(url=given["--url"], name=given["--name"])
    assert urlsplit(given["--url"]).hostname == "engine"
    assert "milvus" in milvus["engine"]["image"]
    # What it keeps outlives its container.
    assert any(may_write for _, may_write in mounts(milvus["engine"]).values())
    assert milvus["engine"]["healthcheck"]["test"][0] == "CMD"


def test_the_built_index_is_pushed_and_the_pushed_one_is_served(milvus: dict[str, Tree]) -> None:
    built, pushed, served = (milvus[name] for name in ("index", "push", "service"))
    assert built["command"][:2] == ["prepare", "/index"]
    assert pushed["command"][:3] == ["index", "push", "/index"]
    assert served["command"][:2] == ["serve", "/index"]
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
    milvus: dict[str, Tree], docker: Path
) -> None:
    dockerfile = (docker / "Dockerfile").read_text(encoding="utf-8")
    found = re.search(r"--owner aladin --group aladin ([/a-z ]+)", dockerfile)
    assert found is not None
    written = {
        target
        for name in OURS[MILVUS]
        for target, (source, may_write) in mounts(milvus[name]).items()
        if may_write and not source.startswith(".")
    }
    assert written <= set(found[1].split())


def test_the_balancer_finds_three_replicas_that_trust_it_and_count_its_rate(
    compose: Compose, docker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = compose(MILVUS)
    services, balancer = tree["services"], tree["services"]["balancer"]
    ((folder, _),) = mounts(balancer).values()
    text = (docker / folder / "haproxy.cfg").read_text(encoding="utf-8")
    found = re.search(r"^ +server-template replica (\d+) (\w+):(\d+)$", text, re.MULTILINE)
    bound = re.search(r"^ +bind :(\d+)$", text, re.MULTILINE)
    assert found is not None and bound is not None
    most, name, port = found.groups()
    assert (name, port) == ("service", options(services["service"])["--port"])
    assert int(most) >= services[name]["deploy"]["replicas"] == 3
    assert balancer["ports"][0].split(":")[-1] == bound[1]
    # The balancer's address is known only to be of a private network.
    proxies = trusted_proxies(services["service"]["environment"])
    for address in ("10.0.0.2", "172.18.0.2", "192.168.16.2"):
        assert any(ipaddress.ip_address(address) in network for network in proxies)
    policy = make_policy(settings_of(tree, monkeypatch), "0.0.0.0")
    rate = balancer["environment"]["CLIENT_REQUESTS_PER_S"]
    assert policy.clients is not None
    assert policy.clients.of("10.0.0.1").per_s == float(rate) == 50
