"""Prompts of the rerankers that ask a language model, one file per style."""
