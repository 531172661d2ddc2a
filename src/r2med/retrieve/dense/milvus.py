"""Search vectors in Milvus: a local file with embedded Milvus, or a cluster, by the same client.

The name of a collection is a hash of its vectors and its index settings. So a repeated run inserts
nothing, and other vectors or another type of index use another collection; an incomplete collection
is built again. The index that Milvus reports is recorded; if it is not the requested one, the
search is refused. Scores are inner products of the same vectors that exact search uses.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError, MissingError, UsageError, need
from r2med.execution.resources import Resources
from r2med.offline import check_address
from r2med.retrieve.topk import Matrix, spread_over

IndexType = Literal["flat", "hnsw", "ivf_flat"]
TOKEN = "R2MED_MILVUS_TOKEN"
#: The settings of an entry for the address and the index.
SETTINGS = ("index", "index_kind", "m", "ef_construction", "ef", "nlist", "nprobe")
#: The parameters of each type of index with their defaults. An `ef` of 0 means the number of
#: requested documents, which is the least that Milvus accepts.
_PARAMETERS: Mapping[IndexType, Mapping[str, int]] = {
    "flat": {},
    "hnsw": {"m": 16, "ef_construction": 200, "ef": 0},
    "ivf_flat": {"nlist": 128, "nprobe": 16},
}
#: Parameters of the search; the others are parameters of building the index.
_SEARCHING = ("ef", "nprobe")
#: Milvus's names of parameters that are named otherwise here.
_NAMES = {"m": "M", "ef_construction": "efConstruction"}
_KEY, _VECTOR = "row", "vector"
#: Bytes and rows of the largest insertion.
_BLOCK_BYTES = 8 * 1024**2
_MOST_ROWS = 4096
#: Queries per search request.
_QUERIES = 64


@dataclass(frozen=True)
class Milvus:
    """The settings of a Milvus index: the address, the type of index, and its parameters."""

    address: str
    index_type: IndexType = "flat"
    building: Mapping[str, int] = field(default_factory=dict)
    searching: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Any) -> Milvus | None:
        """Read the Milvus settings of a registry entry.

        None is returned if the entry has no index, so that search is exact.
        """
        options = {name: value for name in SETTINGS[2:] if (value := getattr(settings, name))}
        index_type: IndexType = settings.index_kind
        accepted = _PARAMETERS[index_type].keys() if settings.index else set[str]()
        for name in options.keys() - accepted:
            owner = next(candidate for candidate, names in _PARAMETERS.items() if name in names)
            raise UsageError(
                f"{name}={options[name]} has no effect without an index of index_kind={owner}, as "
                f"in [index=milvus:./vectors.db,index_kind={owner},{name}={options[name]}]."
            )
        if not settings.index:
            if index_type != "flat":
                raise UsageError(
                    f"index_kind={index_type} has no effect without an index, as in "
                    f"[index=milvus:./vectors.db,index_kind={index_type}]."
                )
            return None
        chosen = {**_PARAMETERS[index_type], **options}
        if index_type == "ivf_flat":
            if options.get("nprobe", 0) > chosen["nlist"]:
                raise UsageError(
                    f"nprobe={chosen['nprobe']}: more than the nlist={chosen['nlist']} cells of "
                    f"the index. Set nprobe to {chosen['nlist']} or less."
                )
            chosen["nprobe"] = min(chosen["nprobe"], chosen["nlist"])
        searching = {name: chosen.pop(name) for name in _SEARCHING if name in chosen}
        backend, _, address = settings.index.partition(":")
        if "@" in address:
            raise UsageError(
                "index: an address must not contain a user name or password, because it is stored "
                f"with results. Set them as {TOKEN}=USER:PASSWORD in the environment."
            )
        if backend != "milvus" or not ("://" in address or address.endswith(".db")):
            raise UsageError(
                f"index={settings.index}: expected milvus:PATH.db, a local file, or "
                "milvus:http://HOST:19530, a cluster."
            )
        return cls(address, index_type, chosen, searching)

    @property
    def embedded(self) -> bool:
        """Whether Milvus runs in this process and stores its data in a local file."""
        return "://" not in self.address

    @property
    def identity(self) -> Mapping[str, object]:
        """The settings that decide rankings, which exclude the address."""
        backend = "milvus-lite" if self.embedded else "milvus"
        return {"backend": backend, "kind": self.index_type, **self.building, **self.searching}


@dataclass(eq=False)
class MilvusIndex:
    """A collection with the vectors of distinct texts, inserted and indexed."""

    milvus: Milvus
    rows: Callable[[int, int], Matrix]
    """Function that returns the vectors of the distinct texts from a start to a stop."""
    distinct: NDArray[np.int64]
    """For each document, the index of its text among the distinct texts."""
    count: int
    resources: Resources

    def __post_init__(self) -> None:
        milvus, count = self.milvus, self.count
        self._width = int(self.rows(0, 1).shape[1])
        self._parameters = {
            _NAMES.get(name, name): value for name, value in milvus.building.items()
        }
        self.facts: dict[str, object] = {**milvus.identity, "vectors": count}
        if milvus.building.get("nlist", 0) > count:
            raise UsageError(
                f"nlist={milvus.building['nlist']}: the corpus has {count:,} distinct texts, and "
                f"Milvus would silently make as many cells. Set nlist to {count} or less."
            )
        with self._open_client() as client:
            inserted = self._insert_missing(client)
            if inserted or milvus.embedded:
                # Embedded Milvus builds its index later, and searches without it until then;
                # flushing and loading the collection again builds it at once.
                client.flush(self._name)
                client.release_collection(self._name)
                self._load(client)
            self.facts |= {"inserted": inserted, "collection": self._name}
            self.facts["built"] = self._check_built_index(client)

    def search(self, queries: Matrix, *, depth: int) -> tuple[NDArray[np.int64], Matrix]:
        """Return the best documents of every scaled query as Milvus ranks them.

        If a list has fewer documents than the others, it is filled up with -2.
        """
        limit, parameters = min(depth, self.count), dict(self.milvus.searching)
        if "ef" in parameters:
            parameters["ef"] = parameters["ef"] or limit
            if parameters["ef"] < limit:
                raise UsageError(
                    f"ef={parameters['ef']}: {limit:,} documents per query are requested, and ef "
                    f"must not be less. Set ef={limit} or more, or ask for shorter lists with @."
                )
        self.facts["searched_with"] = parameters
        texts = np.full((len(queries), limit), -1, dtype=np.int64)
        scores = np.full((len(queries), limit), -np.inf, dtype=np.float32)
        with self._open_client() as client:
            for start in range(0, len(queries), _QUERIES):
                lists = client.search(
                    self._name,
                    [*queries[start : start + _QUERIES]],
                    anns_field=_VECTOR,
                    limit=limit,
                    search_params={"metric_type": "IP", "params": parameters},
                    output_fields=[_KEY],
                    consistency_level="Strong",
                )
                for row, hits in enumerate(lists, start=start):
                    nearest = sorted((-hit["distance"], hit[_KEY]) for hit in hits)
                    texts[row, : len(nearest)] = [key for _, key in nearest]
                    scores[row, : len(nearest)] = [-distance for distance, _ in nearest]
        return spread_over(self.distinct, texts, scores, depth)

    @cached_property
    def _name(self) -> str:
        """The name of the collection: a hash of all vectors and of the index settings."""
        index = {"kind": self.milvus.index_type, **self.milvus.building}
        digest = hashlib.sha256(json.dumps([self.count, self._width, index]).encode())
        for start, stop in self._blocks():
            digest.update(np.ascontiguousarray(self.rows(start, stop), dtype="<f4").tobytes())
        return f"r2med_{digest.hexdigest()[:32]}"

    def _blocks(self) -> Iterator[tuple[int, int]]:
        size = int(np.clip(_BLOCK_BYTES // (4 * max(1, self._width)), 1, _MOST_ROWS))
        for start in range(0, self.count, size):
            yield start, min(start + size, self.count)

    def _insert_missing(self, client: Any) -> int:
        """Create the collection unless it is complete; return how many vectors were inserted."""
        if client.has_collection(self._name):
            self._load(client)
            if self._count_vectors(client) == self.count:
                return 0
            client.drop_collection(self._name)
        self._create(client)
        start_time = time.perf_counter()
        for start, stop in self._blocks():
            rows = zip(range(start, stop), self.rows(start, stop), strict=True)
            client.insert(self._name, [{_KEY: row, _VECTOR: vector} for row, vector in rows])
            seconds = time.perf_counter() - start_time
            self.resources.progress("indexing", stop, self.count, seconds)
        stored = self._count_vectors(client)
        if stored != self.count:
            raise DataError(
                f"{self.milvus.address}: collection {self._name} has {stored:,} vectors after "
                f"{self.count:,} were inserted. Is another program writing to it?"
            )
        return self.count

    def _load(self, client: Any) -> None:
        """Load the collection; with embedded Milvus retry, as it may still be writing the index."""
        from pymilvus.exceptions import MilvusException

        for wait in (0.1, 0.3, 1.0, 3.0) if self.milvus.embedded else ():
            with suppress(MilvusException):
                client.load_collection(self._name)
                return
            time.sleep(wait)
        client.load_collection(self._name)

    def _create(self, client: Any) -> None:
        from pymilvus import DataType

        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field(_KEY, DataType.INT64, is_primary=True)
        schema.add_field(_VECTOR, DataType.FLOAT_VECTOR, dim=self._width)
        index = client.prepare_index_params()
        # Embedded Milvus reads only parameters that are nested under "params".
        index.add_index(
            _VECTOR,
            index_type=self.milvus.index_type.upper(),
            metric_type="IP",
            params={"params": self._parameters} if self._parameters else {},
        )
        client.create_collection(
            self._name,
            schema=schema,
            index_params=index,
            consistency_level="Strong",
        )

    def _count_vectors(self, client: Any) -> int:
        rows = client.query(
            self._name, filter="", output_fields=["count(*)"], consistency_level="Strong"
        )
        return int(rows[0]["count(*)"])

    def _check_built_index(self, client: Any) -> dict[str, object]:
        """Return the index that Milvus reports; UsageError if it is not the requested one."""
        while True:
            description = client.describe_index(self._name, _VECTOR) or {}
            if not description.get("pending_index_rows") or description.get("state") == "Failed":
                break
            time.sleep(1)
        parameters = {**description, **(description.get("params") or {})}
        requested = {
            "index_type": self.milvus.index_type.upper(),
            "metric_type": "IP",
            **self._parameters,
        }
        for name, value in requested.items():
            if str(parameters.get(name)) != str(value):
                raise UsageError(
                    f"{self.milvus.address}: {name}={value} was requested, but Milvus built its "
                    f"index with {name}={parameters.get(name, 'an unknown value')}. Request an "
                    "index that it can build, or use another server."
                )
        built = {name: parameters[name] for name in requested}
        return built | {"total_rows": description.get("total_rows")}

    @contextmanager
    def _open_client(self) -> Iterator[Any]:
        """Yield a client; its errors are reported with the address and without the token."""
        client = connect(self.milvus)
        from pymilvus.exceptions import MilvusException

        try:
            yield client
        except MilvusException as problem:
            raise DataError(f"{self.milvus.address}: Milvus says: {problem.message}") from None
        finally:
            client.close()


def connect(milvus: Milvus) -> Any:
    """Return a client of a Milvus cluster or of embedded Milvus; the latter locks its file."""
    need("pymilvus", *(["milvus_lite"] if milvus.embedded else []), extra="milvus")
    for name in ("pymilvus", "milvus_lite"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    from pymilvus import MilvusClient
    from pymilvus.exceptions import MilvusException

    path = Path(milvus.address).expanduser()
    try:
        if milvus.embedded:
            path.parent.mkdir(parents=True, exist_ok=True)
            return MilvusClient(str(path))
        check_address(milvus.address)
        return MilvusClient(milvus.address, token=os.environ.get(TOKEN, ""))
    except MilvusException as problem:
        raise MissingError(
            f"{milvus.address}: Milvus cannot be opened ({problem.message}). Only one process at a "
            f"time can use a file; a cluster may need {TOKEN}."
        ) from None
