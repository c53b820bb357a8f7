"""A run that trains an adapter: its checkpoints know their base, and go on over nothing else."""

import shutil

from training_gym.models.base_weights import recorded_base, weights_sha256
from training_gym.models.weights import load_model, merge_adapter
from training_gym.models.weights.tiny import tiny_model
from training_gym.records.checkpoints import list_checkpoints


def test_an_adapters_checkpoint_goes_on_over_its_own_base_only(define, play, engine, tmp_path):
    base = tiny_model(tmp_path / "base")
    sets = ('adapter={"rank": 2}', "num_steps=2", "checkpoints.every=1", "checkpoints.keep=9")
    played = play(define(model=base), *(f"recipe.{given}" for given in sets))
    assert played.code == 0, played.error
    first, last = list_checkpoints(played.run)
    assert {first.kind, last.kind} == {"adapter"}
    assert first.base_sha256 == weights_sha256(base) == recorded_base(last.folder)
    merge_adapter(last.folder, tmp_path / "merged")
    load_model(tmp_path / "merged", dtype="float32", device="cpu")

    shutil.rmtree(last.folder)
    weights = tiny_model(tmp_path / "other", seed=1) / "model.safetensors"
    kept = (base / "model.safetensors").read_bytes()
    shutil.copyfile(weights, base / "model.safetensors")
    refused = engine(played.run, 2)
    assert refused.code != 0
    assert "trained over other weights" in refused.error["message"]
    (base / "model.safetensors").write_bytes(kept)
    assert engine(played.run, 3).code == 0
    assert list_checkpoints(played.run)[-1].sha256 == last.sha256
