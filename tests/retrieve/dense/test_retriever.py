"""A dense retriever as a whole, on a checkpoint of a few thousand weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import r2med
from r2med.errors import DataError, UsageError
from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources
from r2med.models.encoding import Form
from r2med.retrieve.interface import Part, QueryForm, Searcher, search_with
from r2med.settings import parse_settings
from r2med.systems.registry import entries
from r2med.tasks.registry import find_task
from tests.building import texts
from tests.retrieve.checkpoints import save_model, save_modules, sentences
from tests.retrieve.small_task import own_task

pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("bert"), "bert")


@pytest.fixture(scope="module")
def sentence_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_model(tmp_path_factory.mktemp("sentence-bert"), "bert")
    save_modules(folder, pooling="mean")
    return folder


def retriever(name: str, resources: Resources = Resources(), **options: object) -> Any:  # noqa: B008
    from r2med.retrieve.dense.retriever import Settings, build

    entry = entries()[name].override({key: str(value) for key, value in options.items()})
    return build(parse_settings(Settings, entry.fields, name=name), resources)


def search(searcher: Searcher, depth: int = 10) -> Mapping[str, list[tuple[str, float]]]:
    run = searcher.search(own_task().queries, depth=depth)
    return {query: run.ranking(query) for query in run.query_ids.to_pylist()}


def test_the_record_shows_both_sides_as_the_model_saw_them(bert: Path) -> None:
    searcher = retriever("bge", checkpoint=bert).prepare(own_task())
    found = searcher.search_queries(own_task().queries, depth=10)

    facts: Any = {**searcher.facts(), **found.facts}

    assert facts["documents"]["first"] == "[CLS] insulin therapy and dose [SEP]"
    assert facts["queries"]["first"].startswith("[CLS] Represent [UNK]")
    assert facts["queries"]["first"].endswith(": why does the heart cough [SEP]")
    assert facts["encoder"]["device"]


def test_truncation_is_counted(bert: Path) -> None:
    searcher = retriever("contriever", checkpoint=bert, max_length=5).prepare(own_task())

    facts: Any = searcher.facts()

    assert facts["documents"]["truncated"] == pytest.approx(3 / 4)


def test_a_second_run_needs_no_model(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = search(retriever("bge", checkpoint=bert).prepare(own_task()))
    monkeypatch.setattr("r2med.models.checkpoint.LocalModel.load", None)

    searcher = retriever("bge", checkpoint=bert).prepare(own_task())

    assert search(searcher) == first
    facts: Any = searcher.facts()
    assert facts["documents"]["reused"] == facts["documents"]["distinct"] == 4
    assert facts["documents"]["first"] == "[CLS] insulin therapy and dose [SEP]"


def test_the_name_of_a_model_does_not_part_its_embeddings(bert: Path) -> None:
    retriever("contriever", checkpoint=bert).prepare(own_task())

    other = retriever("dense", checkpoint=bert, pooling="mean", max_length=512)
    facts: Any = other.prepare(own_task()).facts()

    assert facts["documents"]["reused"] == 4


def test_a_text_of_another_task_is_not_encoded_again(bert: Path) -> None:
    on = retriever("contriever", checkpoint=bert)
    on.prepare(own_task())

    usage = on.prepare(own_task({"n1": "insulin therapy and dose", "n2": "gene"})).usage

    assert (usage.cached, usage.texts) == (1, 1)


def test_of_an_id_given_twice_the_last_text_counts(bert: Path) -> None:
    twice = own_task()
    corpus = type(twice.corpus)(texts("a", "b", "a"), texts("gene", "protein", "renal biopsy"))
    once = own_task({"a": "renal biopsy", "b": "protein"})
    on = retriever("contriever", checkpoint=bert)

    doubled = on.prepare(type(twice)(**{**vars(twice), "corpus": corpus}))

    assert search(doubled) == search(on.prepare(once))


@pytest.mark.parametrize(
    ("task_name", "is_dropped"), [("Biology", True), ("demo/biology", True), (None, False)]
)
def test_a_document_with_the_querys_id_is_left_out_where_the_published_protocol_does(
    bert: Path, task_name: str | None, is_dropped: bool
) -> None:
    texts = {"q1": "why does the heart cough", "d": "renal", "e": "gene"}
    entry = find_task(task_name) if task_name else None
    model = retriever("contriever", checkpoint=bert)

    found = search(model.prepare(own_task(texts, entry=entry)), depth=2)

    assert ({document for document, _ in found["q1"]} == {"d", "e"}) == is_dropped
    assert len(found["q1"]) == len(found["q2"]) == 2
    assert model.task_identity(own_task(texts, entry=entry))["drops_query_id"] == is_dropped


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ({"query": "Query : ", "document": "passage : "}, ("Query : ", "passage : ")),
        ({"query": "Query : ", "passage": "a "}, ("Query : ", "")),
        ({"other": "Given "}, ("Given ", "Given ")),
        ({}, ("", "")),
    ],
)
def test_a_sentence_transformers_checkpoint_runs_with_the_prompts_saved_in_it(
    sentence_bert: Path, tmp_path: Path, prompts: dict[str, str], expected: tuple[str, str]
) -> None:
    library = pytest.importorskip("sentence_transformers")
    folder = tmp_path / "prompted"
    shutil.copytree(sentence_bert, folder)
    default = "other" if "other" in prompts else None
    config = {"prompts": prompts, "default_prompt_name": default}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
    model, task = retriever("dense", checkpoint=folder), own_task()

    forms = [model.form(task, side).instruction for side in ("query", "document")]
    found = search(model.prepare(task))

    theirs = library.SentenceTransformer(str(folder), device="cpu")
    queries = theirs.encode_query(task.queries.texts.to_pylist(), normalize_embeddings=True)
    documents = theirs.encode_document(task.corpus.document_texts(), normalize_embeddings=True)
    best = [task.corpus.document_ids[int(row)].as_py() for row in (queries @ documents.T).argmax(1)]
    assert tuple(forms) == expected
    assert [hits[0][0] for hits in found.values()] == best


def test_an_instruction_of_the_users_replaces_the_saved_prompt(sentence_bert: Path) -> None:
    model = retriever("dense", checkpoint=sentence_bert, query_instruction="why ")

    assert model.form(own_task(), "query").instruction == "why "


def test_documents_with_equal_texts_score_equally(bert: Path) -> None:
    found = search(retriever("contriever", checkpoint=bert).prepare(own_task()))

    scores = dict(found["q1"])
    assert scores["d2"] == scores["d4"]


@pytest.mark.parametrize(("name", "instructed"), [("bge", False), ("grit", True)])
def test_an_expanded_query_is_the_mean_of_its_parts(
    bert: Path, name: str, instructed: bool
) -> None:
    on = retriever(name, checkpoint=bert, attention="model", dtype="float32", max_length=40)
    task = own_task()
    forms = [
        QueryForm("q1", "", (Part("heart"), Part("acute failure", generated=True))),
        QueryForm("q2", "", (Part("insulin"),)),
    ]

    run = search_with(on.prepare(task), task.queries, forms, depth=5).run

    plain = on.encode(task, "query", ["heart", "insulin"]).matrix()
    beside = on.encode(task, "query", ["acute failure"], instructed=instructed).matrix()
    wanted = (plain[0] + beside[0]) / 2
    document = on.encode(task, "document", ["renal biopsy of the patient"]).matrix()[0]
    cosine = wanted @ document / np.linalg.norm(wanted) / np.linalg.norm(document)
    assert dict(run.ranking("q1"))["d3"] == pytest.approx(float(cosine), abs=1e-5)


def test_half_precision_storage_gives_nearly_equal_scores(bert: Path) -> None:
    whole = retriever("contriever", checkpoint=bert)
    half = retriever("contriever", checkpoint=bert, storage="float16")

    found, exact = search(half.prepare(own_task())), search(whole.prepare(own_task()))
    assert dict(found["q2"])["d1"] == pytest.approx(dict(exact["q2"])["d1"], abs=1e-3)


@pytest.mark.parametrize("library", ["auto", "sentence-transformers"])
def test_a_sentence_transformer_gives_what_its_own_library_gives(
    sentence_bert: Path, library: str
) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    theirs = sentence_transformers.SentenceTransformer(str(sentence_bert), device="cpu")
    on = retriever("dense", checkpoint=sentence_bert, library=library)

    encoded = on.encode(own_task(), "query", sentences())

    expected = theirs.encode(sentences())
    np.testing.assert_allclose(encoded.matrix()[encoded.distinct], expected, atol=1e-5)


def test_a_checkpoint_with_unusual_modules_is_run_by_its_library(
    sentence_bert: Path, tmp_path: Path
) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    unusual = unusual_checkpoint(sentence_bert, tmp_path / "unusual")

    encoded = retriever("dense", checkpoint=unusual).encode(own_task(), "query", sentences())

    expected = sentence_transformers.SentenceTransformer(str(unusual)).encode(sentences())
    np.testing.assert_allclose(encoded.matrix()[encoded.distinct], expected, atol=1e-5)
    assert encoded.facts["tokens"]


def unusual_checkpoint(sentence_bert: Path, folder: Path) -> Path:
    """One that sentence-transformers must run itself: it pools by the maximum."""
    library = pytest.importorskip("sentence_transformers")
    base = library.SentenceTransformer(str(sentence_bert), device="cpu")
    pooling = library.sentence_transformer.modules.Pooling(32, pooling_mode="max")
    library.SentenceTransformer(modules=[base[0], pooling], device="cpu").save_pretrained(
        str(folder)
    )
    return folder


def test_an_adapter_is_run_by_its_library_and_its_base_decides_the_identity(
    sentence_bert: Path, tmp_path: Path
) -> None:
    library = pytest.importorskip("sentence_transformers")
    peft = pytest.importorskip("peft")
    base = tmp_path / "base"
    shutil.copytree(sentence_bert, base)
    model = library.SentenceTransformer(str(base), device="cpu")
    model.add_adapter(peft.LoraConfig(task_type="FEATURE_EXTRACTION", target_modules=["query"]))
    model.save_pretrained(str(tmp_path / "adapter"))
    on = retriever("dense", checkpoint=tmp_path / "adapter")
    before = on.identity

    encoded = on.encode(own_task(), "query", sentences())
    weights = base / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    after = retriever("dense", checkpoint=tmp_path / "adapter").identity

    np.testing.assert_allclose(
        encoded.matrix()[encoded.distinct], model.encode(sentences()), atol=1e-5
    )
    assert after != before


def test_a_limit_for_queries_does_not_cut_the_documents_of_the_next_task(
    sentence_bert: Path, tmp_path: Path
) -> None:
    unusual = unusual_checkpoint(sentence_bert, tmp_path / "unusual")
    long = own_task({"d1": "insulin therapy and dose " * 6})
    on = retriever("dense", checkpoint=unusual, query_max_length=4)
    search(on.prepare(own_task()))

    facts: Any = on.prepare(long).facts()
    kept = on.encode(long, "document", long.corpus.texts.to_pylist()).matrix()

    theirs = pytest.importorskip("sentence_transformers").SentenceTransformer(str(unusual))
    np.testing.assert_allclose(kept, theirs.encode(long.corpus.texts.to_pylist()), atol=1e-5)
    assert facts["documents"]["tokens"] == 26
    assert facts["documents"]["truncated"] == 0


FOREIGN = """
from pathlib import Path
Path("ran").touch()
from sentence_transformers.sentence_transformer.modules import Pooling as Own
"""


@pytest.mark.parametrize("name", ["foreign.Own", "foreign.Pooling"])
@pytest.mark.parametrize("library", ["auto", "sentence-transformers"])
def test_a_module_that_is_not_the_librarys_own_does_not_run(
    sentence_bert: Path, tmp_path: Path, name: str, library: str
) -> None:
    folder = Path(shutil.copytree(sentence_bert, tmp_path / "model"))
    Path("foreign.py").write_text(FOREIGN)
    (folder / "foreign.py").write_text(FOREIGN)
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = name
    (folder / "modules.json").write_text(json.dumps(modules))

    with pytest.raises(UsageError, match=rf"modules\.json: names {name}, .*--trust-remote-code"):
        retriever("dense", checkpoint=folder, library=library).prepare(own_task())

    assert not Path("ran").exists()


@pytest.mark.parametrize("kind", ["splade", "colbert"])
def test_a_class_named_deep_inside_a_checkpoint_does_not_run(
    sentence_bert: Path, tmp_path: Path, kind: str
) -> None:
    folder = Path(shutil.copytree(sentence_bert, tmp_path / "model"))
    Path("foreign.py").write_text(FOREIGN)
    router = {"types": {"query_0": "foreign.Own"}, "structure": {}, "parameters": {}}
    (folder / "1_Pooling" / "router_config.json").write_text(json.dumps(router))

    with pytest.raises(UsageError, match=r"router_config\.json: names foreign\.Own"):
        r2med.evaluate(f"{kind}:{folder}", own_task())

    assert not Path("ran").exists()


def test_an_option_is_refused_where_the_library_runs_the_modules(
    sentence_bert: Path,
) -> None:
    on = retriever("dense", checkpoint=sentence_bert, attention="bidirectional")

    with pytest.raises(UsageError, match="attention=bidirectional has no effect on"):
        on.prepare(own_task())


def test_a_checkpoint_that_lacks_weights_is_refused(bert: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = save_model(tmp_path / "bert", "bert")
    weights = load_file(folder / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(DataError, match="lacks 1 of the weights"):
        retriever("bge", checkpoint=folder).prepare(own_task())


def test_a_prompt_the_checkpoint_does_not_carry_is_told(sentence_bert: Path) -> None:
    with pytest.raises(UsageError, match=r"has no prompt 'web_serch'\. Did you mean"):
        retriever("harrier", checkpoint=sentence_bert, query_prompt="web_serch").encode(
            own_task(), "query", ["a"]
        )


REMOTE_CODE = """
import torch
from transformers import BertConfig, BertModel

