"""Writes GGUF files from checkpoints of Hugging Face: quantised, with their prediction head.

Needs nothing but NumPy; no engine runs.
"""

from mtlqwen.conversion.to_gguf import convert

__all__ = ["convert"]
