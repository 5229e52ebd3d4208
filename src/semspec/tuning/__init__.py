"""Tuning: a search for better settings on validation questions, by replay first and for real afterwards.

The models are greedy, so that an answer of `semantic` is a path through a tree: what the draft says next, how both
models see it, and what the target says instead follow from the text so far. Recorded once, thousands of rules and
probes can be tried on it without a model (replay.py, tape.py); what they would cost is counted (cost.py). `semspec
tune` is the Prefect flow flows/tune.py over the steps in command.py.
"""
