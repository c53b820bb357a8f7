"""Answers of lengths agreed on beforehand, for `transformers' generate`."""

import torch
from transformers import LogitsProcessor


class FixedLengths(LogitsProcessor):
    """Row i ends after its own number of tokens, not before: what both sides agreed on."""

    def __init__(self, prompt_tokens, lengths, end):
        self.prompt_tokens, self.end = prompt_tokens, end
        self.lengths = torch.tensor(lengths)

    def __call__(self, input_ids, scores):
        done = input_ids.shape[1] - self.prompt_tokens >= self.lengths - 1
        scores[:, self.end] = float("-inf")
        scores[done] = float("-inf")
        scores[done, self.end] = 0.0
        return scores
