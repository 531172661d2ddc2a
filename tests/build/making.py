"""A small benchmark in the making: items in the shapes of their sources, passages, and a server.

All medical texts here are written for these tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from r2med.build.folder import BuildFolder, BuildRecord, hash_file, write_rows
from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources
from tests.llm_server import LLMServer

#: Case, what is asked, answer, a passage that states the answer, a passage on the reasoning.
CASES = [
    ("A 24-year-old man coughs up blood and passes brown urine. Linear deposits of antibodies "
     "line the glomerular basement membrane.", "diagnosis", "Goodpasture syndrome",
     "Goodpasture syndrome joins lung haemorrhage with rapidly progressive nephritis.",
     "Antibodies against type IV collagen bind the basement membranes of alveoli and glomeruli."),
    ("A 31-year-old woman has drooping eyelids that worsen towards the evening and double vision "
     "after reading.", "diagnosis", "Myasthenia gravis",
     "Myasthenia gravis is a fluctuating weakness that rest relieves.",
     "Antibodies against acetylcholine receptors block transmission at the motor end plate."),
    ("A 58-year-old man with long-standing heartburn has columnar cells with goblet cells in the "
     "lower gullet.", "diagnosis", "Barrett oesophagus",
     "Barrett oesophagus is the replacement of squamous by intestinal mucosa.",
     "Chronic acid reflux induces metaplasia, from which adenocarcinoma may arise."),
    ("A 45-year-old man woke with a hot, swollen big toe after a feast with beer.", "test",
     "Synovial fluid analysis",
     "Synovial fluid analysis shows needle-shaped, negatively birefringent urate crystals.",
     "Urate precipitates in cool peripheral joints, and crystals attract neutrophils."),
    ("A 67-year-old smoker has sudden tearing pain between the shoulder blades and unequal pulses "
     "in the arms.", "test", "CT angiography",
     "CT angiography demonstrates the intimal flap of an aortic dissection within minutes.",
     "Blood enters the media through a tear and can close the branches of the aorta."),
    ("A 29-year-old woman has a tender swelling in front of the neck two weeks after a cold, with "
     "tremor and a fast pulse.", "diagnosis", "Subacute thyroiditis",
     "Subacute thyroiditis follows a viral infection and hurts.",
     "Destruction of follicles releases stored hormone, so iodine uptake is low."),
    ("A 4-year-old boy limps, has no fever, and the femoral head is flattened on the film.",
     "diagnosis", "Legg-Calvé-Perthes disease",
     "Legg-Calvé-Perthes disease is an avascular necrosis of the growing femoral head.",
     "The blood supply of the epiphysis depends on few vessels between four and eight years."),
    ("A 72-year-old woman has a new headache at the temple, pain while chewing and a high "
     "sedimentation rate.", "treatment", "Prednisone",
     "Prednisone is started at once when giant cell arteritis is suspected.",
     "Granulomatous inflammation of the ophthalmic branches threatens sight."),
    ("A 19-year-old student has fever, a stiff neck and purple spots that do not fade under "
     "glass.", "treatment", "Ceftriaxone",
     "Ceftriaxone reaches the cerebrospinal fluid and kills meningococci.",
     "Meningococcal endotoxin damages vessels and leads to purpura and shock."),
    ("A 36-year-old gardener has a painless nodule on the finger and further nodules along the "
     "lymph vessels of the arm.", "treatment", "Itraconazole",
     "Itraconazole for three to six months cures lymphocutaneous sporotrichosis.",
     "Sporothrix enters through thorns and spreads along lymphatic channels."),
    ("A 50-year-old woman on lithium drinks eight litres of water a day and her urine stays "
     "dilute.", "mechanism", "Resistance of the collecting duct to vasopressin",
     "Resistance of the collecting duct to vasopressin explains dilute urine under lithium.",
     "Lithium enters principal cells through sodium channels and lowers aquaporin expression."),
    ("A 27-year-old runner from the tropics has fever every third day and a large spleen.",
     "diagnosis", "Vivax malaria",
     "Vivax malaria returns after months from hypnozoites in the liver.",
     "Red cells burst every forty-eight hours when schizonts mature."),
]  # fmt: skip
ASKS = {
    "diagnosis": "Which of the following is the most likely diagnosis?",
    "test": "Which of the following tests confirms the condition?",
    "treatment": "Which of the following is the best treatment?",
    "mechanism": "Which mechanism explains this finding?",
}
_FIELD = re.compile(
    r"Question:\n(?P<query>.*?)\n\nReference answer:\n(?P<answer>.*?)\n\nReasoning[^\n]*\n"
    r"(?P<reasoning>.*?)\n\nPassage:\n(?P<passage>.*?)\n\nGive two scores",
    re.DOTALL,
)
_TEXT = re.compile(r"Text:\n(.*?)\n\nCorrect answer", re.DOTALL)


def medqa_rows() -> list[dict[str, Any]]:
    """Items in the shape of MedQA."""
    answers = [case[2] for case in CASES]
    return [
        {
            "id": str(index),
            "question": f"{text} {ASKS[asked]}",
            "answer": answer,
            "options": dict(zip("ABCD", (answers * 2)[index : index + 4], strict=True)),
        }
        for index, (text, asked, answer, _, _) in enumerate(CASES)
    ]


def passages(fillers: int = 60) -> list[dict[str, str]]:
    """Two supporting passages per case, and fillers that support nothing."""
    rows = []
    for index, (_, _, _, stated, reasoned) in enumerate(CASES):
        rows += [
            {"id": f"book-{index}#1", "text": stated},
            {"id": f"book-{index}#2", "text": reasoned},
        ]
    rows += [
        {
            "id": f"filler#{index}",
            "text": f"Ward report {index}: the patient and the woman in bed {index} slept well, "
            "the pulse was regular, pain was absent and the urine clear.",
        }
        for index in range(fillers)
    ]
    return rows


def write_corpus(folder: BuildFolder, rows: Sequence[Mapping[str, str]] | None = None) -> None:
    """Write the files of the corpus stage."""
    rows = passages() if rows is None else rows
    write_rows(folder.corpus_path, rows)
    write_rows(
        folder.passages_path,
        (
            {
                "id": row["id"],
                "source": f"{row['id'].partition('#')[0]}.txt",
                "section": "",
                "licence": "CC0",
                "start": 0,
                "end": len(row["text"]),
                "distractor": row["id"].startswith("filler"),
            }
            for row in rows
        ),
    )
    folder.write_record(
        BuildRecord(
            stage="corpus",
            counts_in={"documents": len(rows)},
            counts_out={"passages": len(rows)},
            outputs={"corpus/corpus.jsonl": hash_file(folder.corpus_path)},
        )
    )


def make_folder(path: Path, **tables: Mapping[str, object]) -> BuildFolder:
    """Create a build folder with MedQA items; `tables` replace settings of stages."""
    path.mkdir(parents=True, exist_ok=True)
    write_rows(path / "medqa.jsonl", medqa_rows())
    settings: dict[str, dict[str, object]] = {
        "benchmark": {"name": "tiny", "title": "Tiny", "licence": "CC0"},
        "items": {"model": "writer", "reasoning": "model"},
        "pool": {"systems": ["bm25", "bm25-nano", "wordllama"], "depth": 5},
        "judge": {"judges": ["judge"], "rubric": "reasoning"},
        "review": {"size": 20},
        "freeze": {"drop_if_lexical_ndcg": "none"},
    }
    for name, table in tables.items():
        settings[name] = {**settings.get(name, {}), **table}
    lines = []
    for name, table in settings.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    lines += ["[[items.sources]]", 'path = "medqa.jsonl"', 'format = "medqa"', 'licence = "CC0"']
    (path / "build.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return BuildFolder(path)


def resources_of(server: LLMServer) -> Resources:
    return Resources(RunOptions(llm_url=server.url), warn=lambda _: None)


def reply(body: Mapping[str, Any]) -> str:
    """Answer every prompt of a build as a careful model would."""
    text = str(body["messages"][-1]["content"])
    if match := _FIELD.search(text):
        return json.dumps({**grade(match), "rationale": "as read"})
    if '"usable"' in text:
        asked = next(asked for asked, phrase in ASKS.items() if phrase in text)
        return json.dumps({"type": asked, "usable": True, "reason": ""})
    if match := _TEXT.search(text):
        return json.dumps({"query": match[1].replace("Which of the following", "Which")})
    if '"reasoning"' in text:
        case = next(case for case in CASES if case[2] in text)
        return json.dumps({"reasoning": case[4]})
    return json.dumps({"answer": "I do not know"})


def grade(match: re.Match[str]) -> dict[str, int]:
    case = next(case for case in CASES if case[2] == match["answer"])
    if match["passage"] in case[3:]:
        return {"answer": 3, "reasoning": 3}
    other = any(match["passage"] in other_case[3:] for other_case in CASES)
    return {"answer": 2, "reasoning": 2} if other else {"answer": 0, "reasoning": 1}
