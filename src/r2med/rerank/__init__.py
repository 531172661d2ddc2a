"""Second stage: put the documents that a first stage found in a better order."""
