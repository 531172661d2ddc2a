"""The explorer: stored results, published figures and task data as pages of a web browser."""
