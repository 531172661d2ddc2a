"""How work is done: systems on tasks, in this process."""

from r2med.engine.evaluate import evaluate

__all__ = ["evaluate"]
