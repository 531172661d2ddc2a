"""The embedding store: vectors by model and text, which are never computed twice.

Written by hand because it must survive a kill at any moment, be shared by processes and be
mapped into memory, and be safe to read from a stranger: plain numbers, no pickle.
"""

from r2med.retrieve.dense.store.catalogue import StoredModel, stored_models
from r2med.retrieve.dense.store.shelf import DiskShelf, Shelf, open_shelf

__all__ = ["DiskShelf", "Shelf", "StoredModel", "open_shelf", "stored_models"]
