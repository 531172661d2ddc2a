"""Vectors in Milvus: a file with embedded Milvus, or a cluster, through the same client.

A collection is named by the digest of its vectors and of the index over them. So a repeated run
inserts nothing, and other vectors or another kind of index never meet it; what is not whole is
built anew. What Milvus says it built is read back and recorded; where that is not what was
asked for, the search is refused. Scores are inner products of the vectors that exact search uses.
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

IndexKind = Literal["flat", "hnsw", "ivf_flat"]
TOKEN = "R2MED_MILVUS_TOKEN"
#: The settings of an entry that say where and how vectors are indexed.
SETTINGS = ("index", "index_kind", "m", "ef_construction", "ef", "nlist", "nprobe")
#: By kind: its parameters, with their values where none is given. An `ef` of 0 is as many documents
#: as are asked for, which is the least that Milvus takes.
_PARAMETERS: Mapping[IndexKind, Mapping[str, int]] = {
    "flat": {},
    "hnsw": {"m": 16, "ef_construction": 200, "ef": 0},
    "ivf_flat": {"nlist": 128, "nprobe": 16},
}
#: Those that say how an index is searched; the others say how it is built.
_SEARCHING = ("ef", "nprobe")
#: Names of parameters where Milvus's differ.
_NAMES = {"m": "M", "ef_construction": "efConstruction"}
_KEY, _VECTOR = "row", "vector"
_BLOCK_BYTES = 8 * 1024**2
_MOST_ROWS = 4096
_QUERIES = 64


@dataclass(frozen=True)
class Milvus:
    """Where vectors are indexed, how, and how that index is searched."""

    address: str
    kind: IndexKind = "flat"
    building: Mapping[str, int] = field(default_factory=dict)
    searching: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Any) -> Milvus | None:
        """As an entry's settings say; None where they leave exact search to this program."""
        options = {name: value for name in SETTINGS[2:] if (value := getattr(settings, name))}
        kind: IndexKind = settings.index_kind
        for name in options.keys() - (_PARAMETERS[kind].keys() if settings.index else ()):
            owner = next(one for one, known in _PARAMETERS.items() if name in known)
            raise UsageError(
                f"{name}={options[name]} has no effect without an index of index_kind={owner}, as "
                f"in [index=milvus:./vectors.db,index_kind={owner},{name}={options[name]}]."
            )
        if not settings.index:
            if kind != "flat":
                raise UsageError(
                    f"index_kind={kind} has no effect without an index, as in "
                    f"[index=milvus:./vectors.db,index_kind={kind}]."
                )
            return None
        chosen = {**_PARAMETERS[kind], **options}
        if kind == "ivf_flat":
            if options.get("nprobe", 0) > chosen["nlist"]:
                raise UsageError(
                    f"nprobe={chosen['nprobe']}: an index of nlist={chosen['nlist']} cells has no "
                    "more to search. Give nlist or less."
                )
            chosen["nprobe"] = min(chosen["nprobe"], chosen["nlist"])
        searching = {name: chosen.pop(name) for name in _SEARCHING if name in chosen}
        backend, _, address = settings.index.partition(":")
        if "@" in address:
            raise UsageError(
                "index: an address must not hold a user's name or password, because it is stored "
                f"with results. Set them as {TOKEN}=USER:PASSWORD in the environment."
            )
        if backend != "milvus" or not ("://" in address or address.endswith(".db")):
            raise UsageError(
                f"index={settings.index}: expected milvus:PATH.db, a local file, or "
                "milvus:http://HOST:19530, a cluster."
            )
        return cls(address, kind, chosen, searching)

    @property
    def embedded(self) -> bool:
        """Whether Milvus is a library in this process, over a local file."""
        return "://" not in self.address

    @property
    def identity(self) -> Mapping[str, object]:
        """What decides rankings; where the vectors lie does not."""
        backend = "milvus-lite" if self.embedded else "milvus"
        return {"backend": backend, "kind": self.kind, **self.building, **self.searching}


