"""The service over HTTP: paths, limits, health and metrics, on the standard library's server."""

from __future__ import annotations

import errno
import hmac
import json
import re
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from vfg.graph.checks import suggestion
from vfg.serving.service import Service, decode_json
from vfg.utils.extras import needs

LOOPBACK = ("127.0.0.1", "localhost", "::1")
ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the histogram of seconds."""


@dataclass(frozen=True)
class Limits:
    """How large a request may be, and how many are served at a time.

    Args:
        rows: largest number of rows of a request (default 10,000).
        bytes: largest size of the body of a request (default 16 MiB).
        requests: largest number of requests that are answered at a time (default 128); others get
            the status 503.
        seconds: time that an answer may take, and that a client may take to send its request
            (default 60).
    """

    rows: int = 10_000
    bytes: int = 16 * 2**20
    requests: int = 128
    seconds: float = 60.0

    def __post_init__(self) -> None:
        for name in ("rows", "bytes", "requests", "seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, but is {getattr(self, name)!r}")


class RefusedError(Exception):
    """A request that is not answered, with its status and one sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Metrics:
    """Requests by path and status, rows, and a histogram of seconds, as Prometheus reads them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests: Counter[tuple[str, int]] = Counter()
        self.buckets: Counter[float] = Counter()
        self.rows, self.seconds, self.in_flight = 0, 0.0, 0

    def add(self, path: str, status: int, seconds: float, rows: int) -> None:
        with self._lock:
            self.requests[path, status] += 1
            self.seconds += seconds
            self.rows += rows
            self.buckets.update(bound for bound in BOUNDS if seconds <= bound)

    def enter(self, step: int) -> None:
        with self._lock:
            self.in_flight += step

    def text(self) -> str:
        with self._lock:
            total = sum(self.requests.values())
            lines = ["# TYPE vfg_requests_total counter"]
            lines += [
                f'vfg_requests_total{{path="{path}",status="{status}"}} {count}'
                for (path, status), count in sorted(self.requests.items())
            ]
            lines += ["# TYPE vfg_rows_total counter", f"vfg_rows_total {self.rows}"]
            lines += ["# TYPE vfg_in_flight gauge", f"vfg_in_flight {self.in_flight}"]
            lines += ["# TYPE vfg_request_seconds histogram"]
            lines += [
                f'vfg_request_seconds_bucket{{le="{bound}"}} {self.buckets[bound]}'
                for bound in BOUNDS
            ]
            lines += [f'vfg_request_seconds_bucket{{le="+Inf"}} {total}']
            lines += [f"vfg_request_seconds_sum {self.seconds:.6f}"]
            lines += [f"vfg_request_seconds_count {total}"]
        return "\n".join(lines) + "\n"


class Server(ThreadingHTTPServer):
    """A server of one model; see `make_server`."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(
        self, address: tuple[str, int], service: Service, limits: Limits, token: str | None
    ) -> None:
        self.service, self.limits, self.token = service, limits, token
        self.metrics = Metrics()
        self.slots = threading.BoundedSemaphore(limits.requests)
        self.own_names = LOOPBACK if address[0] in LOOPBACK else ()
        super().__init__(address, Handler)

    def server_close(self) -> None:
        super().server_close()
        self.service.close()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    server_version, sys_version = "vfg", ""
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # answers would wait 40 ms for acknowledgements
    wbufsize = -1  # head and body leave in one packet

    def setup(self) -> None:
        self.request.settimeout(self.server.limits.seconds)
        super().setup()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: /metrics counts requests."""

    def do_GET(self) -> None:
        self._respond({"/health": _health, "/metrics": _metrics, "/schema": _schema})

    def do_POST(self) -> None:
        self._respond({"/fill": _fill, "/infer": _infer})

    def _respond(self, paths: dict[str, Any]) -> None:
        begun, path = time.perf_counter(), urlsplit(self.path).path
        name = path if path in PATHS else "other"
        self.answered_rows = 0
        self.server.metrics.enter(1)
        try:
            status, kind, body = self._answer(paths, path)
        finally:
            self.server.metrics.enter(-1)
        took = time.perf_counter() - begun
        self.server.metrics.add(name, status, took, self.answered_rows)
        self._send(status, kind, body)

    def _answer(self, paths: dict[str, Any], path: str) -> tuple[int, str, bytes]:
        try:
            self._check(path, paths)
            if path in ("/health", "/metrics"):
                return 200, *paths[path](self)
            if not self.server.slots.acquire(blocking=False):
                raise RefusedError(
                    503, "too many requests are being answered; try again in a moment"
                )
            try:
                return 200, *paths[path](self)
            finally:
                self.server.slots.release()
        except RefusedError as refused:
            return refused.status, *_as_json({"error": str(refused)})
        except (ValueError, TypeError) as error:
            return 400, *_as_json({"error": str(error)})
        except (LateError, TimeoutError):
            self.close_connection = True
            words = f"no answer within {self.server.limits.seconds:g} seconds"
            return 503, *_as_json({"error": words})
        except Exception as error:
            self.close_connection = True
            return 500, *_as_json({"error": f"a defect: {type(error).__name__}"})

    def _check(self, path: str, paths: dict[str, Any]) -> None:
        """Refuse foreign hosts, wrong tokens and unknown paths."""
        host = re.sub(r":\d+$", "", self.headers.get("Host", "")).strip("[]")
        if self.server.own_names and host not in self.server.own_names:
            # A page elsewhere can point a name of its own at this machine.
            self._refuse(403, f"this service answers to {', '.join(self.server.own_names)} only")
        if self.server.token is not None and path != "/health":
            given = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(), self.server.token.encode()):
                self._refuse(401, "send the token as Authorization: Bearer TOKEN")
        if path not in paths:
            if path in PATHS:
                self._refuse(405, f"{path} takes {PATHS[path]}")
            self._refuse(404, f"there is no {path}; there are {', '.join(PATHS)}")

    def _refuse(self, status: int, message: str) -> None:
        # The body is not read, so that the connection cannot go on.
        self.close_connection = True
        raise RefusedError(status, message)

    def read_body(self) -> bytes:
        """The body of a request within the limits."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self._refuse(411, "the request needs a Content-Length")
        if int(length) > self.server.limits.bytes:
            self._refuse(
                413,
                f"a body may have {self.server.limits.bytes:,} bytes, but this has {int(length):,}",
            )
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self._refuse(400, f"the body ends after {len(body):,} of {int(length):,} bytes")
        return body

    def _send(self, status: int, kind: str, body: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cache-Control", "no-store")
            if status == 401:
                self.send_header("WWW-Authenticate", "Bearer")
            if status == 503:
                self.send_header("Retry-After", "1")
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


PATHS = {"/fill": "POST", "/infer": "POST", "/schema": "GET", "/health": "GET", "/metrics": "GET"}


def _as_json(value: Any) -> tuple[str, bytes]:
    return JSON, json.dumps(value, allow_nan=False).encode()


def _health(request: Handler) -> tuple[str, bytes]:
    return _as_json({"status": "ok"})


def _metrics(request: Handler) -> tuple[str, bytes]:
    return "text/plain; version=0.0.4", request.server.metrics.text().encode()


def _schema(request: Handler) -> tuple[str, bytes]:
    return _as_json(request.server.service.describe())


def _check_names(given: Iterable[str], known: Sequence[str], what: str) -> None:
    """Refuse what a request names and nobody reads."""
    for name in given:
        if name not in known:
            raise ValueError(f"there is no {what} {name!r}; {suggestion(name, known)}")


def _level(request: Handler) -> float | None:
    """The level of `?interval=0.9`."""
    given = parse_qs(urlsplit(request.path).query).get("interval")
    if given is None:
        return None
    try:
        level = float(given[-1])
    except ValueError:
        level = -1.0
    if not 0.0 < level < 1.0:
        raise ValueError(f"interval must be a number between 0 and 1, but is {given[-1]!r}")
    return level


def _wants_probabilities(request: Handler) -> bool:
    given = parse_qs(urlsplit(request.path).query).get("probabilities", ["false"])[-1].lower()
    if given not in ("true", "false", "1", "0"):
        raise ValueError(f"probabilities must be true or false, but is {given!r}")
    return given in ("true", "1")


def _fill(request: Handler) -> tuple[str, bytes]:
    """Filled rows, with intervals and probabilities of the filled cells if wanted."""
    given = parse_qs(urlsplit(request.path).query, keep_blank_values=True)
    _check_names(given, ("interval", "probabilities"), "parameter")
    level, shares = _level(request), _wants_probabilities(request)
    service, body = request.server.service, request.read_body()
    if request.headers.get("Content-Type", JSON).split(";")[0].strip() == ARROW:
        if level is not None or shares:
            raise ValueError("intervals and probabilities come with rows as JSON only")
        return _fill_arrow(request, body)
    rows = service.read_rows(decode_json(body))
    filled = service.fill(rows).result(request.server.limits.seconds)
    answer: dict[str, Any] = {"rows": service.to_rows(filled)}
    kinds = {name: variable.kind == "choice" for name, variable in service.variables.items()}
    numbers = [name for name, is_choice in kinds.items() if not is_choice]
    choices = [name for name, is_choice in kinds.items() if is_choice]
    if level is not None:
        answers = service.infer(rows, numbers, level) if numbers else [{} for _ in rows]
        answer |= {"level": level, "intervals": _parts(answers, "interval")}
    if shares:
        answers = service.infer(rows, choices, 0.9) if choices else [{} for _ in rows]
        answer["probabilities"] = _parts(answers, "probabilities")
    request.answered_rows = len(rows)
    return _as_json(answer)


def _parts(answers: list[dict[str, dict[str, Any]]], part: str) -> list[dict[str, Any]]:
    """One part of the answers about the missing cells of every row, by column."""
    return [{name: own[part] for name, own in row.items() if part in own} for row in answers]


def _fill_arrow(request: Handler, body: bytes) -> tuple[str, bytes]:
    with needs("table"):
        import pyarrow
    service, limits = request.server.service, request.server.limits
    try:
        table = pyarrow.ipc.open_stream(body).read_all()
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise ValueError(f"the body is no Arrow stream: {error}") from error
    if table.num_rows > limits.rows:
        raise ValueError(
            f"a request may have {limits.rows:,} rows, but this one has {table.num_rows:,}"
        )
    filled = service.fill_table(table).result(limits.seconds)
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, filled.schema) as writer:
        writer.write_table(filled)
    request.answered_rows = table.num_rows
    return ARROW, sink.getvalue().to_pybytes()


