"""Settings of the service, read from environment variables with the prefix ``ALADIN_``.

Also the limits of a query or a new item, and the options for the engine that stores an index, which
the command line reads from the same variables.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from aladin_index.format.layout import location_of
from aladin_index.settings import MetadataLimits
from aladin_network.errors import ConfigError
from aladin_network.photos.decoding import DEFAULT_LIMITS, MOST_PIXELS, ImageLimits
from aladin_network.photos.formats import UPLOAD_FORMATS
from aladin_network.photos.memory import DecodingMemory
from aladin_network.photos.region_files import RegionLimits
from aladin_network.types import (
    MAX_CAPTION_CHARS,
    MAX_STORED_BYTES,
    QueryPrecisionSetting,
    RuntimeSetting,
)

if TYPE_CHECKING:
    from aladin_index.open import EngineOptions

# Variables with the same prefix that are not settings of the service: the key of a client, and the
# browser of the tests.
_OTHERS_VARIABLES = ("ALADIN_API_KEY", "ALADIN_CHROMIUM")

# Time that a photo waits for memory to be decoded in; after that, its request is refused with 429.
_DECODE_PATIENCE_S = 10.0
_MAX_SIDE_PX = 30_000
# Uploaded regions of a photo; the network reads its own number of them.
_REGION_LIMITS = RegionLimits(max_bytes=8 * 2**20, max_regions=100)


@dataclass(frozen=True, kw_only=True)
class QueryLimits:
    """Limits for a query or a new item, for all interfaces.

    Attributes:
        image: Limits in bytes and pixels of an uploaded photo.
        regions: Limits in bytes and number of a photo's uploaded regions.
        metadata: Limits in bytes, fields and depth of a new item's metadata.
        max_text_chars: Maximum characters of a text; the network's own limit in tokens applies as
            well.
        exif: Whether the metadata in added photos are read.
        memory: Shared by all photos that are decoded at the same time under these limits.
    """

    image: ImageLimits = DEFAULT_LIMITS
    regions: RegionLimits = field(default_factory=RegionLimits)
    metadata: MetadataLimits = field(default_factory=MetadataLimits)
    max_text_chars: int = MAX_CAPTION_CHARS
    exif: bool = True
    memory: DecodingMemory = field(default_factory=DecodingMemory, compare=False)


def _split(value: object) -> object:
    """Split a list in the notation of environment variables: ``one,two``."""
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.split(",") if part.strip())


CommaList = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]


def _query_threads(known: dict[str, Any]) -> int:
    """Divide the processors among the workers; `known` contains the settings before this one."""
    return max(1, min(4, (os.cpu_count() or 1) // known.get("workers", 1)))


def _decode_memory_bytes(known: dict[str, Any]) -> int:
    """Return 896 MiB for one process, as much for each of two, and the same total for more.

    One worker then decodes any photo of 50 million pixels. Of the 4 GiB of a container, more than
    half is left for the networks, the uploads and the index.
    """
    return 896 * 2**20 * min(2, known.get("workers", 1))


class ServiceSettings(BaseSettings):
    """Limits of requests, processing of queries, access control and the vector database.

    Each setting is read from the environment variable ``ALADIN_`` followed by its name in capitals;
    lists are separated by commas. "Unset" is None here.

    Attributes:
        max_body_bytes: Maximum size of a request body. A photo in JSON is base64, a third larger
            than its file.
        max_json_bytes: Maximum size of a JSON request without its photos and regions, unless it is
            a list of queries or items.
        max_image_bytes: Maximum size of an uploaded photo.
        max_image_pixels: Maximum number of pixels of a decoded photo, computed from its header
            before decoding; a JPEG with more is decoded at a reduced size.
        max_metadata_bytes: Maximum size of an added item's metadata as JSON.
        max_text_chars: Maximum length of a query text; the network's own limit in tokens applies,
            too.
        max_photo_size_px: Maximum `size` at which a photo of the index can be requested.
        body_timeout_s: Time for a request's body to arrive completely; then 408.
        head_timeout_s: Time for a request's head to arrive completely, and for the first request
            to begin; then the connection is closed.
        send_timeout_s: Time for a client to receive an answer, or a MiB of a zip; then the
            connection is closed.
        max_connections: Maximum number of open connections. Beyond it, and beyond the limit per
            client, a connection is answered 503 and closed, unless it requests /healthz or
            /readyz.
        max_connections_per_client: Maximum number of open connections from one IPv4 address or
            IPv6 /64 network. Proxies named in FORWARDED_ALLOW_IPS are exempt.
        workers: Processes that encode and search; 1: threads of the service's own process.
        job_timeout_s: A worker process that spends more time on one batch of queries, or sends no
            sign of life for this long, is killed and replaced.
        shutdown_s: Time to finish accepted work after a stop signal.
        query_threads: Batches of queries that a worker encodes and searches in parallel; by
            default the processors are shared among the workers, at most four each.
        max_batch: Maximum number of queries that are encoded together.
        max_waiting: Maximum number of queries that wait for a worker; further ones are rejected
            with 429.
        max_wait_ms: As many queries are admitted as are answered within this time; the rest is
            rejected with 429. Unset: seven times the time of a query on its own.
        query_cache_bytes: Memory of each worker for the encodings of repeated queries; 0 disables
            the cache.
        query_precision: Precision in which torch encodes the texts of queries; `auto`: bfloat16 on
            processors that multiply it, else float32. Graphs, and items added to the index, are
            computed in float32.
        runtime: What computes the network on the CPU: `onnxruntime` for the graphs that
            `aladin export onnx` wrote, or `torch`; `auto`: graphs if there are some and ONNX
            Runtime is installed, else torch. All commands read it.
        decode_threads: Query photos that a worker decodes in parallel, within
            `decode_memory_bytes`.
        decode_memory_bytes: Memory for decoding photos, uploads and photos of the index together,
            divided equally among the workers. A photo takes 9 bytes per pixel, up to 13 as a
            progressive JPEG and 18 as a WebP; it waits for free memory, and is rejected with 413
            if it alone exceeds a worker's share.
        max_documents: Maximum number of documents that one request re-ranks or encodes.
        max_document_pixels: Maximum number of pixels of all photos together that one request
            re-ranks or encodes.
        engine_url: Address of the vector database of an index that is stored in one. Unset: the
            address in the index folder. Required with a token.
        engine_token: Token for the vector database. Unset: no authentication. It is sent only to
            `engine_url`.
        engine_timeout_s: Time for the vector database to answer one call, including retries.
        engine_poll_s: Interval between polls of the vector database for its availability and its
            live generation; for this long, the service may answer from the previous one.
        detector: Detector that finds the regions of uploaded photos, for an index whose model
            reads regions; the same form as for `aladin regions extract`. Unset: such an index
            accepts only ready-made regions.
        photos_root: Folder outside of which no photo is served, after following all links;
            uploaded photos are always served. Unset: photos are served wherever they are.
        models_dir: Folder of the models that were converted when a command first named them. Unset:
            the user's cache folder.
        libraries_dir: Folder of the indexes that `aladin photos` keeps. Unset: the user's data
            folder.
        exif: Adds to the metadata of uploaded photos what they tell of themselves: titles, people,
            dates, places; off for privacy.
        read_only: Rejects additions and deletions.
        mcp: Answers the Model Context Protocol at /mcp, if the extra `mcp` is installed.
        log_format: Format of the log on stderr: `text` or `json`.
        traces: Sends OpenTelemetry traces to a collector on this machine; the variables
            OTEL_EXPORTER_OTLP_... name another one and enable traces by themselves.
        keys_file: File of API keys, as written by `aladin key add`. Unset: no keys; the service
            listens on the local address only unless `allow_anonymous` is set.
        allow_anonymous: Allows requests without a key to search and read, from any address.
        anonymous_requests_per_s: Sustained rate of a client without a key, identified by its
            address. Unset: unlimited. Each key has its own rate.
        anonymous_burst: Burst of such a client after a pause.
        allowed_hosts: Host names by which clients without a key may address the service, besides
            localhost and IP addresses; * allows all.
        cors_origins: Origins of pages that may use the service from a browser, besides its own.
    """

    model_config = SettingsConfigDict(env_prefix="ALADIN_", frozen=True)

    max_body_bytes: int = Field(default=24 * 2**20, ge=1024)
    max_json_bytes: int = Field(default=2**20, ge=1024)
    max_image_bytes: int = Field(default=16 * 2**20, ge=1)
    max_image_pixels: int = Field(default=64_000_000, ge=1, le=MOST_PIXELS)
    max_metadata_bytes: int = Field(default=MAX_STORED_BYTES, ge=2)
    max_text_chars: int = Field(default=MAX_CAPTION_CHARS, ge=1)
    max_photo_size_px: int = Field(default=2048, ge=16)
    body_timeout_s: float = Field(default=60.0, gt=0)
    head_timeout_s: float = Field(default=10.0, gt=0)
    send_timeout_s: float = Field(default=60.0, gt=0)
    max_connections: int = Field(default=500, ge=1)
    max_connections_per_client: int = Field(default=200, ge=1)
    workers: int = Field(default=1, ge=1)
    job_timeout_s: float = Field(default=60.0, gt=0)
    shutdown_s: int = Field(default=10, ge=1)
    query_threads: int = Field(default_factory=_query_threads, ge=1)
    max_batch: int = Field(default=16, ge=1)
    max_waiting: int = Field(default=128, ge=0)
    max_wait_ms: float | None = Field(default=None, gt=0)
    query_cache_bytes: int = Field(default=32 * 2**20, ge=0)
    query_precision: QueryPrecisionSetting = "auto"
    runtime: RuntimeSetting = "auto"
    decode_threads: int = Field(default_factory=lambda: min(4, os.cpu_count() or 1), ge=1)
    decode_memory_bytes: int = Field(default_factory=_decode_memory_bytes, ge=2**20)
    max_documents: int = Field(default=1000, ge=1)
    max_document_pixels: int = Field(default=256_000_000, ge=1)
    engine_url: str | None = None
    engine_token: SecretStr | None = None
    engine_timeout_s: float = Field(default=10.0, gt=0)
    engine_poll_s: float = Field(default=1.0, gt=0)
    detector: str | None = None
    photos_root: Path | None = None
    models_dir: Path | None = None
    libraries_dir: Path | None = None
    exif: bool = True
    read_only: bool = False
    mcp: bool = True
    log_format: Literal["text", "json"] = "text"
    traces: bool = False
    keys_file: Path | None = None
    allow_anonymous: bool = False
    anonymous_requests_per_s: float | None = Field(default=None, gt=0)
    anonymous_burst: int = Field(default=20, ge=1)
    allowed_hosts: CommaList = ()
    cors_origins: CommaList = ()

    @property
    def photo_threads(self) -> int:
        """Threads for the graph of one query photo: two where every worker has two processors."""
        return min(2, _query_threads({"workers": self.workers}))

    @property
    def image_limits(self) -> ImageLimits:
        """The limits for an uploaded photo."""
        return ImageLimits(
            max_bytes=self.max_image_bytes,
            max_pixels=self.max_image_pixels,
            max_side_px=_MAX_SIDE_PX,
            formats=UPLOAD_FORMATS,
        )

    @property
    def query_limits(self) -> QueryLimits:
        """The limits for a query; each call returns limits with a separate memory for photos."""
        return QueryLimits(
            image=self.image_limits,
            regions=_REGION_LIMITS,
            metadata=MetadataLimits(max_bytes=self.max_metadata_bytes),
            max_text_chars=self.max_text_chars,
            exif=self.exif,
            memory=DecodingMemory(self.decode_memory_bytes // self.workers, _DECODE_PATIENCE_S),
        )

    @property
    def engine_options(self) -> EngineOptions:
        """Connection options of a vector database."""
        from aladin_index.engines.milvus import EngineOptions

        return EngineOptions(
            url=self.engine_url,
            token=None if self.engine_token is None else self.engine_token.get_secret_value(),
            timeout_s=self.engine_timeout_s,
        )


def read_settings(workers: int | None = None) -> ServiceSettings:
    """Read the settings from this process's environment; a number of workers overrides it.

    A ConfigError names every variable with an invalid value, and every unknown one: a mistyped one
    would leave open what it should have closed.
    """
    _check_names()
    try:
        return ServiceSettings() if workers is None else ServiceSettings(workers=workers)
    except ValidationError as error:
        faults = [
            f"ALADIN_{str(fault['loc'][0]).upper()}={fault['input']}: {fault['msg']}"
            for fault in error.errors(include_url=False)
        ]
        raise ConfigError("; ".join(faults)) from None


def settings_with(workers: int | None = None, **given: object) -> ServiceSettings:
    """Read the settings; those that are given, except None, take precedence."""
    settings = read_settings(workers).model_copy(
        update={name: value for name, value in given.items() if value is not None}
    )
    if settings.photos_root is not None and not settings.photos_root.is_dir():
        raise ConfigError(f"photos_root: expected a folder, got {settings.photos_root}")
    return settings


def _check_names() -> None:
    known = [f"ALADIN_{name.upper()}" for name in ServiceSettings.model_fields]
    faults: list[str] = []
    for name in sorted({name.upper() for name in os.environ}):
        if name.startswith("ALADIN_") and name not in (*known, *_OTHERS_VARIABLES):
            near = difflib.get_close_matches(name, known, 1)
            faults.append(
                f"{name}: unknown setting" + "".join(f"; did you mean {each}?" for each in near)
            )
    if faults:
        raise ConfigError("; ".join(faults))


def engine_options(index: Path) -> EngineOptions | None:
    """Read the settings of the index's vector database, or None if the index is in files.

    Args:
        index: Folder of the index.

    Raises:
        ConfigError: If a variable has an invalid value, see `read_settings`.
        IndexCorruptError: If the folder does not state where the index is stored.
    """
    return None if location_of(index) is None else read_settings().engine_options
