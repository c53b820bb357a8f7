"""No run, and no home, keeps others from being looked at."""

from training_gym.records.demo import DemoShape, write_demo_run
from training_gym.records.documents import read_document, write_document
from training_gym.records.index import Index, housing, index
from training_gym.records.index.housing import index_folder


def test_a_run_that_cannot_be_indexed_is_one_row_of_the_list(tmp_path, monkeypatch):
    for run_id in ("fine", "odd"):
        write_demo_run(tmp_path / "runs", DemoShape(steps=3, groups=1), run_id=run_id)
    real = index.bring_up_to_date

    def upset(run, connection):
        if run.run_id == "odd":
            raise OverflowError("intermediate overflow")
        return real(run, connection)

    monkeypatch.setattr(index, "bring_up_to_date", upset)
    shown = Index(tmp_path / "runs", tmp_path / "cache").runs()
    problems = {row.run_id: row.problem for row in shown.runs}
    assert problems["fine"] == ""
    assert problems["odd"] == "odd cannot be indexed: OverflowError: intermediate overflow"


def test_a_home_that_cannot_be_written_has_an_index_that_passes(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("in the way")
    (tmp_path / "runs").mkdir()
    monkeypatch.setattr(housing, "runs_directory", lambda: tmp_path / "runs")
    monkeypatch.setattr(housing, "cache_directory", lambda: tmp_path / "cache")
    folder = index_folder()
    assert folder.is_dir()
    assert tmp_path not in folder.parents
    (tmp_path / "cache").unlink()
    assert index_folder() == tmp_path / "cache" / "index"


def test_looking_at_a_home_without_runs_leaves_nothing_there(tmp_path, monkeypatch):
    monkeypatch.setattr(housing, "cache_directory", lambda: tmp_path / "cache")
    monkeypatch.setattr(housing, "runs_directory", lambda: tmp_path / "runs")
    assert index_folder().is_dir()
    assert list(tmp_path.iterdir()) == []


def test_a_later_attempt_makes_the_reason_of_the_last_result_void(tmp_path):
    run = write_demo_run(tmp_path / "runs", DemoShape(steps=5, groups=1))
    death = "the engine was killed by SIGKILL"
    ended = {**read_document(run.result_path), "status": "failed", "reason": death}
    write_document(run.result_path, ended)
    shown = Index(tmp_path / "runs", tmp_path / "cache")
    assert death in shown.overview(run.run_id).row.verdict
    write_document(run.attempt(ended["attempts"] + 1) / "intent.json", {})
    assert death not in shown.overview(run.run_id).row.verdict
