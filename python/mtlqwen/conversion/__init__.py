"""Quantises weights to the formats of GGUF."""
