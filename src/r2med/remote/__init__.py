"""Clients for models behind HTTP: registry, requests, prices and limits, and cached answers."""
