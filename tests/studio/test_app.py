"""The server: this machine alone, nothing from elsewhere, errors in sentences."""

import base64
import json
import re
import socket
import subprocess
import sys
from threading import Thread

import pytest
from imputation.mixed_tables import mixed

pytest.importorskip("dash", reason="the studio needs the extra studio")

from vfg.studio import make_app
from vfg.studio.filling.page import content_bytes
from vfg.studio.server import start_server


@pytest.fixture(scope="module")
def app(mixed_imputer):
    return make_app(mixed_imputer, mixed())


@pytest.fixture
def client(app):
    return app.server.test_client()


def called(client, output, inputs, state=(), changed=()):
    """What a callback answers, as the browser would call it."""

    def values(pairs):
        return [{"id": k, "property": p, "value": v} for (k, p), v in pairs]

    outputs = [dict(zip(("id", "property"), one.split("."), strict=True)) for one in output]
    several = len(output) > 1
    name = f"..{'...'.join(output)}.." if several else output[0]
    body = {
        "output": name,
        "outputs": outputs if several else outputs[0],
        "inputs": values(inputs),
        "state": values(state),
        "changedPropIds": list(changed),
    }
    return client.post("/_dash-update-component", json=body)


def test_the_page_loads_nothing_from_elsewhere(client):
    text = client.get("/").get_data(as_text=True)
    loaded = re.findall(r"(?:src|href)=\"([^\"]+)\"", text)
    assert loaded
    assert all(address.startswith("/") for address in loaded)
    assert "https://" not in text
    policy = client.get("/").headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy


def test_only_this_machine_is_answered(client):
    assert client.get("/", headers={"Host": "127.0.0.1:8050"}).status_code == 200
    assert client.get("/", headers={"Host": "localhost"}).status_code == 200
    assert client.get("/", headers={"Host": "evil.example:8050"}).status_code == 403


def test_the_server_is_bound_to_this_machine(app, capfd):
    server = start_server(app, 0)
    try:
        assert server.server_address[0] == "127.0.0.1"
        with pytest.raises(OSError, match="is taken; choose another one with port="):
            start_server(app, server.server_port)
        assert "in use" not in capfd.readouterr().err  # one message, not werkzeug's as well
    finally:
        server.server_close()


def test_every_control_has_a_name(client):
    layout = json.dumps(client.get("/_dash-layout").get_json())
    for place in ("ask-graph", "graph", "evidence", "answers", "upload", "fill", "embedding-plot"):
        assert f'"id": "{place}"' in layout
    assert layout.count('"role": "tab"') == layout.count('"role": "tabpanel"') == 4


def test_an_action_comes_back_as_html(client, mixed_opened):
    reply = called(
        client,
        ["state.data", "view.data"],
        [(("action", "data"), {"kind": "set", "name": "age", "value": "30"}),
         (("table", "data"), None)],
        [(("state", "data"), None)],
        ["action.data"],
    )  # fmt: skip
    response = reply.get_json()["response"]
    mean = re.search(
        r'data-select="height" data-mean="([^"]+)"', response["view"]["data"]["answers"]
    )
    wanted = mixed_opened.ask({"age": 30}).variables["height"].mean
    assert float(mean[1]) == pytest.approx(wanted)
    assert response["state"]["data"]["question"]["evidence"] == [["age", 30]]


def upload(client, name, data):
    contents = "data:text/csv;base64," + base64.b64encode(data).decode()
    return called(
        client,
        ["table.data", "notice.children"],
        [(("upload", "contents"), contents)],
        [(("upload", "filename"), name)],
        ["upload.contents"],
    )


def test_uploads_become_tables(client):
    reply = upload(client, "t.csv", mixed().to_csv(index=False).encode())
    assert reply.get_json()["response"]["table"]["data"]["rows"] == 60


def test_bad_uploads_leave_a_message_on_the_page(client):
    reply = upload(client, "t.csv", b"a,b\n1,2\n")
    text = reply.get_data(as_text=True)
    assert reply.status_code in (200, 204)
    assert "lacks the columns" in text
    assert "Traceback" not in text


def test_uploads_that_were_cut_short_are_refused():
    assert content_bytes("data:;base64,YWI=") == b"ab"
    with pytest.raises(ValueError, match="cut short"):
        content_bytes("data:;base64,YWI")


def test_the_length_of_a_request_must_be_stated(app):
    """Otherwise a body without end passes the limit."""
    server = start_server(app, 0)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as line:
            line.sendall(
                b"POST /_dash-update-component HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
            )
            assert b" 411 " in line.recv(200)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_browsers_are_told_apart(client):
    assert "vfg-client=" in client.get("/").headers["Set-Cookie"]
    assert "HttpOnly" not in client.get("/").headers.get("Set-Cookie", "")
    for k in range(5):
        reply = upload(client, f"{k}.csv", mixed().to_csv(index=False).encode())
    notice = reply.get_json()["response"]["notice"]["children"]
    assert notice.endswith("because a page keeps 4 tables open")


@pytest.mark.slow
def test_the_package_imports_without_the_extra():
    code = (
        "import sys\n"
        "for name in ('dash', 'plotly', 'flask'): sys.modules[name] = None\n"
        "import vfg.studio\n"
        "try: vfg.studio.make_app('nothing.vfg')\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'vfg[studio]'" in done.stdout
