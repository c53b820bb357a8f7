import pytest

from training_gym.jobs.environment import engine_environment, inherited, require_secrets, withheld
from training_gym.spec.errors import PlatformError
from training_gym.testing.fake_engine import tiny_job

SECRETS = [
    "HF_TOKEN",
    "OPENAI_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "DB_PASSWORD",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "token",
    "MY_SECRETS",
]
HARMLESS = ["PATH", "HOME", "TOKENIZERS_PARALLELISM", "KEYBOARD", "SSH_AUTH_SOCK", "MAX_TOKENS_X"]


def test_secrets_pass_only_by_name():
    job = tiny_job("r1").changed(secrets=("HF_TOKEN",))
    environ = dict.fromkeys([*SECRETS, *HARMLESS[:-1]], "x")
    assert withheld(job, environ) == sorted(SECRETS[1:])
    assert set(inherited(job, environ)) == {"HF_TOKEN", *HARMLESS[:-1]}


def test_a_secret_that_is_not_set_is_named():
    job = tiny_job("r1").changed(secrets=("HF_TOKEN",))
    require_secrets(job, {"HF_TOKEN": "x"})
    with pytest.raises(PlatformError, match="'HF_TOKEN' is not set") as caught:
        require_secrets(job, {})
    assert "export HF_TOKEN" in caught.value.fix


def test_the_engine_gets_the_jobs_variables_and_ours(run):
    job = tiny_job("r1").changed(env={"A": "job", "PYTHONPATH": "/lib"})
    around = {"A": "outer", "B": "outer", "TRAINING_GYM_RUN": "/another", "PYTHONPATH": "/x"}
    env = engine_environment(job, run, 3, around)
    assert env == {
        "A": "job",
        "B": "outer",
        "PYTHONPATH": f"{run.source}:/lib",
        "PYTHONUNBUFFERED": "1",
        "TRAINING_GYM_INSIDE_JOB": "1",
        "TRAINING_GYM_RUN": str(run.path),
        "TRAINING_GYM_ATTEMPT": "3",
    }
    assert engine_environment(tiny_job("r1"), run, 1, {})["PYTHONPATH"] == str(run.source)
