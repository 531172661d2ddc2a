"""Make a benchmark from questions and documents, in stages that leave readable files.

One folder per benchmark (`folder`), one module per stage:

    items     questions with a hidden answer and a reasoning path
    corpus    documents split into passages
    pool      candidates that several systems find from three views
    judge     grades of a language model for every candidate
    review    labels of people for a sample of them
    freeze    the task in the layout of R2MED, with a card and a manifest
    check     whether the frozen benchmark can be trusted

Every stage writes a `BuildRecord`; `funnel` turns the records into counts from question to query.
"""
