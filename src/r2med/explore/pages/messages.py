"""Pages that say what is wrong, and what to do."""

from __future__ import annotations

from r2med.explore.render import Link, render

_TITLES = {
    400: "The address asks for something unknown",
    403: "This is not allowed here",
    404: "Not here",
    422: "This cannot be shown",
}


def message_page(status: int, problem: str, link: Link) -> str:
    """A refusal as a page: what was found, what was expected, the way back."""
    first, _, rest = problem.partition("\n")
    title = _TITLES.get(status, "This did not work")
    return render("message.html", link, page="", title=title, first=first, rest=rest.splitlines())
