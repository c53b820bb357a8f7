r"""Text around a prompt: `{input}` is the prompt, `{column}` another column of the row.

Only a name in braces is a placeholder, so LaTeX such as `\boxed{}` stands as it is written;
`{{name}}` is the literal text `{name}`.
"""

from __future__ import annotations

import re

from training_gym.data.rows import Row
from training_gym.spec.errors import DataError, did_you_mean

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}|\{([A-Za-z_]\w*)\}")


class Template:
    """A template, read once and filled for every row."""

    def __init__(self, text: str) -> None:
        """Raises `DataError` if the prompt has no place in it."""
        self._text = text
        names = [match[2] for match in _PLACEHOLDER.finditer(text) if match[2]]
        if "input" not in names:
            raise DataError(
                f"template={text!r:.60} has no place for the prompt",
                fix="write {input} where the prompt goes",
            )

    @property
    def is_plain(self) -> bool:
        """Whether it adds nothing to the prompt."""
        return self._text == "{input}"

    def fill(self, prompt: str, row: Row, output_column: str | None) -> str:
        """The text for one row; raises `DataError` for a name that is no column of it."""
        if self.is_plain:
            return prompt

        def value(match: re.Match[str]) -> str:
            if match[1] is not None:
                return "{" + match[1] + "}"
            name = match[2]
            if name == "input":
                return prompt
            if name == output_column:
                raise DataError(
                    f"the template shows the model the expected answer: {{{name}}}",
                    fix=f"leave it out, or write {{{{{name}}}}} for the literal text {{{name}}}",
                )
            if name not in row.columns:
                raise DataError(
                    f"{row.where} has no column {name!r} for the template",
                    fix=f"{did_you_mean(name, ['input', *row.columns])}; write {{{{{name}}}}} for "
                    f"the literal text {{{name}}}",
                )
            column = row.columns[name]
            return "" if column is None else str(column)

        return _PLACEHOLDER.sub(value, self._text)
