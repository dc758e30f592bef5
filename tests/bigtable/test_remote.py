"""Tables and models in stores: the same bytes as on the disk."""

import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import fsspec
import pyarrow as pa
import pytest
from bigtable.tables_on_disk import linear_model, mixed, numbers
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry
from fsspec.utils import infer_storage_options
from typer.testing import CliRunner

import vfg
from vfg.bigtable import impute, open_table, write_table
from vfg.cli import app
from vfg.utils.remote import RemotePath, as_path, is_remote

STORE = "memory://bucket"


@pytest.fixture(autouse=True)
def store():
    """An empty store in memory."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()


def put(table, url, **options):
    write_table(table.to_batches(max_chunksize=100), table.schema, url, **options)


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.csv.gz", "t.arrow", "t.jsonl.zst"])
def test_a_table_is_written_and_read_again(name, tmp_path):
    table = mixed(250).drop_columns(["note"])
    put(table, f"{STORE}/{name}")
    put(table, tmp_path / name)
    assert RemotePath(f"{STORE}/{name}").read_bytes() == (tmp_path / name).read_bytes()
    there, here = open_table(f"{STORE}/{name}"), open_table(tmp_path / name)
    assert there.rows == here.rows == 250
    assert there.read().equals(here.read())


def test_folders_and_patterns():
    table = numbers(30)
    for part in range(3):
        put(table.slice(10 * part, 10), f"{STORE}/in/part-{part}.parquet")
    for place in (f"{STORE}/in", f"{STORE}/in/part-*.parquet"):
        assert open_table(place).read().equals(table.cast(open_table(place).schema))
    with pytest.raises(FileNotFoundError, match="there is no file memory://bucket/no"):
        open_table(f"{STORE}/no.parquet")


def test_jobs_in_a_store_resume_and_have_the_bits_of_the_disk(tmp_path):
    table, model = numbers(250), linear_model(numbers(100))
    put(table, f"{STORE}/t.parquet")
    put(table, tmp_path / "t.parquet")
    vfg.save(model, f"{STORE}/model.vfg")
    told = impute(f"{STORE}/t.parquet", f"{STORE}/model.vfg", f"{STORE}/out", shard_rows=100)
    assert (told.rows, told.found, told.left) == (250, 0, 0)
    impute(tmp_path / "t.parquet", model, tmp_path / "out", shard_rows=100)
    for shard in range(3):
        name = f"part-{shard:05d}.parquet"
        assert (
            RemotePath(f"{STORE}/out/{name}").read_bytes() == (tmp_path / "out" / name).read_bytes()
        )
    RemotePath(f"{STORE}/out/part-00001.parquet").unlink()
    again = impute(f"{STORE}/t.parquet", model, f"{STORE}/out", shard_rows=100)
    assert again.found == 150
    one = impute(f"{STORE}/t.parquet", model, f"{STORE}/one.csv", shard_rows=100)
    assert one.rows == 250
    assert sorted(path.name for path in RemotePath(STORE).iterdir()) == [
        "model.vfg", "one.csv", "out", "t.parquet",
    ]  # fmt: skip


def test_a_changed_file_is_no_job_to_go_on_with():
    model = linear_model(numbers(100))
    put(numbers(150), f"{STORE}/t.parquet")
    impute(f"{STORE}/t.parquet", model, f"{STORE}/out", shard_rows=100)
    put(numbers(150, seed=5), f"{STORE}/t.parquet")
    with pytest.raises(ValueError, match="the input has changed"):
        impute(f"{STORE}/t.parquet", model, f"{STORE}/out", shard_rows=100)


def test_a_failing_writer_leaves_nothing():
    def broken():
        yield from numbers(10).to_batches()
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        write_table(broken(), numbers(10).schema, f"{STORE}/t.csv")
    assert not RemotePath(f"{STORE}/t.csv").exists()


def test_models_by_url():
    model = linear_model(numbers(60))
    vfg.save(model, f"{STORE}/model.vfg")
    assert vfg.load(f"{STORE}/model.vfg").columns == model.columns
    # A command line makes a path of a URL, which then has one slash.
    assert vfg.load(Path(f"{STORE}/model.vfg")).columns == model.columns
    with pytest.raises(FileNotFoundError, match=r"no model file 'memory://bucket/no.vfg'"):
        vfg.load(f"{STORE}/no.vfg")


class Lasting(MemoryFileSystem):
    """A store that could outlast the process, as far as a command can know."""

    protocol = "lasting"

    @classmethod
    def _strip_protocol(cls, path):
        return "/" + path.removeprefix("lasting://").strip("/")


def test_the_command_line_reads_and_writes_stores(store):
    fsspec.register_implementation("lasting", Lasting, clobber=True)
    put(numbers(120), "lasting://t.csv")
    run = CliRunner().invoke(
        app, ["impute", "lasting://t.csv", "-o", "lasting://filled", "--linear", "--quiet"]
    )
    assert run.exit_code == 0, run.output
    assert open_table("lasting://filled").rows == 120
    run = CliRunner().invoke(app, ["impute", "lasting://t.csv", "-o", "lasting://t.csv"])
    assert run.exit_code == 2
    assert "would replace a file" in run.stderr


COMMANDS = {
    "fit": ["fit", "TABLE", "-o", "memory://m.vfg"],
    "impute": ["impute", "TABLE", "--linear", "-o", "memory://folder"],
    "save": ["impute", "TABLE", "--linear", "-o", "-", "--save", "memory://m.vfg"],
    "sample": ["sample", "MODEL", "-o", "memory://rows.csv"],
    "score": ["score", "TABLE", "-m", "MODEL", "-o", "memory://scores.csv"],
    "learn": ["learn", "TABLE", "-o", "memory://graph.json"],
    "export": ["export", "MODEL", "-o", "memory://m.onnx"],
    "data": ["data", "synthetic", "-o", "memory://rows.csv"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_refuse_to_write_what_ends_with_them(name, tmp_path, store):
    table = numbers(40)
    write_table(table.to_batches(), table.schema, tmp_path / "t.csv")
    vfg.save(linear_model(table), tmp_path / "m.vfg")
    places = {"TABLE": str(tmp_path / "t.csv"), "MODEL": str(tmp_path / "m.vfg")}
    run = CliRunner().invoke(app, [places.get(word, word) for word in COMMANDS[name]])
    assert run.exit_code == 2, run.output
    assert "would be lost when this command ends; name a file" in run.stderr
    assert not store.store


PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "abfs": "adlfs"}


@pytest.mark.parametrize("scheme", PACKAGES)
def test_a_store_without_its_package_names_it(scheme, monkeypatch):
    package = PACKAGES[scheme]
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    expected = f"{scheme}:// needs a package that is not installed: pip install {package}"
    with pytest.raises(ImportError, match=expected):
        open_table(f"{scheme}://bucket/t.csv")
    run = CliRunner().invoke(app, ["impute", f"{scheme}://bucket/t.csv", "-o", "-", "--linear"])
    assert (run.exit_code, run.stderr) == (1, f"vfg: {expected}\n")


def test_hdfs_without_hadoop_says_what_is_missing(monkeypatch):
    def fail(*args, **options):
        raise OSError("Unable to load libjvm\ndlopen(a)\ndlopen(b)")

    monkeypatch.setattr("pyarrow.fs.HadoopFileSystem", fail)
    with pytest.raises(ImportError, match="needs Java and Hadoop's libhdfs"):
        open_table("hdfs://node:8020/t.csv")


def test_an_unknown_kind_of_store():
    with pytest.raises(ValueError, match=r"foo://a/b.csv cannot be opened: .*known stores are s3"):
        open_table("foo://a/b.csv")


class Hosted(MemoryFileSystem):
    """As the store of Hadoop: a host in URLs, which its own paths lack."""

    protocol = "hdfs"
    cachable = False
    hosts: ClassVar = []

    def __init__(self, host="none", **options):
        super().__init__()
        self.hosts.append(host)

    @classmethod
    def _strip_protocol(cls, path):
        own = infer_storage_options(path)["path"] if "://" in path else path
        return "/" + own.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path):
        return {"host": infer_storage_options(path).get("host")}


@pytest.mark.parametrize(
    ("url", "host"), [("hdfs://node:8020/in", "node"), ("hdfs:///in", "default")]
)
def test_urls_with_a_host(url, host, monkeypatch, store):
    monkeypatch.setitem(_registry, "hdfs", Hosted)
    Hosted.hosts.clear()
    table = numbers(30)
    for part in range(3):
        put(table.slice(10 * part, 10), f"{url}/part-{part}.parquet")
    assert list(store.store) == [f"/in/part-{part}.parquet" for part in range(3)]
    for place in (url, f"{url}/part-*.parquet"):
        assert open_table(place).read().equals(table.cast(open_table(place).schema))
    assert set(Hosted.hosts) == {host}


def test_what_is_a_url():
    assert is_remote("s3://a/b")
    assert not is_remote("file:///a/b")
    assert not is_remote("C:/a")
    assert as_path("a/b") == Path("a/b")
    assert str(as_path(Path("s3://a/b.csv"))) == "s3://a/b.csv"
    with pytest.raises(ValueError, match="no URL of a store"):
        RemotePath("a/b")


S3 = """
import sys, boto3, vfg
from moto.server import ThreadedMotoServer
sys.path.insert(0, sys.argv[1])
from bigtable.tables_on_disk import linear_model, numbers
from vfg.bigtable import impute, open_table, write_table
server = ThreadedMotoServer(port=0)
server.start()
host, port = server.get_host_and_port()
import os
os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{port}"
boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="bucket")
table = numbers(250)
write_table(table.to_batches(), table.schema, "s3://bucket/in/t.parquet")
vfg.save(linear_model(table), "s3://bucket/model.vfg")
done = impute("s3://bucket/in", "s3://bucket/model.vfg", "s3://bucket/out", shard_rows=100)
again = impute("s3://bucket/in", "s3://bucket/model.vfg", "s3://bucket/out", shard_rows=100)
print(done.rows, done.left, again.found, open_table("s3://bucket/out").rows)
server.stop()
"""


@pytest.mark.slow
def test_a_server_of_s3():
    pytest.importorskip("moto")
    pytest.importorskip("s3fs")
    pytest.importorskip("flask", reason="the server of moto needs flask")
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", S3, str(Path(__file__).parent.parent)],
        capture_output=True, text=True, timeout=300, env={**os.environ, **keys},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.split()[-4:] == ["250", "0", "250", "250"]


def test_batches_from_a_row_on(tmp_path):
    table = numbers(1000)
    write_table(table.to_batches(max_chunksize=64), table.schema, tmp_path / "a.parquet")
    write_table(table.to_batches(), table.schema, tmp_path / "b.csv")
    for name in ("a.parquet", "b.csv"):
        source = open_table([tmp_path / name, tmp_path / name])
        for first in (0, 100, 900, 1000, 1900):
            some = pa.Table.from_batches(source.batches_from(first, 100))
            assert some.equals(source.read().slice(first)), (name, first)
