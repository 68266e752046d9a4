"""The compose files, alone and on top of each other: what every container may do, and what fits.

compose.yaml starts one service, compose.milvus.yaml replicas before Milvus.
"""

from __future__ import annotations

import ipaddress
import re
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
from tests.docker.compose_files import DOCKER, VARIABLE, Tree, compose

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

SERVICES, REPLICATED = compose(ONE)["services"], compose(MILVUS)["services"]

both = pytest.mark.parametrize("file", [ONE, MILVUS])


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
def test_services_and_ways_in(file: str) -> None:
    tree = compose(file)
    services = tree["services"]
    assert set(services) == {*OURS[file], *OTHERS[file]}
    profiles = [name for name, each in services.items() if each.get("profiles")]
    assert profiles == ["prometheus", "grafana"]
    published = {name: each["ports"] for name, each in services.items() if "ports" in each}
    assert set(published) == {"service" if file == ONE else "balancer", "prometheus", "grafana"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)
    # Mounts and build contexts exist.
    sources = {source for each in services.values() for source, _ in mounts(each).values()}
    named = {source for source in sources if not source.startswith(".")}
    assert named <= set(tree["volumes"])
    assert file == ONE or named == set(tree["volumes"])
    assert all((DOCKER / source).is_dir() for source in sources - named)
    for service in services.values():
        if "build" in service:
            context = DOCKER / service["build"]["context"]
            assert (context / service["build"]["dockerfile"]).is_file()


@both
def test_a_container_can_do_little_and_its_image_is_ours_or_a_pinned_sound_release(
    file: str,
) -> None:
    for name, service in compose(file)["services"].items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["mem_limit"] and service["pids_limit"] > 0, name
        assert service["restart"] in ("unless-stopped", "on-failure:3"), name
        denied = {"privileged", "cap_add", "devices"} | ({"user"} if file == ONE else set())
        assert not denied & set(service), name
        # Milvus writes beside its volume.
        assert service.get("read_only", False) is (name != "engine"), name
        image = service["image"]
        if name in OURS[file]:  # of the image without a training framework
            assert re.fullmatch(r"aladin-search:\d+\.\d+\.\d+-serve", image)
            assert service.get("build", {"args": {"KIND": "serve"}})["args"] == {"KIND": "serve"}
            continue
        assert PINNED.match(image) or image in BY_TAG, image
        of, _, tag = image.split("@")[0].rpartition(":")
        found = tuple(int(part) for part in tag.removeprefix("v").split("."))
        assert found >= SOUND.get(of, (0,)), image


def test_photos_and_models_cannot_be_written_and_are_where_they_were_indexed() -> None:
    written = {
        name: sorted(target for target, (_, may_write) in mounts(service).items() if may_write)
        for name, service in SERVICES.items()
    }
    assert written == {
        "service": ["/index"],
        "index": ["/demo", "/index"],
        "prometheus": ["/prometheus"],
        "grafana": ["/var/lib/grafana"],
    }
    indexed, served = (
        {(source, target) for target, (source, _) in mounts(SERVICES[name]).items()}
        for name in ("index", "service")
    )
    assert indexed - served == {("no-model", "/model")} and served <= indexed


def test_the_example_of_settings_has_every_variable_with_its_value() -> None:
    text = "".join(file.read_text("utf-8") for file in DOCKER.glob("compose*.yaml"))
    used = dict(VARIABLE.findall(text))
    example = (DOCKER / ".env.example").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^#([A-Z_]+)=(.*)$", example, re.MULTILINE))
    # Those without a value of their own show what one looks like.
    free = {"PHOTOS", "SOURCE", "MODEL", "ALLOWED_HOSTS", "ENGINE_PASSWORD"}
    assert shown == used | {name: shown[name] for name in free}


