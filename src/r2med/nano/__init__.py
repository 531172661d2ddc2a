"""NanoR2MED: build a compact task from any task, add candidates, and profile it."""

from r2med.nano.folder import add_candidates, build
from r2med.nano.pool import NanoPool, Recipe, make_pool
from r2med.nano.profiles import profile

__all__ = ["NanoPool", "Recipe", "add_candidates", "build", "make_pool", "profile"]
