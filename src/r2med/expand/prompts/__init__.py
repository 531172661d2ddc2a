"""Prompts as data: `<method>/<kind>.toml`, in the form that docs/generation.md describes."""
