import pytest

from training_gym.models.weights import load_codec
from training_gym.models.weights.tiny import byte_tokenizer
from training_gym.spec.episodes import Counters
from training_gym.spec.messages import user
from training_gym.spec.tasks import Task


@pytest.fixture(scope="session")
def codec(tmp_path_factory):
    """The tiny models' tokenizer and ChatML template, one token a byte."""
    folder = tmp_path_factory.mktemp("codec")
    byte_tokenizer((), 2048, chat_template=True).save_pretrained(folder)
    return load_codec(folder)


@pytest.fixture
def task():
    return Task(id="t", prompt=(user("Say it."),), answer="it", split_key="t")


@pytest.fixture
def counters():
    return Counters(batch=0, optimizer_step=0, policy_version=0)
