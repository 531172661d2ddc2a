"""Published figures: what was printed for each system, with where it was printed."""

from r2med.results.published.figures import (
    CONTRAST,
    PublishedSystem,
    is_micro,
    published_systems,
)

__all__ = ["CONTRAST", "PublishedSystem", "is_micro", "published_systems"]
