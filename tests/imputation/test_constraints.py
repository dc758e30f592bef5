"""Constraints between columns: how they are read, and that everything filled in satisfies them."""

import numpy as np
import pandas as pd
import pytest
from imputation.mixed_tables import light, linear
from scipy import optimize, stats
from typer.testing import CliRunner

import vfg
from vfg.cli.app import app
from vfg.imputation.constraints import Constraints, parse_constraint
from vfg.modelfile import dumps, loads
from vfg.tables.encoding import Encoding
from vfg.tables.schema import Schema


def bookings(rows=120, share=0.3, seed=0):
    """Sums of numbers with a decimal and of whole numbers, two orderings and a bounded number."""
    generator = np.random.default_rng(seed)
    first = generator.normal(size=rows)
    begin = 50.0 + 10.0 * first
    frame = pd.DataFrame({
        "net": (20.0 + 4.0 * first + generator.normal(size=rows)).round(1),
        "tax": generator.gamma(2.0, 1.0, rows).round(1),
        "begin": begin,
        "end": begin + generator.exponential(3.0, rows),
        "age": np.clip(20.0 + 15.0 * first, 0.0, 120.0),
        "adults": generator.integers(0, 4, rows),
        "children": generator.integers(0, 4, rows),
    })  # fmt: skip
    frame["gross"] = (frame["net"] + frame["tax"]).round(1)
    frame["people"] = frame["adults"] + frame["children"]
    frame["in"] = pd.Timestamp("2024-03-01") + pd.to_timedelta(begin.round(), unit="D")
    frame["out"] = frame["in"] + pd.to_timedelta(generator.integers(1, 9, rows), unit="D")
    for column in ("adults", "children", "people"):
        frame[column] = frame[column].astype("Int64")
    return frame, frame.mask(generator.random(frame.shape) < share)


TEXTS = [
    "0 <= age <= 120", "net + tax == gross", "tax >= 0", "begin <= end",
    "adults + children == people", "adults >= 0", "children >= 0", "`in` + 1 <= out",
]  # fmt: skip


def violations(table, *, are_ends=False):
    days = (table["out"] - table["in"]).dt.days
    broken = [
        ~table["age"].between(0.0, 120.0),
        table["tax"] < 0.0,
        table["begin"] > table["end"],
        (table["adults"] < 0) | (table["children"] < 0),
        days < 1,
    ]
    if not are_ends:
        broken.append((table["net"] + table["tax"] - table["gross"]).abs() > 1e-9)
        broken.append(table["adults"] + table["children"] != table["people"])
    return sum(int(one.sum()) for one in broken)


# Reading.


def test_constraints_are_read():
    two, one = parse_constraint("-2 * (a - 3) / 4 >= `a b` + 1.5 >= 0", ["a", "a b"])
    assert two.form.terms == {"a b": 1.0, "a": 0.5}
    assert two.form.constant == 1.5 - 1.5
    assert one.form.terms == {"a b": -1.0}
    (sums,) = parse_constraint("x0 + x2 = x1", [0, 1, 2])
    assert sums.is_equation
    assert sums.form.terms == {0: 1.0, 2: 1.0, 1: -1.0}
    (day,) = parse_constraint("d >= '1970-01-11'", ["d"])
    assert day.form.constant == 10.0


@pytest.mark.parametrize(("text", "message"), [
    ("a + b", "lacks <=, >= or =="),
    ("a < b", "comparison other than"),
    ("a * b <= 1", "more than sums"),
    ("1 <= 2", "names no column"),
    ("a <=", "cannot be read"),
    ("a <= wrong", "names 'wrong', which is no column; did you mean|names 'wrong'"),
    ("a <= 'tomorrow'", "'tomorrow' is no date"),
    ("a <= f(b)", "more than sums"),
    ("a <= True", "True is no number"),
])  # fmt: skip
def test_what_is_no_constraint_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        linear(constraints=[text]).fit(pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}))


