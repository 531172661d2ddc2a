"""Get the data of registered tasks: from the hub, or from files of the user."""
