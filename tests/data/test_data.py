"""Tables, images and masks against what they promise."""

import gzip
import hashlib
import io
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest
import scipy.io
import sklearn.datasets
from scipy.special import expit

from vfg.data import (
    BUNDLED,
    archives,
    binarized_mnist,
    california,
    caltech,
    digits,
    images,
    mar,
    mcar,
    mnar_self,
    mnist,
    omniglot,
    uci,
    uci_names,
)

MECHANISMS = {
    "mcar": lambda table, rate, seed: mcar(table.shape, rate, seed),
    "mar": mar,
    "mnar_self": mnar_self,
}


@pytest.fixture(autouse=True)
def network(monkeypatch, tmp_path):
    """A network that holds nothing but what a test puts there, by address; it counts requests."""
    held = SimpleNamespace(files={}, requests=[])

    def answer(request, timeout):
        held.requests.append(request.full_url)
        if request.full_url not in held.files:
            raise URLError("no network")
        return io.BytesIO(held.files[request.full_url])

    def nothing(**options):
        raise URLError("no network")

    monkeypatch.setattr(archives.urllib.request, "urlopen", answer)
    monkeypatch.setattr(sklearn.datasets, "fetch_california_housing", nothing)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("VFG_DATA", raising=False)
    return held


@pytest.fixture
def table():
    """Many rows, one column with heavy tails, one of two values, one constant."""
    generator = np.random.default_rng(0)
    values = generator.normal(size=(20_000, 6)) * [1, 10, 0.1, 1, 1, 1]
    values[:, 3] = np.exp(2.0 * values[:, 3])
    values[:, 4] = values[:, 4] > 1.0
    values[:, 5] = 7.0
    return values


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A data folder with one small UCI table and a little of California."""
    made = np.arange(12.0).reshape(4, 3)
    np.savez(tmp_path / "uci_tabular.npz", tiny__X=made, tiny__y=[0], tiny__columns=["a", "b", "c"])
    np.savez(tmp_path / "california_housing.npz", data=made, columns=["u", "v", "w"])
    monkeypatch.setenv("VFG_DATA", str(tmp_path))
    return made


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("rate", [0.05, 0.3, 0.8])
def test_every_column_that_may_be_missing_is_missing_at_the_rate(name, rate, table):
    mask = MECHANISMS[name](table, rate, 3)
    shares = mask.mean(axis=0)
    never = shares == 0
    assert never.sum() == (2 if name == "mar" else 0)
    # Five standard deviations of a share of independent draws, which these bounds only overstate.
    np.testing.assert_allclose(shares[~never], rate, atol=5 * np.sqrt(rate * (1 - rate) / 20_000))


@pytest.mark.parametrize("name", MECHANISMS)
def test_masks_depend_on_the_seed_alone(name, table, untouched_generators):
    draw, before = MECHANISMS[name], table.copy()
    mask = draw(table, 0.3, 1)
    assert mask.dtype == bool
    assert mask.shape == table.shape
    assert (draw(table, 0.3, 1) == mask).all()
    assert (draw(table, 0.3, 2) != mask).any()
    assert (table == before).all()


@pytest.mark.parametrize("name", MECHANISMS)
def test_masks_do_not_depend_on_the_units_of_the_columns(name, table):
    draw = MECHANISMS[name]
    scaled = 3.0 * table - 5.0
    assert (draw(scaled, 0.4, 0) == draw(table, 0.4, 0)).mean() > 0.9999


def test_cells_missing_completely_at_random_are_independent():
    mask = mcar((200_000, 3), 0.4, 0).astype(float)
    np.testing.assert_allclose(np.corrcoef(mask.T), np.eye(3), atol=0.01)


@pytest.mark.parametrize(("columns", "shown"), [(2, 1), (3, 1), (5, 1), (6, 2), (31, 10)])
def test_a_third_of_the_columns_is_always_observed(columns, shown):
    mask = mar(np.random.default_rng(0).normal(size=(500, columns)), 0.5, 0)
    assert (~mask.any(axis=0)).sum() == shown


def test_missing_at_random_looks_at_the_observed_columns_only(table):
    mask = mar(table, 0.3, 5)
    hidden = mask.any(axis=0)
    others = table.copy()
    others[:, hidden] = np.random.default_rng(9).permutation(table[:, hidden])
    assert (mar(others, 0.3, 5) == mask).all()
    seen = table.copy()
    seen[:, ~hidden] = np.random.default_rng(9).permutation(table[:, ~hidden])
    assert (mar(seen, 0.3, 5) != mask).any()


def test_missing_at_random_follows_a_logistic_of_the_observed_column():
    values = np.random.default_rng(0).normal(size=(200_000, 3))
    mask = mar(values, 0.3, 0)
    hidden = mask.any(axis=0)
    driver = np.sort(values[:, ~hidden][:, 0])
    ordered = mask[np.argsort(values[:, ~hidden][:, 0])][:, hidden]
    for column in ordered.T:
        shares = np.array([part.mean() for part in np.array_split(column, 10)])
        centres = np.array([part.mean() for part in np.array_split(driver, 10)])
        slope = np.polyfit(centres, np.log(shares / (1 - shares)), 1)[0]
        assert abs(slope) == pytest.approx(1.0, abs=0.05)


def test_large_values_hide_themselves_by_a_logistic_with_slope_one():
    values = np.random.default_rng(1).normal(size=(200_000, 1))
    mask = mnar_self(4.0 * values + 2.0, 0.3, 0)
    near = {place: mask[np.abs(values - place) < 0.1].mean() for place in (-1.0, 0.0, 1.0)}
    logits = {place: np.log(share / (1 - share)) for place, share in near.items()}
    assert logits[1.0] - logits[0.0] == pytest.approx(1.0, abs=0.1)
    assert logits[0.0] - logits[-1.0] == pytest.approx(1.0, abs=0.1)
    assert expit(values + logits[0.0]).mean() == pytest.approx(0.3, abs=0.01)


def test_self_masking_of_one_column_does_not_look_at_the_others(table):
    mask = mnar_self(table, 0.3, 0)
    others = table.copy()
    others[:, 1:] = np.random.default_rng(9).permutation(table[:, 1:])
    assert (mnar_self(others, 0.3, 0)[:, 0] == mask[:, 0]).all()


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, 30.0])
def test_rates_outside_the_unit_interval_are_refused(name, rate, table):
    with pytest.raises(ValueError, match=f"strictly between 0 and 1, not {rate}"):
        MECHANISMS[name](table, rate, 0)


def test_missing_at_random_needs_two_columns():
    with pytest.raises(ValueError, match="at least two columns, but it has 1"):
        mar(np.zeros((5, 1)), 0.3, 0)


@pytest.mark.parametrize("name", BUNDLED)
def test_tables_of_scikit_learn_need_no_folder(name, monkeypatch):
    monkeypatch.delenv("VFG_DATA", raising=False)
    values, columns = uci(name)
    assert values.dtype == np.float64
    assert values.shape[1] == len(columns)
    assert np.isfinite(values).all()
    assert uci_names() == tuple(sorted(BUNDLED))


@pytest.mark.parametrize(
    "load", [lambda: uci("spambase"), california, mnist, binarized_mnist, caltech, omniglot]
)
def test_a_table_that_is_not_there_says_to_set_the_folder(load, monkeypatch):
    monkeypatch.delenv("VFG_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="set the environment variable VFG_DATA"):
        load()


def test_tables_are_read_from_the_folder(folder):
    values, columns = uci("tiny")
    assert (values == folder).all()
    assert columns == ("a", "b", "c")
    assert uci_names() == tuple(sorted([*BUNDLED, "tiny"]))
    values, columns = california()
    assert (values == folder).all()
    assert columns == ("u", "v", "w")


def test_a_folder_without_the_file_is_like_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("VFG_DATA", str(tmp_path))
    assert uci("iris")[0].shape == (150, 4)
    with pytest.raises(FileNotFoundError, match=r"california_housing\.npz"):
        california()


def test_california_is_downloaded_by_scikit_learn_otherwise(monkeypatch):
    made = SimpleNamespace(data=np.ones((3, 8)), feature_names=list("abcdefgh"))
    monkeypatch.setattr(sklearn.datasets, "fetch_california_housing", lambda **options: made)
    values, columns = california()
    assert (values == made.data).all()
    assert columns == tuple("abcdefgh")


def sha256(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def drawn(*shape, peak=1, seed=0):
    """Random images, whatever is written of which should be read again."""
    return np.random.default_rng(seed).integers(0, peak + 1, shape, dtype=np.uint8)


def matlab(**arrays):
    file = io.BytesIO()
    scipy.io.savemat(file, arrays)
    return file.getvalue()


def test_digits_come_with_scikit_learn():
    found = digits()
    assert len(found.train) + len(found.validation) + len(found.test) == 1797
    whole = sklearn.datasets.load_digits()
    rows = {tuple(row): label for row, label in zip(whole.data, whole.target, strict=True)}
    for part in images.PARTS:
        pixels = getattr(found, part)
        assert [rows[tuple(row)] for row in pixels] == found.labels[part].tolist()


def test_a_download_is_checked_and_kept(network):
    address, content = "https://example.org/file.bin.gz", b"some content"
    network.files[address] = gzip.compress(content)
    for _ in range(2):
        assert archives.download("it", address, sha256(content), instead="it.npz") == content
    assert network.requests == [address]
    (archives.cache() / "file.bin").write_bytes(b"some other content")
    assert archives.download("it", address, sha256(content), instead="it.npz") == content
    assert len(network.requests) == 2


@pytest.mark.parametrize("sent", [b"something else", gzip.compress(b"some content", mtime=0)[:-9]])
def test_what_has_not_the_checksum_is_refused_and_not_kept(network, sent):
    address = "https://example.org/file.gz"
    network.files[address] = sent if sent.startswith(b"\x1f") else gzip.compress(sent)
    with pytest.raises(
        FileNotFoundError, match=r"VFG_DATA to a folder that holds it\.npz, because"
    ):
        archives.download("it", address, sha256(b"some content"), instead="it.npz")
    assert not (archives.cache() / "file").exists()


def test_mnist_is_read_from_the_original_files(network, monkeypatch):
    made = {
        "train": drawn(50_007, 2, 2, peak=255),
        "train_labels": drawn(50_007, peak=9),
        "test": drawn(3, 2, 2, peak=255),
        "test_labels": drawn(3, peak=9),
    }
    files = {}
    for part, (file, _) in images.MNIST_FILES.items():
        header = bytes([0, 0, 8, made[part].ndim]) + np.array(made[part].shape, ">i4").tobytes()
        content = header + made[part].tobytes()
        network.files[f"{images.MNIST}{file}.gz"] = gzip.compress(content, 1)
        files[part] = (file, sha256(content))
    monkeypatch.setattr(images, "MNIST_FILES", files)
    found = mnist()
    assert (np.concatenate([found.train, found.validation]) == made["train"].reshape(-1, 4)).all()
    assert len(found.validation) == 7
    assert (found.labels["validation"] == made["train_labels"][50_000:]).all()
    assert (found.test == made["test"].reshape(-1, 4)).all()
    assert (found.labels["test"] == made["test_labels"]).all()


@pytest.fixture
def packed(tmp_path, monkeypatch):
    """A data folder with the three sets of images as bits or bytes."""
    made = {
        part: drawn(rows, 784, seed=rows)
        for part, rows in (("train", 5), ("valid", 3), ("test", 2))
    }
    bits = {part: np.packbits(pixels, axis=1) for part, pixels in made.items()}
    labels = {f"{part}_labels": np.arange(len(pixels)) for part, pixels in made.items()}
    np.savez(tmp_path / "mnist_static_binarized.npz", **bits)
    np.savez(tmp_path / "caltech101_silhouettes_28_split1.npz", **bits, **labels)
    grey = drawn(6, 28, 28, peak=255)
    np.savez(tmp_path / "omniglot_28_gray.npz", train=grey, test=grey[:2], valid_index=[4, 1])
    monkeypatch.setenv("VFG_DATA", str(tmp_path))
    return made, grey


def test_images_are_read_from_the_folder(packed, network):
    made, grey = packed
    for load in (binarized_mnist, caltech):
        found = load()
        assert (found.train == made["train"]).all()
        assert (found.validation == made["valid"]).all()
        assert (found.test == made["test"]).all()
        assert (found.shape, found.peak) == ((28, 28), 1)
    assert caltech().labels["validation"].tolist() == [0, 1, 2]
    rows = grey.reshape(6, -1)
    found = omniglot()
    assert (found.train == rows[[0, 2, 3, 5]]).all()
    assert (found.validation == rows[[1, 4]]).all()
    assert "not chardata.mat" in found.source
    assert not network.requests


def test_binarized_mnist_is_read_from_its_text(network, monkeypatch):
    made, files = {}, {}
    for rows, part in enumerate(images.BINARIZED_FILES, start=1):
        made[part] = drawn(rows, 784, seed=rows)
        text = "".join(" ".join(map(str, row)) + " \n" for row in made[part]).encode()
        network.files[f"{images.BINARIZED}{part}.amat"] = text
        files[part] = sha256(text)
    monkeypatch.setattr(images, "BINARIZED_FILES", files)
    found = binarized_mnist()
    assert (found.train == made["train"]).all()
    assert (found.validation == made["valid"]).all()
    assert (found.test == made["test"]).all()


def columns_first(pixels):
    """Rows of pixels as MATLAB writes them."""
    return pixels.reshape(-1, 28, 28).transpose(0, 2, 1).reshape(len(pixels), -1)


def test_silhouettes_are_turned_upright_and_the_object_is_one(network, monkeypatch):
    made = {
        part: drawn(rows, 784, seed=rows) for rows, part in enumerate(("train", "val", "test"), 2)
    }
    arrays = {f"{part}_data": 1 - columns_first(pixels) for part, pixels in made.items()}
    arrays |= {f"{part}_labels": np.arange(len(pixels))[:, None] for part, pixels in made.items()}
    network.files[images.CALTECH] = matlab(**arrays)
    monkeypatch.setattr(images, "CALTECH_DIGEST", sha256(network.files[images.CALTECH]))
    found = caltech()
    assert (found.train == made["train"]).all()
    assert (found.validation == made["val"]).all()
    assert (found.test == made["test"]).all()
    assert found.labels["test"].tolist() == [0, 1, 2, 3]


def test_omniglot_of_the_literature_is_read_from_its_matlab_file(network, monkeypatch):
    made = {"data": drawn(1350, 784, peak=255), "testdata": drawn(2, 784, peak=255, seed=1)}
    arrays = {name: columns_first(pixels).T / 255.0 for name, pixels in made.items()}
    network.files[images.OMNIGLOT] = matlab(**arrays)
    monkeypatch.setattr(images, "OMNIGLOT_DIGEST", sha256(network.files[images.OMNIGLOT]))
    found = omniglot()
    assert (found.train == made["data"][:5]).all()
    assert (found.validation == made["data"][5:]).all()
    assert (found.test == made["testdata"]).all()
    assert found.source == "Omniglot, chardata.mat"