class OwnConfig(BertConfig):
    model_type = "own-embedder"

class OwnModel(BertModel):
    config_class = OwnConfig

    def encode(self, prompts, instruction="", max_length=4096):
        rows = [[len(instruction), len(prompt), max_length] for prompt in prompts]
        return torch.tensor(rows, dtype=self.dtype)
"""


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    folder = save_model(tmp_path / "remote", "bert")
    (folder / "own.py").write_text(REMOTE_CODE)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "own-embedder", "architectures": ["OwnModel"]}
    config["auto_map"] = {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("name", ["nv", "dense"])
def test_code_of_a_checkpoint_does_not_run_unless_allowed(remote: Path, name: str) -> None:
    with pytest.raises(UsageError, match="--trust-remote-code"):
        retriever(name, checkpoint=remote).prepare(own_task())


def test_a_checkpoints_own_encode_gets_instruction_and_length(
    remote: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "hf"))
    allowed = Resources(RunOptions(trust_remote_code=True, device="cpu"))
    on = retriever("nv", allowed, checkpoint=remote, dtype="float32", normalize="false")

    vector = on.encode(own_task(), "query", ["insulin"]).matrix()[0]

    instruction = "Instruct: Given a Medical question, " + (
        "retrieve relevant passages that help answer the question\nQuery: "
    )
    assert vector.tolist() == [len(instruction), len("insulin"), 4096]


@pytest.mark.parametrize("option", ["generated=query", "storage=float16", "similarity=dot"])
def test_an_option_makes_another_result(bert: Path, option: str) -> None:
    plain = f"contriever[checkpoint={bert}]"
    r2med.evaluate(plain, own_task())

    other = r2med.evaluate(f"contriever[checkpoint={bert},{option}]", own_task())

    assert not other.reused
    assert r2med.evaluate(plain, own_task()).reused


#: Settings that decide no vector: how vectors are found, compared and kept, and which form an
#: expanded query takes. What files hold decides, not what they are called.
NO_VECTOR = {
    *("library", "checkpoint", "query_checkpoint", "document_checkpoint", "revision"),
    *("generated", "similarity", "storage", "dimensions"),
    *("index", "index_kind", "m", "ef_construction", "ef", "nlist", "nprobe"),
}
OTHERS: dict[str, Any] = {
    "pooling": "last",
    "attention": "bidirectional",
    "dtype": "float16",
    "query_prompt": "web_search_query",
    "document_prompt": "web_search_query",
}


def test_every_setting_that_decides_a_vector_changes_its_address(sentence_bert: Path) -> None:
    from r2med.retrieve.dense.retriever import Settings, build

    def address(settings: Settings) -> object:
        forms = [settings.form(own_task(), "query"), settings.form(own_task(), "document")]
        return build(settings, Resources()).identity, forms

    options = {"checkpoint": str(sentence_bert), "library": "transformers"}
    entry = entries()["dense"].override(options | {"query_instruction": "{kind} {purpose}"})
    settings = parse_settings(Settings, entry.fields)
    unchanged = set()
    for field in fields(Settings):
        value = getattr(settings, field.name)
        flipped: Any = (
            not value if isinstance(value, bool) else 7 if isinstance(value, int) else "x"
        )
        changed = replace(settings, **{field.name: OTHERS.get(field.name, flipped)})
        if field.name not in NO_VECTOR and address(changed) == address(settings):
            unchanged.add(field.name)

    assert not unchanged


def test_a_result_tells_the_encoder_and_is_reused(bert: Path) -> None:
    first = r2med.evaluate(f"bge[checkpoint={bert}]", own_task())
    again = r2med.evaluate(f"bge[checkpoint={bert}]", own_task())

    assert not first.reused
    assert again.reused
    assert first.record.facts[f"bge[checkpoint={bert}]"]["documents"]


def test_a_protocol_is_recorded_and_counts_in_the_identity_by_what_it_sets(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "mistral", "mistral")
    long = 'max_length=512,query_instruction="Instruct: Given a {kind}, {purpose}.\\nQuery: "'
    own, preset, written = (
        r2med.evaluate(f"e5[checkpoint={folder}{more}]", own_task())
        for more in ("", ",protocol=reasonembed", f",{long}")
    )

    assert preset.record.system.spec == f"e5[checkpoint={folder},protocol=reasonembed]"
    assert preset.record.system.identity == written.record.system.identity
    assert preset.record.system.identity != own.record.system.identity


@pytest.mark.parametrize(
    ("architecture", "read"), [("bert", 512), ("xlm-roberta", 129), ("mpnet", 510), ("t5", 602)]
)
def test_a_tokeniser_without_limit_is_cut_at_the_positions_that_the_model_learned(
    architecture: str, read: int, tmp_path: Path
) -> None:
    folder = unlimited(save_model(tmp_path, architecture))
    encoder = retriever("dense", checkpoint=folder).encoders["document"]

    inputs = encoder.inputs(["fever " * 601, "cough"], Form())
    vectors = encoder.encode(inputs, np.arange(2))

    assert inputs.tokens[0] == read
    assert np.isfinite(vectors).all()


def test_a_failing_model_is_named_with_its_tokens_in_one_line(tmp_path: Path) -> None:
    folder = unlimited(save_model(tmp_path, "bert"))
    encoder = retriever("dense", checkpoint=folder, max_length=600).encoders["document"]
    inputs = encoder.inputs(["fever " * 601], Form(max_length=600))

    with pytest.raises(DataError, match=r"^\S+: the model failed on texts of up to 600 tokens .+$"):
        encoder.encode(inputs, np.arange(1))


def unlimited(folder: Path) -> Path:
    """The checkpoint with a tokeniser that states no limit, as one saved without it."""
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": int(1e30)}))
    return folder
