"""One module per page: its content as plain values, and the HTML of it."""
