"""`vfg fit`, its options, and the graphs it takes."""

import json
import stat

import pytest
import torch

import vfg
from vfg.cli.fitting import FitOptions, parse_bounds, parse_kinds, sections_graph
from vfg.cli.table_files import choose_columns
from vfg.imputation.settings import ImputerSettings
from vfg.sklearn import VFGImputer

FIT = ["--linear", "--exclude", "id", "-o", "m.vfg"]


def test_it_says_what_it_learned(store):
    assert "the linear model of 5 columns, fitted to 120 rows" in store.said


def test_json_says_the_same(store, here, commands):
    found = json.loads(commands.succeed("fit", store.gaps, *FIT, "--json", "--seed", 3))
    assert {k: found[k] for k in ("output", "rows", "columns", "members", "seed")} == {
        "output": "m.vfg",
        "rows": 120,
        "columns": 5,
        "members": 0,
        "seed": 3,
    }
    assert list(vfg.load("m.vfg").encoding.schema) == [
        "height",
        "visits",
        "shirt",
        "member",
        "since",
    ]


def test_quiet_says_nothing(store, here, commands):
    assert commands.succeed("fit", store.gaps, *FIT, "-q") == ""


def test_the_same_seed_gives_the_same_file(store, here, commands):
    for name in ("a.vfg", "b.vfg"):
        commands.succeed("fit", store.gaps, "--linear", "--exclude", "id", "-o", name)
    assert (here / "a.vfg").read_bytes() == (here / "b.vfg").read_bytes()


@pytest.mark.slow
def test_models_are_bent_unless_told_otherwise(store, here, commands):
    options = ["--steps", 20, "--members", 1, "--exclude", "id", "-o", "m.vfg", "--json"]
    assert json.loads(commands.succeed("fit", store.gaps, *options))["members"] == 1


def test_kinds_and_bounds_reach_the_model(store, here, commands):
    options = ["--kind", "visits=continuous", "--bounds", "height=:200", "--bounds", "visits=0:"]
    commands.succeed("fit", store.gaps, *FIT, *options)
    schema = vfg.load("m.vfg").encoding.schema
    assert schema["visits"].name == "continuous"
    assert schema["visits"].bounds == (0.0, None)
    assert schema["height"].bounds == (None, 200.0)


def test_a_graph_from_a_file_is_the_graph_of_the_model(store, here, commands):
    (here / "graph.txt").write_text("height h\nvisits h\nshirt h\nmember k\nsince k\nh r\nk r\n")
    commands.succeed("fit", store.gaps, *FIT, "--graph", "graph.txt", "--width", 4)
    words = commands.succeed("show", "m.vfg")
    assert "r (4)\n├── h (4)\n│   ├── height (1)" in words


def test_sections_are_leaves(store, here, commands):
    commands.succeed("fit", store.gaps, *FIT, "--sections", "height,visits:shirt,member")
    assert "├── height+visits (2)" in commands.succeed("show", "m.vfg")


def test_columns_that_no_section_names_are_sections_of_their_own():
    graph = sections_graph("b,c", ["root", "b", "c"], width=3)
    assert graph.sections == {"b+c": 2, "root": 1}
    assert graph.roots == ("root_",)


@pytest.mark.parametrize(
    ("options", "words", "code"),
    [
        (["--columns", "heigt"], "--columns names 'heigt', which is no column of the table", 2),
        (["--columns", "height", "--exclude", "height"], "no column is left to fit", 2),
        (["--sections", "height,nix"], "--sections names 'nix'", 2),
        (["--sections", "height:height"], "--sections names 'height' twice", 2),
        (["--sections", "height", "--graph", "g.txt"], "choose one", 2),
        (["--graph", "none.json"], "there is no graph file 'none.json'", 1),
        (["--graph", "g.txt"], "the leaves of the graph must hold the columns of the table", 1),
        (["--kind", "height=odd"], "cannot be 'odd'", 2),
        (["--kind", "height"], "--kind takes COLUMN=KIND", 2),
        (["--kind", "weight=integer"], "--kind names 'weight'", 2),
        (["--bounds", "height=3"], "--bounds takes COLUMN=LOW:HIGH", 2),
        (["--device", "tpu9"], "the device 'tpu9' is not available", 2),
        (["--budget", "0"], "budget must be a positive number", 2),
        (["--effort", "most"], "effort must be one of", 2),
        (["--bounds", "height=3:1"], "bounds must be in order", 2),
        (["--graph", "g.odd"], "graphs are read from files that end in", 2),
        (["--arrows", "up"], "child-parent, cause-effect", 2),
        (["--delimiter", "ab"], "the delimiter must be one ASCII character", 2),
    ],
)
def test_wrong_settings_are_told_in_one_sentence(options, words, code, store, here, commands):
    (here / "g.txt").write_text("a h\nb h\n")
    arguments = ["--linear", "-o", "m.vfg", *options]
    assert words in commands.fail("fit", store.gaps, *arguments, code=code)
    assert not (here / "m.vfg").exists()


