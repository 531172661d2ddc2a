"""Get the data of registered tasks from the hub or from the user's files."""