def test_other_settings_and_columns_are_refused():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "kind": ["u", "v", "u"], "empty": [None] * 3})
    with pytest.raises(TypeError, match="constraints must be a list of texts"):
        linear(constraints=3).fit(frame)
    with pytest.raises(TypeError, match="a constraint is a text such as"):
        linear(constraints=[3]).fit(frame)
    with pytest.raises(ValueError, match="'kind', which is categorical, but constraints are"):
        linear(constraints=["a <= kind"]).fit(frame)
    expected = "'a >= 5', 'a <= 3' on column 'a' leave no value: it would be from 5 to 3; change"
    with pytest.raises(ValueError, match=expected):
        linear(constraints=["a >= 5", "0 <= a", "a <= 3"]).fit(frame)
    expected = "the constraint 'a <= 3' on column 'a' and its bounds leave no value"
    with pytest.raises(ValueError, match=expected):
        linear(constraints=["a <= 3"], bounds={"a": (5, None)}).fit(frame)


# What is filled in.


@pytest.mark.parametrize("make", [linear, light], ids=["linear", "nonlinear"])
def test_fills_draws_and_intervals_satisfy_all_constraints(make):
    frame = bookings(60)[1]
    imputer = make(constraints=TEXTS).fit(frame)
    filled = imputer.transform(frame)
    assert not filled.isna().any().any()
    assert violations(filled) == 0
    pd.testing.assert_frame_equal(filled[frame.notna()], frame[frame.notna()], check_dtype=False)
    for drawn in (*imputer.sample(frame, 3), *imputer.sample(frame, 2, proper=False)):
        assert violations(drawn) == 0
    low, high = imputer.predict_interval(frame)
    assert violations(low, are_ends=True) == violations(high, are_ends=True) == 0
    for column in ("net", "begin", "age", "adults"):
        assert (low[column] <= high[column]).all()
    assert violations(make().fit(frame).transform(frame)) > 0  # else nothing is tested


def test_models_keep_their_constraints_in_files():
    frame = bookings()[1]
    model = linear(constraints=TEXTS).fit(frame).model_
    loaded = loads(dumps(model))
    pd.testing.assert_frame_equal(loaded.fill(frame), model.fill(frame))
    assert loaded.constraints == tuple(TEXTS)


def test_one_known_term_decides_the_other():
    imputer = linear(constraints=["x0 + x1 == 10", "x2 <= x0"])
    generator = np.random.default_rng(0)
    first = generator.uniform(0.0, 10.0, 60)
    table = np.stack([first, 10.0 - first, first - generator.exponential(size=60)], axis=1)
    filled = imputer.fit(table).transform([[np.nan, 2.5, np.nan], [3.0, np.nan, 1.0]])
    assert filled[0, 0] == pytest.approx(7.5, abs=1e-9)
    assert filled[1, 1] == pytest.approx(7.0, abs=1e-9)
    assert filled[0, 2] <= filled[0, 0]


def test_draws_follow_the_truncated_distribution():
    """Half of the draws of b are above a: the others have the moments of a truncated Normal."""
    generator = np.random.default_rng(0)
    a = generator.normal(size=2000)
    table = np.stack([a, a + generator.normal(size=2000)], axis=1)
    table[table[:, 1] > table[:, 0], 1] = np.nan  # no row contradicts b <= a
    free = linear(missingness="ignorable").fit(table)
    model = linear(constraints=["x1 <= x0"], missingness="ignorable").fit(table)
    asked = np.array([[1.0, np.nan]] * 400)
    centre = free.transform(asked)[0, 1]
    deviation = free.sample(asked, 20, proper=False)[:, :, 1].std()
    truth = stats.truncnorm(-np.inf, (1.0 - centre) / deviation, centre, deviation)
    drawn = model.sample(asked, 20, proper=False)[:, :, 1]
    assert drawn.max() <= 1.0
    assert drawn.mean() == pytest.approx(truth.mean(), abs=0.03)
    assert drawn.std() == pytest.approx(truth.std(), abs=0.03)
    assert np.quantile(drawn, 0.05) == pytest.approx(truth.ppf(0.05), abs=0.06)
    assert np.mean(drawn > 0.999) < 0.02  # nothing piles up at the bound
    assert model.transform(asked)[:, 1] == pytest.approx(min(centre, 1.0))


