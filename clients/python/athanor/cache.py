"""The server's cache as plain values, and bundles as files."""

from __future__ import annotations

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import BinaryIO

from google.protobuf.message import DecodeError

from athanor.errors import InvalidArgument
from athanor.protos import cache_pb2, plan_pb2

MAX_CHUNK_BYTES = 1 << 31
Ranges = Mapping[str, tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class CacheTier:
    """Contents of one tier of the cache, and its hits and misses.

    Attributes
    ----------
    rows, bytes : int
        In the file, which several processes may share.
    hits, misses, bad_rows : int
        Lookups since the server started: found, not found, found damaged.
    misses_by_reason : dict of str to int
        ``"absent"``, ``"gate"``, ``"bad_row"``, ``"expired"``, ``"no_cache"``, ``"busy"``.
    """

    rows: int
    bytes: int
    hits: int
    misses: int
    bad_rows: int
    misses_by_reason: dict[str, int]


@dataclasses.dataclass(frozen=True)
class CacheLease:
    """A lease: a process that compiles or searches, among all that share the cache.

    Attributes
    ----------
    kind, about : str
        ``"plan"`` or ``"search"``, and what it is for.
    pid : int
        In the process's own pid namespace.
    ours : bool
        Whether this server holds it.
    age_seconds : float
        Seconds since it was taken.
    """

    kind: str
    about: str
    pid: int
    ours: bool
    age_seconds: float


@dataclasses.dataclass(frozen=True)
class CacheStat:
    """Contents of the cache, and counts since the server started.

    Attributes
    ----------
    path : str
        Its file.
    state : {"USABLE", "NEWER_SCHEMA", "READ_ONLY", "FULL", "UNUSABLE"}
        State of the file; `reason` says why it is not ``"USABLE"``.
    schema : int
        Of the file.
    bytes, limit_bytes : int
        Size of the file with its log, and its limit (0: none).
    tiers : dict of str to CacheTier
        ``"plans"``, ``"recipes"``, ``"timings"``, ``"kernels"``, ``"checks"``, ``"failures"``,
        ``"searches"``, ``"targets"``, ``"quarantine"``.
    kernels_compiled, kernels_from_cache, candidates_measured : int
        Since the server started; a candidate is a kernel or a whole plan that a search measured.
    leases : tuple of CacheLease
        Oldest first.
    writes_waiting, writes_dropped : int
        Rows that are not yet in the file, and rows that it could not take.
    """

    path: str
    state: str
    reason: str
    schema: int
    bytes: int
    limit_bytes: int
    tiers: dict[str, CacheTier]
    kernels_compiled: int
    kernels_from_cache: int
    candidates_measured: int
    leases: tuple[CacheLease, ...]
    writes_waiting: int
    writes_dropped: int


@dataclasses.dataclass(frozen=True)
class CacheDifference:
    """A column in which the nearest row differs; with `gates` the row cannot be used."""

    column: str
    wanted: str
    found: str
    gates: bool


@dataclasses.dataclass(frozen=True)
class CacheExplanation:
    """Explains why the plan of one bucket was found in the cache or not.

    Attributes
    ----------
    bucket : dict of str to (int, int)
        By dim.
    hit : bool
        Whether a row can be used.
    plan_id : str
        Plan of that row; empty without one.
    differences : tuple of CacheDifference
        Differences from the nearest row.
    steps : tuple of str
        Lookups from the top, each with its outcome.
    """

    bucket: dict[str, tuple[int, int]]
    hit: bool
    plan_id: str
    differences: tuple[CacheDifference, ...]
    steps: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class BadRow:
    """A damaged or wrong row: its place, what it was for, what is wrong with it."""

    tier: str
    key: str  # hex
    about: str
    why: str


@dataclasses.dataclass(frozen=True)
class CacheVerification:
    """Result of checking every row's checksum, and of SQLite's own check of the file.

    Attributes
    ----------
    rows, bytes : int
        Rows and bytes checked.
    bad : tuple of BadRow
        Damaged rows.
    database : str
        ``"ok"``, or SQLite's message.
    quarantined : tuple of BadRow
        Rows quarantined earlier, latest first, at most 100: damaged rows, and plans that failed
        another verification.
    """

    rows: int
    bytes: int
    bad: tuple[BadRow, ...]
    database: str
    quarantined: tuple[BadRow, ...]


@dataclasses.dataclass(frozen=True)
class CacheGarbage:
    """Rows that were removed, or with `dry_run` would be.

    Attributes
    ----------
    rows, bytes : int
        In all.
    tiers : dict of str to (int, int)
        Rows and bytes lost by each tier that loses any.
    bytes_left : int
        Bytes that stay.
    """

    rows: int
    bytes: int
    tiers: dict[str, tuple[int, int]]
    bytes_left: int


@dataclasses.dataclass(frozen=True)
class CacheImport:
    """Contents of an imported bundle.

    Attributes
    ----------
    recipes_added, recipes_known, plans_added, plans_known, kernels_added, kernels_known : int
        New in this cache, and already present.
    origin : str
        The server from which the bundle says it comes.
    signed_by : str
        Hex of the trusted public key that signed it; empty if none did.
    """

    recipes_added: int
    recipes_known: int
    kernels_added: int
    kernels_known: int
    origin: str
    signed_by: str
    plans_added: int
    plans_known: int


@dataclasses.dataclass(frozen=True)
class CacheExport:
    """Counts of what was written into a bundle."""

    recipes: int
    kernels: int
    signed: bool
    plans: int


def cache_stat(m: cache_pb2.CacheStat) -> CacheStat:
    """The message as a plain value."""
    tiers = {t.tier: CacheTier(rows=t.rows, bytes=t.bytes, hits=t.hits, misses=t.misses,
                               bad_rows=t.bad_rows, misses_by_reason=dict(t.misses_by_reason))
             for t in m.tiers}
    leases = tuple(CacheLease(x.kind, x.about, x.pid, x.ours, x.age_seconds) for x in m.leases)
    return CacheStat(
        path=m.path, state=cache_pb2.CacheStat.State.Name(m.state), reason=m.reason,
        schema=m.schema, bytes=m.bytes, limit_bytes=m.limit_bytes, tiers=tiers,
        kernels_compiled=m.kernels_compiled, kernels_from_cache=m.kernels_from_cache,
        candidates_measured=m.candidates_measured, leases=leases,
        writes_waiting=m.writes_waiting, writes_dropped=m.writes_dropped)


def dim_ranges(bucket: Ranges | None) -> list[plan_pb2.DimRange]:
    """Converts ``{"b": (1, 64)}`` to messages."""
    return [plan_pb2.DimRange(name=name, min=low, max=high)
            for name, (low, high) in (bucket or {}).items()]


def cache_explanations(m: cache_pb2.CacheExplanation) -> list[CacheExplanation]:
    """Converts the message to plain values, by bucket."""
    return [CacheExplanation(
        bucket={r.name: (r.min, r.max) for r in b.bucket}, hit=b.hit, plan_id=b.plan_id,
        differences=tuple(CacheDifference(d.column, d.wanted, d.found, d.gates)
                          for d in b.differences),
        steps=tuple(b.steps)) for b in m.buckets]


def cache_verification(m: cache_pb2.CacheVerification) -> CacheVerification:
    """The message as a plain value."""
    return CacheVerification(
        rows=m.rows, bytes=m.bytes, database=m.database,
        bad=tuple(BadRow(b.tier, b.key, b.about, b.why) for b in m.bad),
        quarantined=tuple(BadRow(b.tier, b.key, b.about, b.why) for b in m.quarantined))


def cache_garbage(m: cache_pb2.CollectGarbageReply) -> CacheGarbage:
    """The message as a plain value."""
    return CacheGarbage(rows=m.rows, bytes=m.bytes, bytes_left=m.bytes_left,
                        tiers={t.tier: (t.rows, t.bytes) for t in m.tiers})


def cache_import(m: cache_pb2.ImportCacheReply) -> CacheImport:
    """The message as a plain value."""
    return CacheImport(recipes_added=m.recipes_added, recipes_known=m.recipes_known,
                       kernels_added=m.kernels_added, kernels_known=m.kernels_known,
                       origin=m.origin, signed_by=m.signed_by,
                       plans_added=m.plans_added, plans_known=m.plans_known)


class BundleFile:
    """Writes the chunks of an export to a file that appears when all of them have arrived.

    Parameters
    ----------
    path : str or path
        Path of the bundle; chunks first go to `path` with ``.partial`` appended.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = pathlib.Path(path)
        self._partial = self._path.with_name(self._path.name + ".partial")
        self._file: BinaryIO
        self._recipes = self._plans = self._kernels = 0
        self._signed = False

    def __enter__(self) -> BundleFile:
        self._file = self._partial.open("wb")
        return self

    def add(self, chunk: cache_pb2.CacheBundleChunk) -> None:
        """Writes the next chunk: its length as a varint, then the chunk."""
        self._recipes += chunk.record.HasField("recipe")
        self._plans += chunk.record.HasField("plan")
        self._kernels += chunk.record.HasField("kernel")
        self._signed |= bool(chunk.trailer.signature)
        data = chunk.SerializeToString()
        self._file.write(_varint(len(data)) + data)

    def __exit__(self, kind: object, *_: object) -> None:
        self._file.close()
        if kind is None:
            self._partial.replace(self._path)
        else:
            self._partial.unlink(missing_ok=True)

    @property
    def written(self) -> CacheExport:
        """Counts of what the file holds so far."""
        return CacheExport(self._recipes, self._kernels, self._signed, self._plans)


def read_bundle(path: str | os.PathLike[str]) -> Iterator[cache_pb2.CacheBundleChunk]:
    """Yields the chunks of a bundle's file.

    Raises
    ------
    InvalidArgument
        If it is no bundle, or is cut off inside a chunk.
    """
    with open(path, "rb") as file:
        for index in itertools.count():
            length = _read_varint(file)
            if length is None:
                return
            chunk = cache_pb2.CacheBundleChunk()
            data = file.read(length) if 0 <= length < MAX_CHUNK_BYTES else b""
            try:
                whole = len(data) == length and chunk.ParseFromString(data) == length
            except DecodeError:
                whole = False
            if not whole:
                raise InvalidArgument(
                    f"{os.fspath(path)}: is not a bundle: chunk {index} cannot be read")
            yield chunk


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7f:
        out.append(number & 0x7f | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(file: BinaryIO) -> int | None:
    """Returns None at the end of the file, and -1 for a malformed varint."""
    number = 0
    for shift in range(0, 64, 7):
        byte = file.read(1)
        if not byte:
            return None if shift == 0 else -1
        number |= (byte[0] & 0x7f) << shift
        if byte[0] < 0x80:
            return number
    return -1