TABLES = {
    "empty.csv": ("", "Empty CSV file"),
    "header.csv": ("a,b\n", "no rows to fit to"),
    "infinite.csv": ("a,b\n1,2\ninf,3\n", "infinity in column 'a'"),
    "ragged.csv": ("a,b\n1,2\n3\n", "Expected 2 columns, got 1"),
    "twice.csv": ("a,a\n1,2\n", "repeats the column 'a'"),
    "table.xls": ("a,b\n1,2\n", "the format of 'table.xls' is not known from its name"),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_that_cannot_be_learned_from(name, here, commands):
    content, words = TABLES[name]
    (here / name).write_text(content)
    code = 2 if name == "table.xls" else 1  # its name is wrong, not what it holds
    assert words in commands.fail("fit", name, "-o", "m.vfg", "--linear", code=code)


def test_missing_tables_and_targets(store, here, commands):
    assert "there is no file none.csv" in commands.fail("fit", "none.csv", "-o", "m.vfg")
    words = commands.fail("fit", store.gaps, "-o", "no/folder/m.vfg")
    assert "the folder 'no/folder' does not exist" in words
    assert "is a folder; name a file in it" in commands.fail("fit", store.gaps, "-o", here)


def test_targets_that_cannot_be_written(store, here, commands, monkeypatch):
    (here / "locked").mkdir()
    (here / "locked").chmod(stat.S_IRUSR | stat.S_IXUSR)
    monkeypatch.setattr("os.access", lambda path, mode: "locked" not in str(path))
    words = commands.fail("fit", store.gaps, "-o", "locked/m.vfg")
    assert "the folder 'locked' cannot be written to" in words


def test_columns_in_the_order_of_the_table():
    assert choose_columns("c, a", None, ["a", "b", "c"]) == ["a", "c"]
    assert choose_columns(None, None, ["a", "b"]) == ["a", "b"]


def test_ends_of_bounds_may_be_dates_or_nothing():
    assert parse_bounds(["t=2020-01-01:", "x==1:2"], ["t", "x="]) == {
        "t": ("2020-01-01", None),
        "x=": (1.0, 2.0),
    }
    assert parse_kinds([], ["a"]) is None
    assert parse_bounds([], ["a"]) is None


def test_choices_are_those_that_were_made():
    assert FitOptions().describe() == {"seed": 0}
    made = FitOptions(kinds=["a=integer", "b=date"], bend=False, seed=4).describe()
    assert made == {"kinds": "a=integer, b=date", "bend": False, "seed": 4}


def test_options_become_the_settings_of_a_fit():
    options = FitOptions(bend=False, members=2, neighbours=0, width=5, steps=7, budget=3.0, seed=4)
    settings = options.settings(["a", "b"])
    wanted = ImputerSettings(
        bend=False, members=2, neighbours=0, width=5, steps=7, budget=3.0, seed=4
    )
    # The marker of missing values is NaN: fields of one object are equal, numbers are not.
    assert vars(settings) == vars(wanted)
    typed = FitOptions(kinds=["a=integer"], bounds=["b=0:"], sections="a,b", device="cpu")
    settings = typed.settings(["a", "b"])
    assert (settings.schema, settings.bounds) == ({"a": "integer"}, {"b": (0.0, None)})
    assert (settings.graph.sections, settings.device) == ({"a+b": 2}, "cpu")


def test_an_imputer_has_the_settings_that_it_is_made_from():
    settings = ImputerSettings(bend=False, members=2, schema={"a": "integer"}, steps=7, seed=4)
    params = VFGImputer.from_settings(settings).get_params(deep=False)
    assert (params.pop("random_state"), params.pop("verbose")) == (4, False)
    for name, value in params.items():
        if hasattr(settings, name):
            assert getattr(settings, name) is value
    assert {"graph", "flow", "missing_values", "device"} <= set(params)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--workers", "2"], "--processes 2 needs --engine ray, or: torchrun --nproc-per-node 2"),
        (["--engine", "ray", "--workers", "2", "--budget", "5"], "--budget is for one process"),
    ],
)
def test_processes_that_could_not_agree_are_refused(store, here, commands, options, words):
    assert words in commands.fail("fit", store.gaps, "-o", "m.vfg", *options, code=2)
    assert not (here / "m.vfg").exists()