@dataclass(eq=False)
class MilvusIndex:
    """The vectors of some distinct texts in a collection, all inserted and indexed."""

    milvus: Milvus
    rows: Callable[[int, int], Matrix]
    distinct: NDArray[np.int64]
    """Which of the texts each document has."""
    count: int
    resources: Resources

    def __post_init__(self) -> None:
        milvus, count = self.milvus, self.count
        self._width = int(self.rows(0, 1).shape[1])
        self._asked = {_NAMES.get(name, name): value for name, value in milvus.building.items()}
        self.facts: dict[str, object] = {**milvus.identity, "vectors": count}
        if milvus.building.get("nlist", 0) > count:
            raise UsageError(
                f"nlist={milvus.building['nlist']}: the corpus has {count:,} distinct texts, and "
                f"Milvus would silently make as many cells. Give {count} or less."
            )
        with self._calling() as client:
            inserted = self._complete(client)
            if inserted or milvus.embedded:
                # Embedded Milvus searches rows that it has not flushed without an index, and
                # builds one in its own time; loading the collection anew builds it at once.
                client.flush(self._name)
                client.release_collection(self._name)
                self._load(client)
            self.facts |= {"inserted": inserted, "collection": self._name, **self._built(client)}

    def search(self, queries: Matrix, *, depth: int) -> tuple[NDArray[np.int64], Matrix]:
        """The best documents of every ready query as Milvus ranks them; absent ones are -2."""
        limit, parameters = min(depth, self.count), dict(self.milvus.searching)
        if "ef" in parameters:
            ef = parameters["ef"] = parameters["ef"] or limit
            if ef < limit:
                raise UsageError(
                    f"ef={ef}: the index is asked for {limit:,} documents per query, and ef must "
                    f"be no less. Give ef={limit} or more, or a shallower run with @."
                )
        self.facts["searched_with"] = parameters
        texts = np.full((len(queries), limit), -1, dtype=np.int64)
        scores = np.full((len(queries), limit), -np.inf, dtype=np.float32)
        with self._calling() as client:
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
        """By the digest of all vectors, in their order, and of the index over them."""
        index = {"kind": self.milvus.kind, **self.milvus.building}
        digest = hashlib.sha256(json.dumps([self.count, self._width, index]).encode())
        for start, stop in self._blocks():
            digest.update(np.ascontiguousarray(self.rows(start, stop), dtype="<f4").tobytes())
        return f"r2med_{digest.hexdigest()[:32]}"

    def _blocks(self) -> Iterator[tuple[int, int]]:
        size = int(np.clip(_BLOCK_BYTES // (4 * max(1, self._width)), 1, _MOST_ROWS))
        for start in range(0, self.count, size):
            yield start, min(start + size, self.count)

    def _complete(self, client: Any) -> int:
        """Make the collection unless it is there whole, and return how many vectors it took."""
        if client.has_collection(self._name):
            self._load(client)
            if self._held(client) == self.count:
                return 0
            client.drop_collection(self._name)
        self._create(client)
        began = time.perf_counter()
        for start, stop in self._blocks():
            rows = zip(range(start, stop), self.rows(start, stop), strict=True)
            client.insert(self._name, [{_KEY: row, _VECTOR: vector} for row, vector in rows])
            self.resources.progress("indexing", stop, self.count, time.perf_counter() - began)
        if (held := self._held(client)) != self.count:
            raise DataError(
                f"{self.milvus.address}: collection {self._name} holds {held:,} vectors after "
                f"{self.count:,} were inserted. Is another program writing to it?"
            )
        return self.count

    def _load(self, client: Any) -> None:
        """Load the collection; embedded Milvus may still be writing its index meanwhile."""
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
        # Embedded Milvus reads parameters only where they are one value called "params".
        index.add_index(
            _VECTOR,
            index_type=self.milvus.kind.upper(),
            metric_type="IP",
            params={"params": self._asked} if self._asked else {},
        )
        client.create_collection(
            self._name,
            schema=schema,
            index_params=index,
            consistency_level="Strong",
        )

    def _held(self, client: Any) -> int:
        counted = client.query(
            self._name, filter="", output_fields=["count(*)"], consistency_level="Strong"
        )
        return int(counted[0]["count(*)"])

    def _built(self, client: Any) -> dict[str, object]:
        """What Milvus says of its index; a UsageError where that is not what was asked for."""
        while True:
            described = client.describe_index(self._name, _VECTOR) or {}
            if not described.get("pending_index_rows") or described.get("state") == "Failed":
                break
            time.sleep(1)
        parameters = {**described, **(described.get("params") or {})}
        wanted = {"index_type": self.milvus.kind.upper(), "metric_type": "IP", **self._asked}
        for name, value in wanted.items():
            if str(parameters.get(name)) != str(value):
                raise UsageError(
                    f"{self.milvus.address}: {name}={value} was asked for, and Milvus built "
                    f"its index with {name}={parameters.get(name, 'a value of its own')}. Choose "
                    "what it builds, or another server."
                )
        built = {name: parameters[name] for name in wanted}
        return {"built": built | {"total_rows": described.get("total_rows")}}

    @contextmanager
    def _calling(self) -> Iterator[Any]:
        """The client; what it raises is told with the address, and never with the token."""
        client = connect(self.milvus)
        from pymilvus.exceptions import MilvusException

        try:
            yield client
        except MilvusException as problem:
            raise DataError(f"{self.milvus.address}: Milvus says: {problem.message}") from None
        finally:
            client.close()


def connect(milvus: Milvus) -> Any:
    """A client of the cluster, or of embedded Milvus over a file, which this process locks."""
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
            f"{milvus.address}: no Milvus answers there ({problem.message}). A file serves one "
            f"process at a time; a cluster may want {TOKEN}."
        ) from None
