"""What speculation costs and what it can gain, before anybody trains a probe.

cost.py times one model's passes and adds up counted ones; gain.py is arithmetic on such times; command.py
measures this machine, says what can win on it, and checks itself against a finished bench. Knows engines; knows no
method's code.
"""
