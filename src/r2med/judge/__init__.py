"""Relevance judged by language models and by people.

The Python API for other packages, in the order in which it is used:

    rubric = find_rubric("reasoning")                  # rubric: TOML as a validated value
    panel = open_panel(["gpt4"], rubric, remote)       # panel: judge models, one budget
    items = [Item(query_id, item_id, texts)]           # texts fill the rubric's prompt; no ids
    panel.estimate(items)                              # cost, before anything is asked
    judgements = panel.ask(items)                      # votes, combined scores, grade, rationale
    rubric.is_relevant(judgement.grade)                # True, False, None = undecided

Stored judgements belong to a named set (`store`), which a review by people then checks:

    judged = JudgementStore(results, warn=warn).open(SetDescription(...))
    judged.add(judgements)                             # append-only, on disk when it returns
    judged.grades()                                    # {(query id, item id): grade}
    measure_agreement({"ann": labels, "judge": judged.grades()}, rubric.scale).alpha

People label the same items on the same scale (`review`, `review_files`, and the page in
`explore.review`, which takes any queue and any function from a pair to its texts):

    store = ReviewStore(results, task_name, suite, warn=warn)
    queue = store.open(build_queue(task, sets))          # or ReviewQueue(rubric, pairs, checks)
    store.add(label_pair(queue, reviewer, pair, label))
    store.labels(), store.disagreements(), store.final_labels()
    measure_agreement(store.labels(), rubric.scale).alpha.value          # a threshold to reach
    calibrate(judge, grades, known, rubric, task).detection.precision    # judge against people

For pairs of a task, `pool.pool_runs` chooses the pairs, `pool.sample_calibration` the pairs to
calibrate the judge on, and `judging.judge_pool` asks, stores, resumes and stops a judge whose
answers cannot be read. Grades and labels share the rubric's scale, so that judges and people are
compared directly. A rubric for other material declares other fields, for example question,
reference and response for generated answers.

`added.choose_judgements` returns the judgements that `--judgements` selects, `rescore` measures
stored results with them, `effects` and `reporting` show the changes.

Modules: `rubric`, `grades` (the one reader of answers), `panel`, `pool`, `judging`, `store`,
`log` (append-only records), `agreement`, `calibration`, `added`, `rescore`, `effects`,
`reporting`, `review`, `review_files`, `review_report`, `spreadsheet`, `families`, `listing`.
"""
