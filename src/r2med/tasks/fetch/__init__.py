"""Bringing the data of registered tasks here: from the hub, or from files the user has."""
