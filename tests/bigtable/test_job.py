"""The folder of a job: its manifest and its lock."""

import os

import pytest

from vfg.bigtable.job import LOCK, MANIFEST, Manifest, job_folder, lock_folder

JOB = {"input": "1", "model": "2", "filling": {"draws": None}, "versions": ["a", "b"]}


def test_a_manifest_survives_its_file(tmp_path):
    manifest = Manifest(JOB, {"part-00000.parquet": 10}, rows=10)
    assert Manifest.from_json(manifest.to_json(), tmp_path) == manifest


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"version": 9}', b"\xff", b'{"version": 1}'])
def test_other_files_are_no_manifest(tmp_path, data):
    (tmp_path / MANIFEST).write_bytes(data)
    with pytest.raises(ValueError, match="is not a readable manifest"), job_folder(tmp_path, JOB):
        pass


def test_a_job_goes_on_where_it_was(tmp_path):
    with job_folder(tmp_path / "job", JOB) as folder:
        (folder.folder / "part-0").touch()
        folder.finish_shard("part-0", 5)
        folder.finish_shard("part-1", 5)
    (tmp_path / "job" / ".vfg-leftover").touch()
    with job_folder(tmp_path / "job", JOB) as folder:
        assert folder.has("part-0")
        assert not folder.has("part-1")  # its file is gone
        assert not folder.has("part-2")
        folder.finish(10)
    assert sorted(os.listdir(tmp_path / "job")) == [LOCK, MANIFEST, "part-0"]


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("input", "input has changed"),
        ("model", "model has changed"),
        ("filling", "options"),
        ("versions", "version"),
    ],
)
def test_another_job_is_refused(tmp_path, key, words):
    with job_folder(tmp_path, JOB):
        pass
    with pytest.raises(ValueError, match=words), job_folder(tmp_path, {**JOB, key: "other"}):
        pass


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(ValueError, match=r"not empty \(photo.jpg\)"), job_folder(tmp_path, JOB):
        pass
    with pytest.raises(FileExistsError, match="is a file"), job_folder(tmp_path / "photo.jpg", JOB):
        pass
    assert os.listdir(tmp_path) == ["photo.jpg"]


def test_two_jobs_cannot_have_one_folder(tmp_path):
    refused = pytest.raises(BlockingIOError, match="another job is writing")
    with lock_folder(tmp_path), refused, lock_folder(tmp_path):
        pass
    with lock_folder(tmp_path):
        pass


@pytest.mark.parametrize("damage", [b"", b"xxxxx", b"content and more"])
def test_a_damaged_piece_is_named_and_done_again(tmp_path, damage):
    with job_folder(tmp_path / "job", JOB) as folder:
        for name in ("part-0", "part-1"):
            (folder.folder / name).write_bytes(b"content")
            folder.finish_shard(name, 5)
    (tmp_path / "job" / "part-1").write_bytes(damage)
    with job_folder(tmp_path / "job", JOB) as folder:
        assert folder.has("part-0")
        with pytest.warns(UserWarning, match=r"part-1 was damaged or changed; it is written again"):
            assert not folder.has("part-1")