def test_constraints_that_hold_make_no_answer_worse():
    """The nearest values within a convex set are nearer to every point of it."""
    generator = np.random.default_rng(0)
    start, z = generator.uniform(0.0, 50.0, 400), generator.normal(size=400)
    spent = np.clip(20.0 + 30.0 * z + 10.0 * generator.normal(size=400), 0.0, None)
    truth = np.stack([z, spent, start, start + generator.exponential(3.0, 400)], axis=1)
    table = np.where(generator.random(truth.shape) < 0.3, np.nan, truth)
    answers = {}
    for texts in (None, ["0 <= x1", "x2 <= x3"]):
        imputer = linear(constraints=texts, missingness="ignorable").fit(table)
        low, high = imputer.predict_interval(table, level=0.9)
        errors = imputer.transform(table) - truth
        held = (low <= truth + 1e-9) & (truth - 1e-9 <= high)
        answers[bool(texts)] = np.nansum((errors / truth.std(0)) ** 2), held[np.isnan(table)].mean()
    assert answers[True][0] <= answers[False][0]
    assert answers[True][1] == pytest.approx(answers[False][1], abs=0.01)


def test_bounds_as_constraints_are_bounds():
    generator = np.random.default_rng(0)
    z = generator.normal(size=300)
    spent = np.clip(z + 0.3 * generator.normal(size=300), 0.0, None)
    table = np.where(generator.random((300, 2)) < 0.3, np.nan, np.stack([z, spent], axis=1))
    one = linear(constraints=["0 <= x1"]).fit(table)
    other = linear(bounds={1: (0.0, None)}).fit(table)
    for answer in ("transform", "sample", "predict_interval"):
        extra = (5,) if answer == "sample" else ()
        assert np.array_equal(
            getattr(one, answer)(table, *extra), getattr(other, answer)(table, *extra)
        )


def test_cells_move_as_little_as_possible():
    """The projection is that of a quadratic programme, solved by another method."""
    generator = np.random.default_rng(0)
    table = generator.normal(size=(50, 4)) * [1.0, 2.0, 0.5, 3.0]
    encoding = Encoding.fit(Schema.infer(table), table)
    texts = ["x0 + 2 * x1 == x2", "x3 <= x0", "x1 - x3 <= 1"]
    known = Constraints(texts, encoding)
    start = generator.normal(size=(5, 4)) * 3.0
    free = np.array([True, True, False, True])
    moved, left = known._project(start, free, np.ones(3, dtype=bool))
    assert not left.any()
    for row, ours in zip(start, moved, strict=True):

        def full(x, row=row):
            return np.array([x[0], x[1], row[2], x[2]])

        best = optimize.minimize(
            lambda x, row=row: np.sum(((full(x, row) - row) / known.scales) ** 2),
            row[free],
            constraints=[
                {"type": "eq", "fun": lambda x, row=row: full(x, row) @ [1, 2, -1, 0]},
                {"type": "ineq", "fun": lambda x, row=row: full(x, row) @ [1, 0, 0, -1]},
                {"type": "ineq", "fun": lambda x, row=row: 1 - full(x, row) @ [0, 1, 0, -1]},
            ],
            options={"ftol": 1e-14, "maxiter": 500},
        )
        np.testing.assert_allclose(ours, full(best.x), atol=1e-4)


def test_whole_numbers_stay_whole_where_bounds_are_tight():
    """Three whole numbers of sum 1, none negative: rounded means alone would have the sum 0."""
    table = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]] * 20, dtype=float)
    frame = pd.DataFrame(table.astype(int), columns=list("abc")).astype("Int64")
    texts = ["a + b + c == 1", "a >= 0", "b >= 0", "c >= 0"]
    imputer = linear(constraints=texts, schema=dict.fromkeys("abc", "integer")).fit(frame)
    asked = pd.DataFrame({"a": [None, 0], "b": [None, None], "c": [None, None]}, dtype="Int64")
    for filled in (imputer.transform(asked), *imputer.sample(asked, 5)):
        assert (filled.sum(axis=1) == 1).all()
        assert (filled >= 0).all().all()


# Rows that contradict.


