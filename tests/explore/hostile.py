"""A task whose ids and texts try to become markup, scripts, attributes and control characters."""

from __future__ import annotations

import json
from pathlib import Path

SCRIPT = "<script>document.title='taken'</script>"
ATTRIBUTE = '"><img src=x onerror="document.title=\'taken\'">'
CONTROL = "fever\x00\x07\x1b[31m\u202eand chills"
QUERY = f"fever {SCRIPT} {ATTRIBUTE} {{{{ 7 * 7 }}}}"
DOCUMENTS = {
    "plain": "fever and cough",
    SCRIPT: f"fever {SCRIPT} </td></table>",
    ATTRIBUTE: f"cough {ATTRIBUTE}",
    "../../etc/passwd": CONTROL,
}


def write_hostile_task(folder: Path) -> Path:
    """A folder in the reference layout."""
    folder.mkdir(parents=True)
    files: dict[str, list[dict[str, object]]] = {
        "corpus.jsonl": [{"id": name, "text": text} for name, text in DOCUMENTS.items()],
        "query.jsonl": [
            {"id": "../q", "text": QUERY, "answer": ATTRIBUTE, "body_system": SCRIPT},
            {"id": SCRIPT, "text": CONTROL, "answer": "", "body_system": ""},
        ],
        "qrels.jsonl": [
            {"q_id": "../q", "p_id": "plain", "score": 1},
            {"q_id": "../q", "p_id": SCRIPT, "score": 1},
            {"q_id": SCRIPT, "p_id": ATTRIBUTE, "score": 1},
        ],
    }
    for name, rows in files.items():
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / name).write_text(text, encoding="utf-8")
    return folder
