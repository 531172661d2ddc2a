"""Models of the user's own, by each route that docs/your-model.md shows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import r2med
from r2med.errors import DataError, MissingError, UsageError
from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources
from r2med.retrieve.interface import Searcher
from r2med.retrieve.user_models import as_matrix, load_target, retriever_of, run_user_code
from r2med.systems.build import System
from r2med.tasks.task import Task
from tests.retrieve.small_task import own_task

PLAIN = Resources()
Write = Callable[[str, str], str]


def letters(texts: Sequence[str]) -> NDArray[np.float64]:
    """How often each letter occurs."""
    return np.array([[text.count(chr(97 + place)) for place in range(26)] for text in texts], float)


class OfDicts:
    """The reference's CustomModel, whose corpus is dicts."""

    def encode_queries(self, queries: list[str], **kw: object) -> NDArray[np.float64]:
        return letters(queries)

    def encode_corpus(self, corpus: list[dict[str, str]], **kw: object) -> NDArray[np.float64]:
        return letters([row["text"] for row in corpus])


class OfTexts(OfDicts):
    """One whose corpus is plain texts."""

    def encode_corpus(self, corpus: Any, **kw: object) -> NDArray[np.float64]:
        return letters([text.lower() for text in corpus])


class Named(OfDicts):
    """One that says what it is."""

    identity: ClassVar = {"name": "letters", "version": 1}


def ranked(model: object) -> list[tuple[str, float]]:
    run = (
        retriever_of(model, resources=PLAIN).prepare(own_task()).search(own_task().queries, depth=5)
    )
    return run.ranking("q1")


@pytest.mark.parametrize("model", [OfDicts(), OfTexts(), OfDicts, letters, Named()])
def test_every_kind_of_model_gives_the_same_ranking(model: object) -> None:
    expected = letters(["why does the heart cough", "acute heart failure with cough"])
    cosine = expected[0] @ expected[1] / np.prod(np.linalg.norm(expected, axis=1))

    assert dict(ranked(model))["d2"] == pytest.approx(cosine, rel=1e-6)


def test_a_model_of_plain_texts_is_tried_with_dicts_only_once() -> None:
    seen: list[type] = []

    class Counting(OfTexts):
        def encode_corpus(self, corpus: Any, **kw: object) -> NDArray[np.float64]:
            seen.append(type(corpus[0]))
            return super().encode_corpus(corpus)

    retriever = retriever_of(Counting(), resources=PLAIN)
    for _ in range(2):
        retriever.prepare(own_task()).search(own_task().queries, depth=5)

    assert seen == [dict, str, str]


def test_a_sentence_transformer_is_taken_as_it_is(tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    from tests.retrieve.checkpoints import save_model, save_modules

    folder = save_model(tmp_path / "bert", "bert")
    save_modules(folder, pooling="mean")
    model = library.SentenceTransformer(str(folder), device="cpu")

    vectors = model.encode(["why does the heart cough", "renal biopsy of the patient"])

    assert dict(ranked(model))["d3"] == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)


def test_a_model_without_identity_is_never_stored_and_says_so() -> None:
    told: list[str] = []
    system = System.from_model(OfDicts(), name="mine", resources=Resources(warn=told.append))

    first = r2med.evaluate(system, own_task())
    again = r2med.evaluate(System.from_model(OfDicts(), name="mine"), own_task())

    assert not again.reused
    assert first.metrics == again.metrics
    assert "mine: the model has no `identity`, so its embeddings are not cached" in told[0]
    assert first.record.facts["mine"]["encoder"]["cached"] is False


def test_a_model_with_an_identity_is_stored_and_reused() -> None:
    first = r2med.evaluate(System.from_model(Named(), name="mine"), own_task())

    assert not first.reused
    assert r2med.evaluate(System.from_model(Named(), name="mine"), own_task()).reused