def test_rows_that_contradict_are_refused():
    frame = bookings()[0]
    wrong = frame.copy()
    wrong.loc[7, "gross"] = 500.0
    with pytest.raises(ValueError, match="row 7 contradicts the constraint 'net \\+ tax == gross'"):
        linear(constraints=TEXTS).fit(wrong)
    imputer = linear(constraints=TEXTS).fit(frame)
    with pytest.raises(ValueError, match=r"row 7 contradicts .* gross is 500; correct the row"):
        imputer.transform(wrong)
    wrong = frame.copy()
    wrong.loc[3, "in"] = wrong.loc[3, "out"] + pd.Timedelta(days=3)
    with pytest.raises(ValueError, match="row 3 contradicts the constraint '`in` \\+ 1 <= out'"):
        imputer.transform(wrong)
    # No number of children is at least 0 and makes 5 adults 3 people.
    wrong = frame.copy()
    wrong.loc[5, ["adults", "people"]] = 5, 3
    wrong.loc[5, "children"] = pd.NA
    with pytest.raises(
        ValueError, match=r"row 5 contradicts the constraints .*, 'children >= 0': adults is 5"
    ):
        imputer.transform(wrong)


def test_all_constraints_that_contradict_each_other_are_named():
    frame = bookings()[0]
    impossible = ["adults >= 0", "net + tax == gross", "net <= gross - tax - 1"]
    expected = (
        r"^no row satisfies the constraints 'net \+ tax == gross', 'net <= gross - tax - 1' tog"
    )
    with pytest.raises(ValueError, match=expected):
        linear(constraints=impossible).fit(frame)
    with pytest.raises(ValueError, match=expected):  # no row is known
        linear(constraints=impossible).fit_transform(frame.assign(tax=frame["tax"].where(
            frame.index % 2 == 0), net=frame["net"].where(frame.index % 2 == 1)))  # fmt: skip
    frame["out"] = frame["out"].mask(frame.index == 3)
    frame["back"] = frame["in"] + pd.Timedelta(days=20)
    imputer = linear(constraints=["age >= 0", "`in` <= out", "out <= back"]).fit(frame)
    frame.loc[3, "back"] = frame.loc[3, "in"] - pd.Timedelta(days=4)
    days = frame.loc[3, ["in", "back"]].dt.strftime("%Y-%m-%d")
    known = f"in is {days['in']}, back is {days['back']}; correct"
    expected = f"^row 3 contradicts the constraints '`in` <= out', 'out <= back': {known}"
    with pytest.raises(ValueError, match=expected):
        imputer.transform(frame)


def test_dates_stand_in_errors_as_days():
    frame = pd.DataFrame({"day": pd.Timestamp("2024-03-01") + pd.to_timedelta(range(9), unit="D")})
    late, early = "day >= '2024-05-01'", "day <= '2024-02-01'"
    with pytest.raises(ValueError, match="it would be from 2024-05-01 to 2024-02-01; change"):
        linear(constraints=[late, early]).fit(frame)
    with pytest.raises(ValueError, match="'2024-05-01'\": day is 2024-03-01; correct the row"):
        linear(constraints=[late]).fit(frame)
    with pytest.raises(ValueError, match="it would be from 2024-06-01 to 2024-02-01; change"):
        linear(constraints=[early], bounds={"day": ("2024-06-01", None)}).fit(frame)


def test_the_command_line_takes_constraints(tmp_path):
    frame = bookings()[1][["net", "tax", "gross", "begin", "end"]]
    source, target, saved = tmp_path / "in.csv", tmp_path / "out.csv", tmp_path / "m.vfg"
    frame.to_csv(source, index=False)
    options = ["--linear", "--constraint", "net + tax == gross", "--constraint", "begin <= end"]
    result = CliRunner().invoke(app, ["fit", str(source), "-o", str(saved), *options])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(
        app, ["impute", str(source), "-m", str(saved), "-o", str(target), "--intervals", "0.9"]
    )
    assert result.exit_code == 0, result.output
    filled = pd.read_csv(target)
    assert (filled["net"] + filled["tax"] - filled["gross"]).abs().max() < 1e-9
    assert (filled["begin"] <= filled["end"]).all()
    assert (filled["begin_high"] <= filled["end_high"]).all()
    assert isinstance(vfg.load(saved).constraints, tuple)
    wrong = CliRunner().invoke(
        app, ["fit", str(source), "-o", str(saved), "--constraint", "a <= 1"]
    )
    assert wrong.exit_code == 2
    assert "names 'a', which is no column" in " ".join(wrong.output.split())
