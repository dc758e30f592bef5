"""Outputs that are inputs, streams that are closed or full, and signals."""

import os
import signal
import stat
import subprocess
import threading
import time

import pytest
from cli.test_processes import ENVIRONMENT, VFG, run, shell

from vfg.cli.model_files import history_file, write_history
from vfg.cli.table_files import check_outputs
from vfg.training.history import History


@pytest.mark.parametrize("link", ["same", "symbolic", "hard"])
@pytest.mark.parametrize(
    "words",
    [
        "fit t.csv --linear -o OUT",
        "impute t.csv --linear -o OUT",
        "impute t.csv --linear -o f.csv --save OUT",
        "impute t.csv --linear -o f.csv --report OUT",
        "score t.csv -m MODEL -o OUT",
        "embed t.csv -m MODEL -o OUT",
    ],
)
def test_a_table_is_not_replaced_by_a_result(store, here, commands, words, link):
    (here / "t.csv").write_bytes(store.gaps.read_bytes())
    output = {"same": "t.csv", "symbolic": "s.csv", "hard": "h.csv"}[link]
    (here / "s.csv").symlink_to("t.csv")
    os.link(here / "t.csv", here / "h.csv")
    line = words.replace("OUT", output).replace("MODEL", str(store.model))
    assert "would replace a file that this command reads" in commands.fail(*line.split(), code=2)
    assert (here / "t.csv").read_bytes() == store.gaps.read_bytes()


@pytest.mark.parametrize(
    "words",
    ["impute t.csv -m m.csv -o m.csv", "sample m.csv -o m.csv", "score t.csv -m m.csv -o m.csv"],
)
def test_a_model_is_not_replaced_by_a_result(store, here, commands, words):
    (here / "t.csv").write_bytes(store.gaps.read_bytes())
    (here / "m.csv").write_bytes(store.model.read_bytes())
    assert "would replace a file" in commands.fail(*words.split(), code=2)
    assert (here / "m.csv").read_bytes() == store.model.read_bytes()


def test_overwrite_allows_it(store, here, commands):
    (here / "t.csv").write_bytes(store.gaps.read_bytes())
    commands.succeed("impute", "t.csv", "-m", store.model, "-o", "other.csv")
    commands.succeed("impute", "t.csv", "-m", store.model, "-o", "t.csv", "--overwrite")
    assert (here / "t.csv").read_bytes() == (here / "other.csv").read_bytes()


def test_two_outputs_are_two_files(store, here, commands):
    named = ["-o", "a.csv", "--save", "a.csv"]
    words = commands.fail("impute", store.gaps, "--linear", *named, code=2)
    assert "--output and --save both name a.csv" in words


def test_streams_may_be_named_twice():
    check_outputs({"--output": "/dev/null", "--save": "/dev/null", "--report": "-"}, ["/dev/null"])


@pytest.mark.parametrize("name", ["o.xlsx", "o.json", "o.csv.zip", "o.parquett"])
def test_names_of_other_formats_are_no_folders(store, here, commands, name):
    words = commands.fail("impute", store.gaps, "-m", store.model, "-o", name, code=2)
    assert f"the format of {name!r} is not known" in words
    assert os.listdir(here) == []


def test_a_pattern_leaves_the_earlier_output_out(store, here, commands):
    (here / "part-1.csv").write_bytes(store.gaps.read_bytes())
    for _ in range(2):
        commands.succeed("impute", "part-*.csv", "-m", store.model, "-o", "part-filled.csv")
        assert len((here / "part-filled.csv").read_bytes().splitlines()) == 121


@pytest.mark.parametrize("output", ["in/filled.parquet", "in/shards"])
def test_a_folder_leaves_the_earlier_output_out(store, here, commands, output):
    (here / "in").mkdir()
    commands.succeed("impute", store.gaps, "-m", store.model, "-o", "in/a.parquet")
    for _ in range(2):
        summary = commands.succeed("impute", "in", "-m", store.model, "-o", output)
        assert "120 rows" in summary


def test_a_history_of_another_model_is_left_alone(tmp_path, capsys):
    model, history = tmp_path / "m.vfg", History([], None, "epochs", 0)
    write_history(model, history)
    write_history(model, history)  # its own is replaced
    known = history_file(model).read_bytes()
    assert capsys.readouterr().err == ""
    write_history(tmp_path / "m.bin", None)
    assert "is not the history of m.bin" in capsys.readouterr().err
    assert history_file(model).read_bytes() == known
    history_file(model).write_text("notes")
    write_history(model, history)
    assert "is not the history" in capsys.readouterr().err
    assert history_file(model).read_text() == "notes"


# Real processes.


