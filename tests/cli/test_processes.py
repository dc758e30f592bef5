"""The command as the shell runs it: pipes, exit codes, Ctrl-C, completion, speed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

VFG = [sys.executable, "-m", "vfg"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}

pytestmark = pytest.mark.slow


def run(*arguments, **settings):
    return subprocess.run(
        [*VFG, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=300,
        **settings,
    )


def shell(line, folder):
    command = f'vfg() {{ "{sys.executable}" -m vfg "$@"; }}'
    return subprocess.run(
        ["bash", "-c", f"{command}\n{line}"],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        cwd=folder,
        timeout=300,
    )


def test_commands_go_into_each_other_through_pipes(tmp_path, store):
    line = f"vfg sample {store.model} -n 30 --to jsonl | vfg score - -m {store.model} --from jsonl"
    found = shell(f"set -o pipefail; {line} | wc -l", tmp_path)
    assert (found.returncode, found.stdout.strip(), found.stderr) == (0, "31", "")


def test_binary_tables_go_through_pipes_too(tmp_path, store):
    line = f"vfg impute {store.gaps} -m {store.model} --to parquet | vfg impute - -m {store.model}"
    found = shell(f"set -o pipefail; {line} | tail -n +2 | wc -l", tmp_path)
    assert (found.returncode, found.stdout.strip(), found.stderr) == (0, "120", "")


def test_a_reader_that_leaves_early_is_no_error(tmp_path, store):
    found = shell(
        f"vfg sample {store.model} -n 200000 | head -n 2; echo ${{PIPESTATUS[0]}}", tmp_path
    )
    assert found.stderr == ""
    assert found.stdout.splitlines()[-1] == "141"
    found = shell(f"vfg show {store.model} | true; echo ${{PIPESTATUS[0]}}", tmp_path)
    assert (found.stdout, found.stderr) == ("141\n", "")


def test_exit_codes_reach_the_shell(tmp_path, store):
    assert run("query", store.model, "--given", "height=180", "--infer", "shirt").returncode == 0
    missing = run("query", tmp_path / "none.vfg")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr == f"vfg: there is no model file '{tmp_path / 'none.vfg'}'\n"
    assert run("query").returncode == 2


@pytest.fixture
def much(tmp_path):
    """A table that takes a while to learn."""
    path = tmp_path / "much.csv"
    table = np.random.default_rng(0).normal(size=(3000, 12))
    np.savetxt(path, table, delimiter=",", header=",".join("abcdefghijkl"), comments="")
    return path


@pytest.mark.parametrize("command", ["fit", "impute"])
def test_ctrl_c_leaves_nothing_behind(command, much):
    folder = much.parent
    target = folder / ("m.vfg" if command == "fit" else "filled.csv")
    target.write_text("what was there")
    process = subprocess.Popen(
        [*VFG, command, str(much), "-o", str(target)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    time.sleep(6)  # while it fits
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (130, "", "vfg: interrupted\n")
    assert sorted(path.name for path in folder.iterdir()) == sorted(["much.csv", target.name])
    assert target.read_text() == "what was there"


def test_the_shell_completes_commands_and_columns(tmp_path, store):
    def completed(words):
        environment = {
            **ENVIRONMENT,
            "_VFG_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - (not words.endswith(" "))),
        }
        script = Path(sys.executable).parent / "vfg"
        if not script.exists():
            pytest.skip("the command vfg is not installed beside this Python")
        found = subprocess.run(
            [script], capture_output=True, text=True, env=environment, timeout=60
        )
        return found.stdout.split()

    assert completed("vfg im") == ["impute"]
    assert completed(f"vfg query {store.model} --given he") == ["height="]
    assert completed(f"vfg query {store.model} --infer s") == ["shirt", "since"]


@pytest.mark.parametrize(
    ("word", "heavy"),
    [
        ("--help", ("torch", "sklearn", "pandas", "pyarrow", "numpy")),
        ("data", ("torch", "sklearn", "pandas", "pyarrow")),
    ],
)
def test_help_and_lists_import_nothing_heavy(word, heavy):
    code = (
        f"import sys\nsys.argv = ['vfg', '{word}']\nfrom vfg.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print('heavy:', [name for name in {heavy!r} if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=ENVIRONMENT
    )
    assert found.stdout.splitlines()[-1] == "heavy: []"


@pytest.mark.parametrize("model", ["table_ensemble", "vfg_sampled"])
def test_models_are_loaded_without_the_compiler_of_torch(model):
    path = Path(__file__).parent.parent / "golden" / "v1" / f"{model}.vfg"
    code = (
        f"import sys\nsys.argv = ['vfg', 'query', {str(path)!r}]\n"
        "from vfg.cli import main\ntry:\n    main()\nexcept SystemExit as end:\n"
        "    assert not end.code\n"
        "heavy = ('torch._dynamo', 'sympy', 'sklearn', 'pandas', 'pyarrow', 'matplotlib', "
        "'scipy.special', 'scipy.sparse', 'scipy.stats', 'scipy.optimize')\n"
        "print('heavy:', [name for name in heavy if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=ENVIRONMENT
    )
    assert found.stdout.splitlines()[-1] == "heavy: []", found.stderr


def test_threads_are_limited_before_torch_is_there():
    code = (
        "import sys\nsys.argv = ['vfg', 'data', 'iris', '--threads', '1']\n"
        "from vfg.cli.options import _set_threads\n_set_threads(1)\n"
        "import torch\nprint(torch.get_num_threads())"
    )
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment
    )
    assert found.stdout.strip() == "1"
