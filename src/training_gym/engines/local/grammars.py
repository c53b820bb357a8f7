"""Which tokens a grammar allows next: one matcher a request, over one tokenizer.

llguidance walks the grammar along the bytes of the tokens drawn. Tokens that end a turn are allowed
exactly where the grammar may end.
"""

from __future__ import annotations

from typing import Any

import torch

from training_gym.spec.errors import EngineError, FormError
from training_gym.spec.forms import Grammar
from training_gym.spec.sampling import Sampling
from training_gym.spec.text import TextCodec

_BYTE_BITS = 8


class Matcher:
    """A grammar on its way through one answer."""

    def __init__(self, matcher: Any) -> None:
        """Nothing is drawn yet."""
        self._matcher = matcher

    def allowed(self) -> torch.Tensor:
        """Which tokens may come next: (tokens,) of the tokenizer, on the CPU.

        Raises `EngineError` where the grammar is too intricate to be followed any further.
        """
        packed = self._matcher.compute_bitmask()
        if self._matcher.is_error():
            raise EngineError(
                f"a form could not be followed: {_line(self._matcher.get_error())}",
                fix="take a simpler schema",
            )
        places = torch.arange(_BYTE_BITS, dtype=torch.uint8)
        octets = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
        return ((octets.unsqueeze(1) >> places) & 1).flatten().bool()

    def take(self, token: int) -> None:
        """The token was drawn; one of those that were allowed."""
        self._matcher.consume_token(token)

    def begin_again(self) -> None:
        """Nothing is drawn."""
        self._matcher.reset()


class Grammars:
    """Makes matchers for one model's tokenizer."""

    def __init__(self, codec: TextCodec) -> None:
        """The tokenizer is prepared at the first grammar: it takes a second where it is large."""
        self._codec = codec
        self._tokenizer: Any = None

    def matcher(self, sampling: Sampling) -> Matcher:
        """A matcher of the form at the beginning of an answer.

        Raises:
            EngineError: llguidance is not installed.
            FormError: the form is no grammar, or asks for what cannot be held.
        """
        grammar = _held(sampling)
        llguidance = _llguidance()
        if self._tokenizer is None:
            self._tokenizer = llguidance.LLTokenizer(
                self._codec.tokenizer_json(),
                n_vocab=self._codec.vocab_size,
                eos_token=sorted(self._codec.stop_ids),
            )
        made = llguidance.LLMatcher(self._tokenizer, grammar.lark, log_level=0)
        if made.is_error():
            raise FormError(
                f"this form cannot be held: {_line(made.get_error())}",
                fix="take a schema without it, or leave the form open",
            )
        return Matcher(made)


def _held(sampling: Sampling) -> Grammar:
    """The grammar; raises `FormError` where it is none, or goes with nothing else asked for."""
    if not isinstance(sampling.form, Grammar):
        raise FormError(
            "a sampler takes a grammar, not the form of an answer",
            fix="ask a policy, which knows the model's template",
        )
    if sampling.min_tokens:
        raise FormError(
            f"min_tokens = {sampling.min_tokens} and a form: where the form is complete, an answer "
            "can only end",
            fix="leave min_tokens out, and let the schema say how much is wanted",
        )
    return sampling.form


def _llguidance() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise EngineError(
            "holding answers to a form needs llguidance, which is not installed",
            fix="pip install 'training-gym[structured]'",
        ) from error
    return llguidance


def _line(text: str) -> str:
    """The first line of an error, as far as it can be shown."""
    return next((line for line in text.splitlines() if line.strip()), "no reason is given")[:200]
