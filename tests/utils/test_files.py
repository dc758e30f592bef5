"""Targets of every sort: plain files, links, pipes, devices, standard output."""

import io
import os
import stat
import subprocess
import sys
import tempfile
import threading

import pytest

from vfg.utils.files import is_stream, open_target, standard_output, write_atomically

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs POSIX files")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(("umask", "expected"), [(0o022, 0o644), (0o077, 0o600)])
def test_new_files_follow_the_umask_and_private_ones_are_for_their_owner(tmp_path, umask, expected):
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "a", b"1")
        write_atomically(tmp_path / "b", b"1", private=True)
    finally:
        os.umask(before)
    assert (mode(tmp_path / "a"), mode(tmp_path / "b")) == (expected, 0o600)


@pytest.mark.parametrize("known", [0o600, 0o640, 0o666])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path, known):
    (tmp_path / "a").write_bytes(b"old")
    os.chmod(tmp_path / "a", known)
    write_atomically(tmp_path / "a", b"new", private=True)
    assert ((tmp_path / "a").read_bytes(), mode(tmp_path / "a")) == (b"new", known)


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real/file")
    (tmp_path / "dangling").symlink_to("real/new")
    for name in ("link", "dangling"):
        write_atomically(tmp_path / name, b"new")
        assert (tmp_path / name).is_symlink()
    assert (tmp_path / "real" / "file").read_bytes() == b"new"
    assert (tmp_path / "real" / "new").read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path / "real")) == ["file", "new"]


def test_a_pipe_is_written_through(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_atomically(tmp_path / "pipe", b"content")
    reader.join(10)
    assert got == [b"content"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_device_stays_a_device(tmp_path):
    (tmp_path / "null").symlink_to("/dev/null")
    for path in ("/dev/null", tmp_path / "null"):
        write_atomically(path, b"content")
        assert stat.S_ISCHR(os.stat(path).st_mode)
    assert os.listdir(tmp_path) == ["null"]


def test_names_of_open_files_are_streams(tmp_path):
    with open(tmp_path / "a", "wb") as file:
        assert is_stream(f"/dev/fd/{file.fileno()}")
    assert not is_stream(tmp_path / "a")
    assert not is_stream(tmp_path)
    if os.path.isdir("/dev/shm"):
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
            assert not is_stream(file.name)


KILLED = """
import sys, time
from vfg.utils.files import open_target
with open_target(sys.argv[1]) as file:
    file.write(b"x" * 100_000)
    file.flush()
    print("ready", flush=True)
    time.sleep(60)
"""


def test_the_next_run_removes_what_a_killed_one_left_but_not_what_is_being_written(tmp_path):
    target = tmp_path / "table.csv"
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(target)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        write_atomically(target, b"other")  # beside one that is at work
        assert len(list(tmp_path.glob(".vfg-*"))) == 1
        process.kill()
    assert len(list(tmp_path.glob(".vfg-*"))) == 1
    write_atomically(target, b"new")
    assert os.listdir(tmp_path) == ["table.csv"]
    assert target.read_bytes() == b"new"


def test_two_writers_of_one_target_do_not_mix(tmp_path):
    with open_target(tmp_path / "a") as one, open_target(tmp_path / "a") as other:
        one.write(b"1" * 10_000)
        other.write(b"2" * 5)
    assert (tmp_path / "a").read_bytes() == b"1" * 10_000
    assert os.listdir(tmp_path) == ["a"]


class Reluctant(io.RawIOBase):
    """Takes a few bytes at a time, and then none."""

    def __init__(self, most):
        self.got, self.most = b"", most

    def writable(self):
        return True

    def write(self, data):
        if len(self.got) >= self.most:
            raise OSError(28, "No space left on device")
        taken = bytes(data[:7])
        self.got += taken
        return len(taken)


class Unbuffered:
    def __init__(self, raw):
        self.buffer = raw


def test_standard_output_without_a_buffer_gets_everything(monkeypatch):
    raw = Reluctant(10**9)
    monkeypatch.setattr(sys, "stdout", Unbuffered(raw))
    with standard_output() as stream:
        stream.write(b"abc" * 10_000)
    assert raw.got == b"abc" * 10_000


def test_standard_output_that_takes_a_part_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Unbuffered(Reluctant(1000)))
    with pytest.raises(OSError, match="No space left"), standard_output() as stream:
        stream.write(b"abc" * 10_000)


CHATTY = """
import os
from vfg.utils.files import standard_output
print("before")
with standard_output() as table:
    os.write(1, b"a log line of an engine\\n")
    print("another")
    table.write(b"a,b\\n")
print("after")
"""


def test_what_others_print_is_no_part_of_the_table():
    found = subprocess.run([sys.executable, "-c", CHATTY], capture_output=True, text=True)
    assert found.stdout.split() == ["before", "a,b", "after"]
    assert found.stderr.splitlines() == ["a log line of an engine", "another"]


def test_closed_standard_output_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(OSError, match="standard output is closed"), standard_output():
        pass
