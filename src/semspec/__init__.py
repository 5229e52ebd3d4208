"""Semantic speculative decoding: labels, probes, decoding methods, their comparison. See docs/development.md."""
