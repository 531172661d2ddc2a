"""Results: what a system did on a task, stored so that it is never run twice."""
