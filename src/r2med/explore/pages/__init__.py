"""One module per page: what it says, from plain values, and the HTML of it."""
