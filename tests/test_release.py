"""What a release promises: versions that agree with each other, and files that a reader expects."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import vfg

PROJECT = Path(__file__).parents[1]
ABOUT = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]


def read_pins(name):
    """The exact versions that a file of constraints names."""
    return dict(re.findall(r"^([\w-]+)==(\S+)", (PROJECT / name).read_text(), re.MULTILINE))


def lower_bounds(*extras):
    """The lower bounds of the dependencies and of some extras."""
    listed = [
        *ABOUT["dependencies"],
        *(x for e in extras for x in ABOUT["optional-dependencies"][e]),
    ]
    return dict(re.fullmatch(r"([\w-]+)>=(\S+)", x).groups() for x in listed if ">=" in x)


def as_numbers(version):
    """A version as a list of numbers without zeros at the end, so that 4.0 is 4."""
    return [int(part) for part in re.sub(r"(\.0)+$", "", version).split(".")]


def test_the_oldest_versions_are_the_lower_bounds():
    oldest, bounds = (
        read_pins("constraints-oldest.txt"),
        lower_bounds("table", "plot", "studio", "dev"),
    )
    users = lower_bounds("table", "plot", "studio")
    assert set(users) - {"torch"} <= set(oldest) <= set(bounds)
    for name, version in oldest.items():
        assert as_numbers(version) == as_numbers(bounds[name]), name


def test_the_pinned_versions_are_not_below_the_lower_bounds():
    pins = read_pins("constraints.txt")
    for name, version in lower_bounds("table", "plot", "studio", "dev").items():
        assert as_numbers(pins[name]) >= as_numbers(version), name


def test_the_version_is_the_same_everywhere():
    version = ABOUT["version"]
    assert f"\nversion: {version}\n" in (PROJECT / "CITATION.cff").read_text()
    assert f'set version = "{version}"' in (PROJECT / "conda" / "meta.yaml").read_text()
    changes = (PROJECT / "CHANGELOG.md").read_text()
    assert "## [Unreleased]" in changes
    assert f"## [{version}] - " in changes


def test_the_recipe_of_conda_has_the_lower_bounds():
    recipe = (PROJECT / "conda" / "meta.yaml").read_text()
    renamed = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
    bounds = lower_bounds("table", "plot", "studio")
    listed = dict(
        re.findall(r"^    - ([\w-]+) >=(\S+)$", recipe.partition("  run:")[2], re.MULTILINE)
    )
    assert listed.pop("python") == ABOUT["requires-python"].removeprefix(">=")
    assert listed == {renamed.get(name, name): bound for name, bound in bounds.items()}


def load_bump():
    spec = importlib.util.spec_from_file_location("bump", PROJECT / "tools" / "bump.py")
    bump = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bump)
    return bump


def test_a_release_is_one_small_commit(tmp_path):
    bump = load_bump()
    for name in bump.PLACES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(PROJECT / name, tmp_path / name)
    bump.bump(tmp_path, "7.8.9rc1", "2030-12-31")
    for name in ("pyproject.toml", "CITATION.cff", "conda/meta.yaml"):
        before, after = ((folder / name).read_text() for folder in (PROJECT, tmp_path))
        pairs = list(zip(before.splitlines(), after.splitlines(), strict=True))
        changed = [new for old, new in pairs if old != new]
        assert len(changed) == 1
        assert "7.8.9rc1" in changed[0]
    assert (
        "## [Unreleased]\n\n## [7.8.9rc1] - 2030-12-31\n" in (tmp_path / "CHANGELOG.md").read_text()
    )
    with pytest.raises(SystemExit, match="must look like"):
        bump.bump(tmp_path, "7.8", "2030-12-31")


def test_links_of_a_published_readme_lead_to_the_release(tmp_path):
    bump, address = load_bump(), "https://example.org/owner/vfg"
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(PROJECT / name, tmp_path / name)
    for version in ("7.8.9", "7.9.0"):  # the second finds the addresses of the first
        bump.publish(tmp_path, version, address)
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", (tmp_path / "README.md").read_text())
    before = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", (PROJECT / "README.md").read_text())
    for (image, place), (_, old) in zip(links, before, strict=True):
        assert place == f"{address}/{'raw' if image else 'blob'}/v7.9.0/{old}"
    urls = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]["urls"]
    assert urls["Repository"] == address
    assert "v7.9.0" in urls["Changelog"]
    with pytest.raises(SystemExit, match="must look like"):
        bump.publish(tmp_path, "7.9.0", "example.org")


def test_the_numbers_of_the_paper_are_those_of_the_results():
    results = (PROJECT / "docs" / "results.md").read_text()
    paper = (PROJECT / "paper" / "paper.md").read_text().partition("# Results")[2]
    numbers = re.findall(r"\d+\.\d+ ± \d+\.\d+", paper)
    assert len(numbers) == 4
    assert all(number in results for number in numbers)
    won, drawn, lost = re.search(r"(\d+) won, (\d+) drawn,\s+(\d+) lost", paper).groups()
    assert f"{won} / {drawn} / {lost}" in results


def test_every_work_that_the_paper_cites_is_listed():
    cited = set(re.findall(r"@(\w+)", (PROJECT / "paper" / "paper.md").read_text()))
    listed = set(
        re.findall(r"^@\w+\{(\w+),", (PROJECT / "paper" / "paper.bib").read_text(), re.MULTILINE)
    )
    assert cited == listed


def test_the_bill_of_materials_is_closed():
    pytest.importorskip("packaging")
    spec = importlib.util.spec_from_file_location("sbom", PROJECT / "tools" / "sbom.py")
    sbom = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sbom)
    bill = sbom.bill("scikit-learn")
    refs = {part["bom-ref"] for part in [bill["metadata"]["component"], *bill["components"]]}
    assert {"numpy", "scipy", "joblib", "threadpoolctl"} <= {p["name"] for p in bill["components"]}
    assert {entry["ref"] for entry in bill["dependencies"]} == refs
    assert all(set(entry["dependsOn"]) <= refs for entry in bill["dependencies"])


@pytest.mark.slow
def test_the_code_of_the_readme_runs_as_printed(tmp_path, monkeypatch):
    np, pd = pytest.importorskip("numpy"), pytest.importorskip("pandas")
    generator = np.random.default_rng(0)
    age = generator.integers(18, 80, 120)
    table = pd.DataFrame(
        {
            "age": age.astype(float),
            "sex": generator.choice(["f", "m"], 120),
            "income": 300.0 * age + generator.normal(0, 2000, 120),
            "city": np.where(age > 45, "Bern", "Basel"),
        }
    )
    table = table.mask(generator.random(table.shape) < 0.15)
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(
        r"^```python\n(.*?)^```", (PROJECT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    names = {"table": table}
    exec(compile(code, "README.md", "exec"), names)
    assert not names["filled"].isna().any(axis=None)
    assert abs(names["answer"].mean["income"][0] - 9300) < 3000
    assert names["answer"].mean["city"].tolist() == ["Basel"]
    assert vfg.load(tmp_path / "model.vfg").is_fitted


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(tmp_path):
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, PROJECT]
    subprocess.run(pip, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "vfg/py.typed" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"vfg"}
    assert not [
        name for name in names if "benchmarks" in name or "/report/" in name or "test" in name
    ]
    assert {Path(name).suffix for name in names if name.startswith("vfg/")} <= {
        ".py", ".typed", ".css", ".js", ".json", ".gz", ".csv", ".npz", ".html",
    }  # fmt: skip