def _infer(request: Handler) -> tuple[str, bytes]:
    """Means, intervals and probabilities of targets given evidence, for one row or several."""
    service = request.server.service
    body = decode_json(request.read_body())
    if not isinstance(body, dict) or "given" not in body:
        raise ValueError('expected {"given": {"column": value}, "targets": [...], "level": 0.9}')
    _check_names(parse_qs(urlsplit(request.path).query, keep_blank_values=True), (), "parameter")
    _check_names(body, ("given", "targets", "level"), "field")
    given, level = body["given"], body.get("level", 0.9)
    if not isinstance(level, float) or not 0.0 < level < 1.0:
        raise ValueError(f"level must be a number between 0 and 1, but is {level!r}")
    rows = service.read_rows(given if isinstance(given, list) else [given])
    targets = body.get("targets", list(service.variables))
    if not isinstance(targets, list) or not targets:
        raise ValueError(f"targets must be a list of columns, but is {targets!r}")
    answers = service.infer(rows, targets, level)
    request.answered_rows = len(rows)
    return _as_json({"level": level, "answers": answers})


def make_server(
    model: Any,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    limits: Limits | None = None,
) -> Server:
    """A server of a model, ready for `serve_forever`.

    Args:
        model: a fitted model of any kind, or an imputer.
        host: the address to listen at (default 127.0.0.1). Any but this machine's own needs a
            token.
        port: 0 (default) means any that is free; see `server_port`.
        token: the token that requests have to send; None (default) means none.
        limits: limits of requests; None (default) means those of `Limits()`.

    Raises:
        ValueError: for an address of other machines without a token, or an empty token.
        OSError: if the port is taken.

    Example:
        >>> import numpy as np, threading, urllib.request, vfg
        >>> model = vfg.GaussianVFG(vfg.Graph.star({"a": 1, "b": 1}))
        >>> rows = np.random.default_rng(0).normal(size=(50, 1)) @ np.ones((1, 2))
        >>> _ = vfg.fit(model, rows)
        >>> with make_server(model) as server:
        ...     threading.Thread(target=server.serve_forever).start()
        ...     address = f"http://127.0.0.1:{server.server_port}/health"
        ...     print(urllib.request.urlopen(address).read().decode())
        ...     server.shutdown()
        {"status": "ok"}
    """
    if host not in LOOPBACK and token is None:
        raise ValueError(
            f"{host} can be reached from other machines, so it needs a token; give one with "
            "--token-file (or token=), or listen at 127.0.0.1"
        )
    if token is not None and not token.strip():
        raise ValueError("the token is empty")
    limits = limits or Limits()
    service = Service(getattr(model, "model_", model), limits.rows)
    try:
        return Server((host, port), service, limits, token)
    except OSError as error:
        service.close()
        taken = error.errno == errno.EADDRINUSE
        trouble = "is taken" if taken else f"cannot be used ({error.strerror})"
        raise OSError(
            f"port {port} of {host} {trouble}; choose another one with port= (or --port), or 0 for "
            "any"
        ) from error


def serve(model: Any, **options: Any) -> None:
    """Serve a model until interrupted; see `make_server` for the options."""
    run(make_server(model, **options))


def run(server: Server) -> None:
    """Serve until interrupted or terminated, then answer what waits."""
    host, port = server.server_address[:2]
    print(f"vfg serve: http://{host!s}:{port}   (stop with Ctrl+C)", flush=True)
    # Nobody who asks reads the standard error of the server.
    warnings.filterwarnings("ignore", "the evidence has")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("stopped")
    finally:
        server.server_close()
