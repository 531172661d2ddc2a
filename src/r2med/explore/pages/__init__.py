"""The pages of the explorer: each module prepares the content of a page and renders the HTML."""
