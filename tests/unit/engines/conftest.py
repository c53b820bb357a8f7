import pytest
import torch

from training_gym.engines.local.compute import Compute
from training_gym.engines.local.network import Network
from training_gym.models.weights import load_codec, load_model
from training_gym.models.weights.tiny import tiny_model


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("tiny") / "llama", "llama")


@pytest.fixture
def codec(tiny_folder):
    return load_codec(tiny_folder)


@pytest.fixture
def network(tiny_folder):
    model = load_model(tiny_folder, dtype="float32", device="cpu")
    # Random weights give nearly uniform logits; scaled up, answers depend on their prompt.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(6.0)
    model.eval()
    return Network(model)


@pytest.fixture
def compute():
    made = Compute()
    yield made
    made.close()