@pytest.mark.slow
def test_a_model_may_go_to_a_device_and_a_table_to_a_pipe(tmp_path, store):
    assert run("fit", store.gaps, "--linear", "-q", "-o", "/dev/null").returncode == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    os.mkfifo(tmp_path / "pipe.csv")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe.csv").read_bytes()))
    reader.start()
    done = run("impute", store.gaps, "-m", store.model, "-o", tmp_path / "pipe.csv")
    reader.join(10)
    assert (done.returncode, len(got[0].splitlines())) == (0, 121)


@pytest.mark.slow
def test_new_models_are_for_their_owner_alone(tmp_path, store):
    assert run("fit", store.gaps, "--linear", "-q", "-o", tmp_path / "m.vfg").returncode == 0
    assert stat.S_IMODE((tmp_path / "m.vfg").stat().st_mode) == 0o600


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_full_disks_and_readers_that_leave_are_seen(tmp_path, store, unbuffered):
    environment = f"export PYTHONUNBUFFERED={unbuffered}"
    rows = f"vfg sample {store.model} -n 20000"
    found = shell(f"{environment}; {rows} > /dev/full; echo $?", tmp_path)
    assert (found.stdout, found.stderr) == ("1\n", "vfg: no space left on device\n")
    found = shell(
        f"{environment}; {rows} | head -n 2 > /dev/null; echo ${{PIPESTATUS[0]}}", tmp_path
    )
    assert (found.stdout, found.stderr) == ("141\n", "")
    found = shell(f"{environment}; {rows} | (sleep 3; wc -l)", tmp_path)
    assert (found.stdout.strip(), found.stderr) == ("20001", "")


@pytest.mark.slow
def test_closed_streams_are_no_defects(tmp_path, store):
    query = f"vfg query {store.model} --infer shirt"
    found = shell(f"{query} >&-; echo $?", tmp_path)
    assert found.stdout == "1\n"
    assert found.stderr == "vfg: standard output is closed; name a file, as in -o FILE\n"
    found = shell(f"{query} 2>&- <&- > out; echo $?; wc -l < out", tmp_path)
    assert found.stdout.split()[0] == "0"
    found = shell(f"vfg impute - -m {store.model} <&-; echo $?", tmp_path)
    assert (found.stdout, found.stderr) == ("1\n", "vfg: standard input is closed; name a file\n")
    found = shell(f"vfg impute {store.gaps} -m {store.model} -o f.csv >&- 2>&-; echo $?", tmp_path)
    assert len((tmp_path / "f.csv").read_bytes().splitlines()) == 121


@pytest.mark.slow
def test_help_to_a_full_disk_is_one_sentence(tmp_path):
    found = shell("vfg --help > /dev/full; echo $?", tmp_path)
    assert (found.stdout, found.stderr) == ("1\n", "vfg: no space left on device\n")


@pytest.mark.slow
def test_absurd_numbers_of_processes_are_refused(tmp_path, store):
    for number in (100_000, 10**30):
        found = run("impute", store.gaps, "-m", store.model, "--processes", number)
        assert found.returncode in (1, 2), found.stderr
        assert found.stderr.count("\n") == 1


@pytest.mark.slow
def test_sigterm_leaves_nothing_behind(tmp_path, store):
    (tmp_path / "f.csv").write_text("what was there")
    process = subprocess.Popen(
        [*VFG, "sample", str(store.model), "-n", "100000000", "-o", str(tmp_path / "f.csv")],
        env=ENVIRONMENT,
    )
    for _ in range(600):
        if list(tmp_path.glob(".vfg-*")):
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert sorted(os.listdir(tmp_path)) == ["f.csv"]
    assert (tmp_path / "f.csv").read_text() == "what was there"


@pytest.mark.parametrize("target", [pytest.param("f.csv", marks=pytest.mark.slow), "f"])
def test_a_job_with_a_budget_resumes_with_the_model_that_it_fitted(
    store, here, commands, monkeypatch, target
):
    from vfg.bigtable import fill_job

    words = ["impute", store.gaps, "--budget", "5", "--exclude", "id", "-o", target]
    words += ["--shard-rows", "20", "--members", "1", "--steps", "5"]
    plain, calls = fill_job.JobFolder.finish_shard, []

    def failing(self, name, rows):
        plain(self, name, rows)
        calls.append(name)
        if len(calls) == 3:
            raise RuntimeError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(fill_job.JobFolder, "finish_shard", failing)
        assert commands.invoke(*words).exit_code == 1
    found = commands.invoke(*words)
    assert found.exit_code == 0, found.output
    assert "60 rows were done before" in found.stdout
    assert "continuing with the model" in found.stderr
    assert not (here / ".f.csv.pieces").exists()
    # Another option is another model.
    other = commands.invoke(*words, "--seed", "1")
    assert "continuing with the model" not in other.stderr
