import gzip
import hashlib
import io
import os
import tarfile

import pytest

from training_gym.jobs.source import pack, unpack
from training_gym.spec.errors import SourceError


def archive_of(*members):
    """A tar.gz made by somebody less careful, and its hash."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    data = buffer.getvalue()
    return data, hashlib.sha256(data).hexdigest()


def test_the_same_files_give_the_same_bytes(tmp_path):
    script = tmp_path / "script.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    first = pack({"b.py": b"b", "a/c.sh": script})
    os.utime(script, (1, 1))
    assert pack({"a/c.sh": script, "b.py": b"b"}) == first
    assert hashlib.sha256(first[0]).hexdigest() == first[1]
    with tarfile.open(fileobj=io.BytesIO(first[0])) as archive:
        assert [(m.name, m.mode, m.mtime, m.uid, m.uname) for m in archive] == [
            ("a/c.sh", 0o755, 0, 0, ""),
            ("b.py", 0o644, 0, 0, ""),
        ]


def test_what_was_packed_comes_out(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text("x")
    script.chmod(0o700)
    data, sha256 = pack({"pkg/mod.py": "ä = 1".encode(), "run.sh": script, "empty": b""})
    (tmp_path / "a.tar.gz").write_bytes(data)
    unpack(tmp_path / "a.tar.gz", tmp_path / "out", sha256)
    assert (tmp_path / "out" / "pkg" / "mod.py").read_text() == "ä = 1"
    assert os.access(tmp_path / "out" / "run.sh", os.X_OK)
    assert (tmp_path / "out" / "empty").read_bytes() == b""
    assert sorted(os.listdir(tmp_path)) == ["a.tar.gz", "out", "run.sh"]


def test_again_keeps_what_the_job_wrote_and_another_archive_replaces_all(tmp_path):
    first, second = pack({"a.py": b"1"}), pack({"b.py": b"2"})
    unpack(*[first[0], tmp_path / "out"], first[1])
    (tmp_path / "out" / "notes.txt").write_text("mine")
    unpack(first[0], tmp_path / "out", first[1])
    assert (tmp_path / "out" / "notes.txt").exists()
    unpack(second[0], tmp_path / "out", second[1])
    assert [n for n in os.listdir(tmp_path / "out") if not n.startswith(".")] == ["b.py"]


def test_another_hash_is_refused(tmp_path):
    data, sha256 = pack({"a.py": b"1"})
    with pytest.raises(SourceError, match="has hash"):
        unpack(data + b"x", tmp_path / "out", sha256)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "a\\b", "", ".", "a\0b"])
def test_no_path_leads_out_of_the_folder(tmp_path, name):
    with pytest.raises(SourceError, match="not a path below"):
        pack({name: b""})
    if "\0" not in name and name:
        data, sha256 = archive_of((tarfile.TarInfo(name), b"x"))
        with pytest.raises(SourceError, match="not a path below"):
            unpack(data, tmp_path / "deep" / "out", sha256)
    assert list(tmp_path.rglob("*x")) == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    member = tarfile.TarInfo("link")
    member.type, member.linkname = kind, "/etc/passwd"
    data, sha256 = archive_of((member, b""))
    with pytest.raises(SourceError, match="not a plain file"):
        unpack(data, tmp_path / "out", sha256)
    assert os.listdir(tmp_path) == []


def test_what_is_no_archive_is_said(tmp_path):
    for data in (b"nonsense", gzip.compress(b"nonsense" * 200)):
        with pytest.raises(SourceError, match="cannot be read"):
            unpack(data, tmp_path / "out", hashlib.sha256(data).hexdigest())
    with pytest.raises(SourceError, match="No such file"):
        unpack(tmp_path / "absent", tmp_path / "out", "0")
    with pytest.raises(SourceError, match="No such file"):
        pack({"a.py": tmp_path / "absent.py"})