def test_a_class_is_named_by_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import numpy as np\ndef encode(texts):\n    return np.array([[len(t), 1] for t in texts])"
    )
    (tmp_path / "lengths_model.py").write_text(code)
    monkeypatch.chdir(tmp_path)

    result = r2med.evaluate("model:lengths_model:encode", own_task())

    assert result.system == "model:lengths_model:encode"
    assert len(result.run.ranking("q1")) == 5


@pytest.mark.parametrize(("name", "shown"), [("mine", "mine"), (None, "Searching")])
def test_a_retriever_of_ones_own_needs_no_name(name: str | None, shown: str) -> None:
    class Searching:
        identity: ClassVar = {"searching": 1}

        def prepare(self, task: Task) -> Searcher:
            return retriever_of(letters, resources=PLAIN).prepare(task)

    system = System.from_model(Searching(), name=name)

    assert str(system) == shown
    assert r2med.evaluate(system, own_task()).run.ranking("q1")


def test_a_model_can_be_fused_with_any_other_system() -> None:
    target = f"{OfDicts.__module__}:OfDicts"

    assert r2med.evaluate(f"bm25 + model:{target}", own_task()).run.ranking("q1")


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        ("no_colon", UsageError, "expected package.module:Class"),
        ("no_such_module_here:X", MissingError, "no module 'no_such_module_here' in"),
        ("own=my_models:X", UsageError, "expected package.module:Class"),
        ("./my_encoder.py:Letters", UsageError, "expected package.module:Class"),
        ("my_encoder.py:Letters", UsageError, "expected package.module:Class"),
        ("json:JSONDecoderr", UsageError, "json has no 'JSONDecoderr'. Did you mean"),
        ("fractions:_gcd", UsageError, "has no '_gcd'"),
        ("pathlib:PurePath.x", UsageError, "has no"),
        (
            "http.client:HTTPConnection",
            UsageError,
            "cannot be instantiated .*'host'",
        ),
    ],
)
def test_a_target_that_is_not_there_is_told(
    target: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        load_target(target)


def test_an_object_that_is_no_model_is_told_what_was_expected() -> None:
    with pytest.raises(UsageError, match="is not a model: expected encode_queries and"):
        retriever_of(3, resources=PLAIN)


def test_an_encode_corpus_that_fails_both_ways_tells_both_errors() -> None:
    class Broken(OfDicts):
        def encode_corpus(self, corpus: Any, **kw: object) -> NDArray[np.float64]:
            raise ValueError(f"cannot take {type(corpus[0]).__name__}")

    with pytest.raises(DataError, match=r"(?s)cannot take dict.*cannot take str"):
        ranked(Broken())


def test_whatever_is_no_matrix_is_told() -> None:
    with pytest.raises(DataError, match="expected one vector of equal length for each text"):
        as_matrix([[1.0], [1.0, 2.0]])


def test_complex_vectors_are_refused_as_arrays_and_as_tensors() -> None:
    with pytest.raises(DataError, match="not a matrix of real numbers"):
        as_matrix(np.ones((2, 3), dtype=complex))

    torch = pytest.importorskip("torch")
    with pytest.raises(DataError, match="not a matrix of real numbers"):
        as_matrix(torch.ones(2, 3, dtype=torch.complex64))


def test_a_method_that_returns_none_is_named() -> None:
    class Forgetful(OfDicts):
        def encode_corpus(self, corpus: Any, **kw: object) -> Any:
            return None

    with pytest.raises(DataError, match=r"Forgetful\.encode_corpus returned NoneType"):
        ranked(Forgetful())


@pytest.mark.parametrize("identity", ["letters", 3, 0.5, {"name": "letters", "of": {"epoch": 3}}])
def test_an_identity_is_a_text_a_number_or_a_mapping_of_such(identity: object) -> None:
    model = OfDicts()
    model.identity = identity  # type: ignore[attr-defined]

    assert not r2med.evaluate(System.from_model(model, name="mine"), own_task()).reused
    assert r2med.evaluate(System.from_model(model, name="mine"), own_task()).reused


@pytest.mark.parametrize("identity", [object(), {"weights": object()}, {1: "a"}, Path("model.bin")])
def test_an_identity_that_no_other_run_can_compare_is_refused(identity: object) -> None:
    model = OfDicts()
    model.identity = identity  # type: ignore[attr-defined]

    with pytest.raises(UsageError, match="expected a text, a number, or a mapping of these"):
        _ = retriever_of(model, resources=PLAIN).identity


def notes_of(model: object) -> list[str]:
    told: list[str] = []
    system = System.from_model(model, name="mine", resources=Resources(warn=told.append))
    r2med.evaluate(system, own_task())
    return told


def test_a_model_of_one_function_says_once_that_nothing_is_kept() -> None:
    assert sum("no `identity`" in note for note in notes_of(letters)) == 1


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_documents_that_nothing_tells_apart_are_noted(value: float) -> None:
    class Constant(OfDicts):
        def encode_corpus(self, corpus: Any, **kw: object) -> NDArray[np.float64]:
            return np.full((len(corpus), 26), value)

    noted = "own: mine gives every document the same vector, so the ranking is meaningless."
    assert noted in notes_of(Constant())
    assert not any("same vector" in note for note in notes_of(OfDicts()))


def test_queries_that_nothing_tells_apart_are_noted() -> None:
    class Constant(OfDicts):
        def encode_queries(self, queries: list[str], **kw: object) -> NDArray[np.float64]:
            return np.ones((len(queries), 26))

    noted = "own: mine gives every query the same vector, so the ranking is meaningless."
    assert noted in notes_of(Constant())


def test_batches_of_different_width_are_told_with_a_text() -> None:
    class Growing(OfDicts):
        width = 3

        def encode_corpus(self, corpus: Any, **kw: object) -> NDArray[np.float64]:
            self.width += 1
            return np.ones((len(corpus), self.width))

    with pytest.raises(DataError, match=r"vectors of 4 and of 5.* numbers; the batch of document "):
        r2med.evaluate(Growing(), own_task(), resources=Resources(RunOptions(batch_tokens=1)))


def test_sides_of_different_width_are_told_with_both_widths() -> None:
    class Uneven(OfDicts):
        def encode_queries(self, queries: list[str], **kw: object) -> NDArray[np.float64]:
            return letters(queries)[:, :5]

    with pytest.raises(DataError, match="queries have vectors of 5 numbers, documents of 26"):
        ranked(Uneven())


def test_a_failing_encode_is_told_with_its_line_and_stays_the_cause() -> None:
    class Broken(OfDicts):
        def encode_corpus(self, corpus: Any, **kw: object) -> NDArray[np.float64]:
            raise RuntimeError("out of luck")

    with pytest.raises(
        DataError, match=r"test_user_models\.py, line \d+: RuntimeError: out of luck"
    ) as e:
        ranked(Broken())

    assert "Broken.encode_corpus failed in" in str(e.value)
    assert isinstance(e.value.__cause__, RuntimeError)


def test_a_model_that_runs_out_of_memory_gets_smaller_batches() -> None:
    batches: list[int] = []

    def small(texts: Sequence[str]) -> NDArray[np.float64]:
        if len(texts) > 1:
            raise RuntimeError("CUDA out of memory.")
        batches.append(len(texts))
        return letters(texts)

    ranked(small)

    assert set(batches) == {1}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a module into the working folder; the path is as before afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def written(name: str, code: str) -> str:
        (tmp_path / f"{name}.py").write_text(code)
        return name

    return written


def test_a_module_with_a_syntax_error_is_told_with_file_and_line(write: Write) -> None:
    write("unfinished", "x = 1\ndef y(:\n")

    with pytest.raises(
        DataError, match=r"importing unfinished .*failed in .*unfinished\.py, line 2"
    ):
        load_target("unfinished:X")


def test_a_module_that_needs_another_is_told_where_it_does(write: Write) -> None:
    write("needy", "import numpy\nimport nowhere_to_be_found\n")

    with pytest.raises(DataError, match=r"needy\.py, line 2: ModuleNotFoundError.*nowhere_to_be"):
        load_target("needy:X")


def test_a_class_that_fails_is_told_with_the_line_and_stays_the_cause(write: Write) -> None:
    write("failing", "class X:\n    def __init__(self):\n        raise TypeError('no weights')\n")

    with pytest.raises(
        DataError, match=r"X\(\) failed in .*, line 3: TypeError: no weights"
    ) as caught:
        load_target("failing:X")

    assert isinstance(caught.value.__cause__, TypeError)


def test_the_line_is_the_users_own_even_where_a_library_fails(write: Write) -> None:
    write("lawless", "import json\n\nclass X:\n    told = json.loads('{')\n")

    with pytest.raises(DataError, match=r"lawless\.py, line 4: JSONDecodeError"):
        load_target("lawless:X")


def test_a_module_that_exits_does_not_end_the_program(write: Write) -> None:
    write("leaving", "raise SystemExit('bye')\n")

    with pytest.raises(DataError, match=r"leaving\.py, line 1: SystemExit: bye"):
        load_target("leaving:X")


def test_a_model_may_import_from_the_working_folder_while_it_runs(write: Write) -> None:
    write("late_help", "def vectors(texts):\n    return [[len(text), 1.0] for text in texts]\n")
    write("late", "def encode(texts):\n    import late_help\n    return late_help.vectors(texts)\n")
    before = list(sys.path)

    assert r2med.evaluate("model:late:encode", own_task()).run.ranking("q1")
    load_target("late:encode")

    assert sys.path == [str(Path.cwd()), *before]


def test_what_a_model_prints_stays_off_the_results_stream(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    code = (
        "print('importing')\n"
        "class Loud:\n"
        "    def __init__(self):\n        print('making')\n"
        "    def encode(self, texts):\n"
        "        print('encoding')\n        return [[len(text), 1.0] for text in texts]\n"
    )
    write("loud", code)

    r2med.evaluate("model:loud:Loud", own_task())

    shown = capsys.readouterr()
    assert shown.out == ""
    assert all(word in shown.err for word in ("importing", "making", "encoding"))


def test_an_error_of_ours_passes_as_it_is() -> None:
    ours = UsageError("said already")

    with pytest.raises(UsageError) as caught, run_user_code("anything"):
        raise ours

    assert caught.value is ours


SIZED = """
class Sized:
    identity = "sized"

    def __init__(self, dim=3, scale=1.0, upper=False, name=None):
        self.settings = (dim, scale, upper, name)

    def encode(self, texts):
        dim, scale, upper, name = self.settings
        return [[scale * len(t), *([float(t.count("e"))] * (dim - 1))] for t in texts]

READY = Sized()

class Ranker:
    identity = "ranker"

    def __init__(self, scale=1.0):
        self.scale = scale

    def predict(self, pairs):
        return [self.scale * len(document) for _, document in pairs]
"""


def test_options_are_arguments_of_the_class(write: Write) -> None:
    write("sized", SIZED)
    spec = "model:sized:Sized[dim=64,scale=-2.5,upper=true,name=x]"

    model: Any = System.from_spec(spec).stage.retriever.custom_model  # type: ignore[union-attr]

    assert model.settings == (64, -2.5, True, "x")


@pytest.mark.parametrize("prefix", ["model:sized:Sized", "bm25 | own:sized:Ranker"])
def test_arguments_of_the_class_are_part_of_the_key(write: Write, prefix: str) -> None:
    write("sized", SIZED)

    first, second = (
        r2med.evaluate(f"{prefix}[scale={scale}]", "demo/biology") for scale in ("1", "-0.01")
    )

    assert first.record.key != second.record.key
    assert first.metrics != second.metrics


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("model:sized:Sized[size=3]", "unexpected keyword argument 'size'"),
        ("model:sized:READY[dim=3]", "is not a class, so it takes no options"),
    ],
)
def test_options_that_a_class_does_not_take_are_refused(write: Write, spec: str, told: str) -> None:
    write("sized", SIZED)

    with pytest.raises(UsageError, match=told):
        System.from_spec(spec)
