"""The compose files: what every container may do, and that they fit what they start."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from aladin_service.cli import app
from aladin_service.http.access.policy import make_policy
from aladin_service.settings import ServiceSettings

Tree = dict[str, Any]
Compose = Callable[..., Tree]
PINNED = re.compile(r"^[a-z0-9./_-]+:v?\d+\.\d+\.\d+@sha256:[0-9a-f]{64}$")
OURS = ("service", "index")


@pytest.fixture(scope="module")
def services(compose: Compose) -> dict[str, Tree]:
    """The services of compose.yaml."""
    return compose("compose.yaml")["services"]


def test_there_are_these_services(services: dict[str, Tree]) -> None:
    assert set(services) == {*OURS, "prometheus", "grafana"}
    monitoring = [name for name, each in services.items() if each.get("profiles")]
    assert monitoring == ["prometheus", "grafana"]


@pytest.mark.parametrize("name", [*OURS, "prometheus", "grafana"])
def test_a_container_can_do_little(services: dict[str, Tree], name: str) -> None:
    service = services[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    assert service["pids_limit"] > 0
    assert service["restart"] in ("unless-stopped", "on-failure:3")
    assert not {"privileged", "cap_add", "devices", "user"} & set(service)
    for port in service.get("ports", []):
        assert port.startswith("127.0.0.1:")


def test_images_of_others_are_pinned_by_version_and_digest(services: dict[str, Tree]) -> None:
    for name, service in services.items():
        if name in OURS:
            assert re.fullmatch(r"aladin-search:\d+\.\d+\.\d+-serve", service["image"])
        else:
            assert PINNED.match(service["image"]), service["image"]


def test_photos_and_models_cannot_be_written(services: dict[str, Tree]) -> None:
    written = {
        name: sorted(
            volume.split(":")[1]
            for volume in services[name]["volumes"]
            if not volume.endswith(":ro")
        )
        for name in services
    }
    assert written == {
        "service": ["/index"],
        "index": ["/demo", "/index"],
        "prometheus": ["/prometheus"],
        "grafana": ["/var/lib/grafana"],
    }


def test_the_service_sees_the_photos_where_the_job_indexed_them(services: dict[str, Tree]) -> None:
    def places(name: str) -> set[tuple[str, ...]]:
        return {tuple(each.split(":")[:2]) for each in services[name]["volumes"]}

    assert places("index") - places("service") == {("no-model", "/model")}
    assert places("service") <= places("index")


def test_what_is_mounted_and_built_from_is_there(
    compose: Compose, services: dict[str, Tree], docker: Path
) -> None:
    declared = compose("compose.yaml")["volumes"]
    for service in services.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in declared or (docker / source).is_dir(), source
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


def environment(tree: Tree) -> dict[str, str]:
    """The service's own settings, as it reads them."""
    given = tree["services"]["service"]["environment"]
    return {name: str(value) for name, value in given.items() if name.startswith("ALADIN_")}


def settings_of(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> ServiceSettings:
    """Read the settings that a compose file gives; each has to be one."""
    for name, value in environment(tree).items():
        assert name.removeprefix("ALADIN_").lower() in ServiceSettings.model_fields, name
        monkeypatch.setenv(name, value)
    return ServiceSettings()


def test_without_keys_everybody_on_the_server_reads_and_nobody_writes(
    compose: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(compose("compose.yaml"), monkeypatch)
    policy = make_policy(settings, "0.0.0.0")
    assert policy.anonymous == {"read", "metrics"}


def test_with_keys_nobody_is_anonymous(compose: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = compose("compose.yaml", "compose.keys.yaml")
    settings = settings_of(tree, monkeypatch)
    assert settings.allow_anonymous is False
    assert settings.keys_file == Path("/run/secrets") / tree["services"]["service"]["secrets"][0]


def test_the_service_has_longer_to_stop_than_it_takes(
    compose: Compose, services: dict[str, Tree], monkeypatch: pytest.MonkeyPatch
) -> None:
    grace_s = int(services["service"]["stop_grace_period"].removesuffix("s"))
    assert grace_s > settings_of(compose("compose.yaml"), monkeypatch).shutdown_s


@pytest.mark.parametrize("on_top", [(), ("compose.gpu.yaml",)])
@pytest.mark.parametrize("name", OURS)
def test_commands_are_of_the_command_line(
    compose: Compose, name: str, on_top: tuple[str, ...]
) -> None:
    tree = compose("compose.yaml", *on_top)
    words: list[str] = tree["services"][name]["command"]
    command = typer.main.get_command(app).commands[words[0]]  # pyright: ignore
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known
    assert ("--wait" in words) == (name == "service")  # it may start before there is an index
    # Volumes are mounted where the command looks.
    mounted = {volume.split(":")[1] for volume in tree["services"][name]["volumes"]}
    named = {f"/{word.split('/')[1]}" for word in words if word.startswith("/")}
    assert named <= mounted


def test_the_gpu_changes_the_image_and_the_device_alone(
    compose: Compose, services: dict[str, Tree]
) -> None:
    gpu = compose("compose.gpu.yaml")["services"]
    for name, base in services.items():
        if name in OURS:
            assert gpu[name]["command"] == [*base["command"], "--device", "auto"]
            assert gpu[name]["image"] == f"{base['image'].rpartition('-')[0]}-gpu"
            assert gpu[name]["build"]["args"] == {"EXTRA": "gpu"}
            (device,) = gpu[name]["deploy"]["resources"]["reservations"]["devices"]
            assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}


@pytest.mark.parametrize("keys", [False, True])
def test_prometheus_reads_the_service_by_a_name_that_the_service_knows(
    compose: Compose, docker: Path, monkeypatch: pytest.MonkeyPatch, keys: bool
) -> None:
    tree = compose("compose.yaml", *(["compose.keys.yaml"] if keys else []))
    prometheus = tree["services"]["prometheus"]
    (option,) = [each for each in prometheus["command"] if each.startswith("--config.file=")]
    file = docker / "prometheus" / Path(option.split("=")[1]).name
    config = yaml.safe_load(file.read_text(encoding="utf-8"))
    (job,) = config["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    (host,) = found["names"]
    assert host in tree["services"]
    assert found["port"] == 8000
    assert host in settings_of(tree, monkeypatch).allowed_hosts
    for rules in config["rule_files"]:
        assert (file.parent / rules).is_file()
    if keys:
        (secret,) = prometheus["secrets"]
        assert job["authorization"]["credentials_file"] == f"/run/secrets/{secret}"


def test_grafana_asks_for_a_password_and_finds_its_dashboards(
    services: dict[str, Tree], docker: Path
) -> None:
    grafana = services["grafana"]
    assert grafana["environment"]["GF_AUTH_ANONYMOUS_ENABLED"] == "false"
    (secret,) = grafana["secrets"]
    assert grafana["environment"]["GF_SECURITY_ADMIN_PASSWORD__FILE"] == f"/run/secrets/{secret}"
    (file,) = (docker / "grafana" / "provisioning" / "dashboards").glob("*.yml")
    (provider,) = yaml.safe_load(file.read_text(encoding="utf-8"))["providers"]
    mounted = dict(volume.split(":")[1::-1] for volume in grafana["volumes"])
    folder = docker / mounted[provider["options"]["path"]]
    assert list(folder.glob("*.json"))


def test_the_service_and_its_job_are_of_the_image_without_a_training_framework(
    services: dict[str, Tree],
) -> None:
    for name in OURS:
        assert services[name]["image"].endswith("-serve")
        assert services[name]["build"]["args"] == {"EXTRA": "serve"}