def test_unknown_engines_are_refused(store, here, commands):
    words = commands.fail("fit", store.gaps, "-o", "m.vfg", "--engine", "spark", code=2)
    assert "--engine must be one of local, ray" in words


def test_a_pipe_is_for_one_process(store, here, commands):
    options = ["-o", "m.vfg", "--engine", "ray", "--workers", "2"]
    words = commands.fail("fit", "-", *options, code=2, stdin=store.gaps.read_bytes())
    assert "a table from a pipe can be read by one process only" in words


def test_every_row_can_be_learned_from(store, here, commands):
    commands.succeed("fit", store.gaps, "-o", "m.vfg", "--linear", "--exclude", "id")
    commands.succeed("fit", store.gaps, "-o", "n.vfg", "--linear", "--exclude", "id", "--every-row")
    assert (here / "m.vfg").read_bytes() != (here / "n.vfg").read_bytes()


def test_the_direction_of_arrows_is_told(here, commands):
    (here / "g.txt").write_text("A C\nB C\n")
    found = commands.invoke("show", "g.txt")
    assert "g.txt are read as child -> parent; if they lead from causes to effects" in found.stderr
    assert "C (8)" in found.stdout
    found = commands.invoke("show", "g.txt", "--arrows", "cause-effect")
    assert found.stderr == ""
    assert found.stdout.splitlines() == ["Causes and effects: 2 edges", "A -> C", "B -> C"]


def test_a_network_that_is_read_upside_down_is_told(store, here, commands):
    (here / "g.txt").write_text("height visits\nheight shirt\nmember since\n")
    words = ["fit", store.gaps, "--linear", "-o", "m.vfg", "--exclude", "id", "--graph", "g.txt"]
    said = commands.fail(*words)
    assert "'visits' is a column of the table, but no leaf of the graph" in said
    assert "add --arrows cause-effect" in said
    commands.succeed(*words, "--arrows", "cause-effect")
    assert "family:visits" in [node.name for node in vfg.load(here / "m.vfg").graph.nodes]


def test_parts_without_time_are_named(store, here, commands):
    words = ["fit", store.gaps, "--exclude", "id", "-o", "m.vfg", "--budget", "1e-3"]
    assert "no time within --budget for: row mixtures, mixtures" in commands.succeed(*words)


def test_names_cannot_control_the_terminal(here, commands):
    (here / "g.txt").write_text("child parent\n\x1b[31mred C\n")
    said = commands.succeed("show", "g.txt")
    assert "\x1b" not in said
    assert "\\x1b[31mred" in said
    assert "\x1b" not in commands.fail("show", "\x1b[31mred.txt")


def test_a_fit_that_was_cut_off_goes_on_from_its_checkpoint(store, here, commands, monkeypatch):
    from vfg.training.loop import Run

    words = ["fit", store.gaps, "--exclude", "id", "--members", "1", "--mixtures", "0"]
    words += ["--neighbours", "0", "--steps", "75"]
    commands.succeed(*words, "-o", "whole.vfg")
    plain, epochs = Run._save, []

    def dying(self):
        plain(self)
        epochs.append(len(self.history))
        if len(epochs) == 2:
            raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Run, "_save", dying)
        assert "killed" in commands.fail(*words, "-o", "m.vfg", "--checkpoint", "run")
    again = [*words, "-o", "m.vfg", "--checkpoint", "run"]
    assert "add --resume" in commands.fail(*again, code=2)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "_save", lambda self: epochs.append(len(self.history)))
        commands.succeed(*again, "--resume")
    assert epochs[:3] == [1, 2, 3]
    whole, resumed = vfg.load(here / "whole.vfg"), vfg.load(here / "m.vfg")
    for name, value in whole.state_dict().items():
        other = resumed.state_dict()[name]
        torch.testing.assert_close(value, other, atol=0, rtol=0, equal_nan=True, msg=name)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--resume"], "needs --checkpoint"),
        (["--resume", "--checkpoint", "no"], "keeps no training"),
    ],
)
def test_there_must_be_something_to_resume(store, here, commands, options, words):
    assert words in commands.fail("fit", store.gaps, "-o", "m.vfg", *options, code=2)


def test_a_column_without_a_name_can_be_named():
    assert parse_kinds(["=integer"], ["", "a"]) == {"": "integer"}
    assert choose_columns(None, "", ["", "a"]) == ["a"]
    assert choose_columns(None, "", ["a", "b"]) == ["a", "b"]
