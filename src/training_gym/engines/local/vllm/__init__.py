"""Sampling by vLLM in the trainer's process, where that package is installed.

vLLM keeps its own copy of the weights, which every update writes over in place. Its
log-probabilities are those of the distribution that it drew from. What it computes together depends
on the clock, so no run with it repeats bit for bit.
"""