@both
def test_without_keys_everybody_reads_and_with_keys_nobody_is_anonymous(
    monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    tree = compose(file)
    settings = settings_of(tree, monkeypatch)
    assert make_policy(settings, "0.0.0.0").anonymous == {"read", "metrics"}
    grace_s = int(tree["services"]["service"]["stop_grace_period"].removesuffix("s"))
    assert grace_s > settings.shutdown_s  # it has longer to stop than it takes
    keyed = compose(file, "compose.keys.yaml")
    settings = settings_of(keyed, monkeypatch)
    assert settings.allow_anonymous is False
    assert settings.keys_file == Path("/run/secrets") / keyed["services"]["service"]["secrets"][0]


@both
@pytest.mark.parametrize("on_top", [(), ("compose.gpu.yaml",)])
def test_commands_are_of_the_command_line_and_see_their_volumes(
    file: str, on_top: tuple[str, ...]
) -> None:
    for name in OURS[file]:
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
def test_the_gpu_changes_the_image_the_device_and_the_memory_alone(file: str) -> None:
    base, gpu = compose(file)["services"], compose(file, "compose.gpu.yaml")["services"]
    for name in OURS[ONE]:
        assert gpu[name]["command"] == [*base[name]["command"], "--device", "auto"]
        assert gpu[name]["image"] == f"{base[name]['image'].rpartition('-')[0]}-gpu"
        assert gpu[name]["build"]["args"] == {"KIND": "gpu"}
        (device,) = gpu[name]["deploy"]["resources"]["reservations"]["devices"]
        assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
        assert (base[name]["mem_limit"], gpu[name]["mem_limit"]) == ("4g", "16g")
        changed = {key for key in gpu[name] if gpu[name][key] != base[name].get(key)}
        assert changed <= {"command", "image", "build", "environment", "deploy", "mem_limit"}


@pytest.mark.parametrize("keys", [False, True])
def test_prometheus_reads_the_service_by_a_name_that_the_service_knows(
    monkeypatch: pytest.MonkeyPatch, keys: bool
) -> None:
    tree = compose(ONE, *(["compose.keys.yaml"] if keys else []))
    prometheus = tree["services"]["prometheus"]
    (option,) = [each for each in prometheus["command"] if each.startswith("--config.file=")]
    file = DOCKER / "prometheus" / Path(option.split("=")[1]).name
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


def test_grafana_asks_for_a_password_and_finds_its_dashboards_and_source() -> None:
    grafana, provisioning = SERVICES["grafana"], DOCKER / "grafana" / "provisioning"
    assert grafana["environment"]["GF_AUTH_ANONYMOUS_ENABLED"] == "false"
    (secret,) = grafana["secrets"]
    assert grafana["environment"]["GF_SECURITY_ADMIN_PASSWORD__FILE"] == f"/run/secrets/{secret}"
    (file,) = (provisioning / "dashboards").glob("*.yml")
    (provider,) = yaml.safe_load(file.read_text(encoding="utf-8"))["providers"]
    folder, _ = mounts(grafana)[provider["options"]["path"]]
    assert list((DOCKER / folder).glob("*.json"))
    sources = (provisioning / "datasources" / "prometheus.yml").read_text(encoding="utf-8")
    (source,) = yaml.safe_load(sources)["datasources"]
    assert urlsplit(source["url"]).hostname in SERVICES


def test_the_engine_is_reached_by_our_containers_alone_with_a_password() -> None:
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
    # It has the name and the password that the service uses.
    environment = REPLICATED["engine"]["environment"]
    token = REPLICATED["service"]["environment"]["ALADIN_ENGINE_TOKEN"]
    assert REPLICATED["push"]["environment"]["ALADIN_ENGINE_TOKEN"] == token
    assert environment["COMMON_SECURITY_AUTHORIZATIONENABLED"] == "true"
    assert token == f"root:{environment['COMMON_SECURITY_DEFAULTROOTPASSWORD']}"
    assert token.endswith("engine-secret")
    uses = re.findall(r"\$\{ENGINE_PASSWORD([^}]*)\}", (DOCKER / MILVUS).read_text("utf-8"))
    assert uses and all(use.startswith(":?") for use in uses)  # nothing starts without one
    given = options(REPLICATED["push"])
    EngineLocation(url=given["--url"], name=given["--name"])
    assert urlsplit(given["--url"]).hostname == "engine"
    assert "milvus" in REPLICATED["engine"]["image"]
    # What it keeps outlives its container.
    assert any(may_write for _, may_write in mounts(REPLICATED["engine"]).values())
    assert REPLICATED["engine"]["healthcheck"]["test"][0] == "CMD"


def test_the_built_index_is_pushed_and_the_pushed_one_is_served() -> None:
    built, pushed, served = (REPLICATED[name] for name in ("index", "push", "service"))
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
    # A new volume is its user's wherever it is first mounted.
    dockerfile = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
    found = re.search(r"--owner aladin --group aladin ([/a-z ]+)", dockerfile)
    assert found is not None
    written = {
        target
        for name in OURS[MILVUS]
        for target, (source, may_write) in mounts(REPLICATED[name]).items()
        if may_write and not source.startswith(".")
    }
    assert written <= set(found[1].split())


def test_the_balancer_finds_three_replicas_that_trust_it_and_count_its_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree = compose(MILVUS)
    services, balancer = tree["services"], tree["services"]["balancer"]
    ((folder, _),) = mounts(balancer).values()
    text = (DOCKER / folder / "haproxy.cfg").read_text(encoding="utf-8")
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
