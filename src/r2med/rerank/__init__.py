"""Second stage: putting the documents that a first stage found in a better order."""
