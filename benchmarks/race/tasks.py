"""The two tasks of the race, the same for both sides. Standard library only."""

import random
import re

TOPICS = (
    "autumn rain", "a sleeping cat", "the first snow", "city lights", "an old clock", "the sea",
    "morning tea", "a lost letter", "summer heat", "the night train", "a stone bridge", "bees",
    "an empty chair", "moonlight", "a kite", "the harbour", "frost", "a river bend", "fireflies",
    "the last bus", "wild geese", "a mountain hut", "fog", "ripe plums",
)  # fmt: skip


def rows(task: str) -> list[dict[str, str]]:
    """Prompts, and the answers where there are any; the same order for everybody."""
    if task == "haiku":
        asked = "Write a haiku about {}: three lines of five, seven and five syllables. Lines only."
        return [{"prompt": asked.format(topic), "answer": ""} for topic in TOPICS]
    found = [
        {"prompt": f"{a}{b}+{c}{d}=", "answer": f"{a + c}{b + d}"}
        for a in range(1, 5)
        for b in range(5)
        for c in range(1, 5)
        for d in range(5)
    ]
    random.Random(7).shuffle(found)
    return found[80:]


def careless(sums: list[dict[str, str]], seed: int) -> list[dict[str, str]]:
    """Each sum twice, as a teacher answers it who slips a place in seven of ten."""
    draw = random.Random(seed)
    return [{**row, "answer": row["answer"] + "0" * (draw.random() < 0.72)} for row in sums * 2]


def score(task: str, text: str, answer: str) -> float:
    """Between 0 and 1."""
    if task.startswith("arithmetic"):
        return float(text.strip() == answer)
    lines = [line for line in text.strip().splitlines() if line.strip()]
    form = [_near(_syllables(line), wanted) for line, wanted in zip(lines, (5, 7, 5), strict=False)]
    return sum(form) / 3 - 0.2 * abs(len(lines) - 3) if lines else 0.0


def _near(found: int, wanted: int) -> float:
    return max(0.0, 1 - abs(found - wanted) / wanted)


def _syllables(line: str) -> int:
    """Groups of vowels, a silent e at the end left out: near enough, and the same for both."""
    words = re.findall(r"[a-z]+", line.lower())
    return sum(max(1, len(re.findall(r"[aeiouy]+", re.sub(r"e$", "", word)))) for word in words)
