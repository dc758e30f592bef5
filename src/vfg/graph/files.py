"""Graphs in files: JSON, GraphML, edge lists, and the structure of Bayesian networks in BIF."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from vfg.graph import builders
from vfg.graph.graph import Graph
from vfg.utils.files import write_atomically
from vfg.utils.specs import check_choice

LATENT_WIDTH = 8
"""Width of latent nodes in files without widths: that of `Graph.from_data` by default."""
LARGEST = 2**26
"""Most bytes of a file, which is read into memory whole."""

ARROWS = ("child-parent", "cause-effect")
"""Where the edges of a file lead: up to latent nodes, or from causes to effects."""

COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
TOKEN = re.compile(r'"[^"]*"|[(){},;|]|[^\s(){},;|"]+')
"""The words of BIF; found in one pass, however a file is damaged."""


def read_graph(path: str | Path, *, width: int | None = None, arrows: str | None = None) -> Graph:
    r"""Read a graph from a file, in the format that its name ends in.

    - `.json`: what `Graph.to_dict` returns, or what `LearnedGraph.save` wrote.
    - `.graphml`: nodes may have the attributes `width`, `columns`
      (separated by commas) and `aggregation`, edges `kind` and `coordinates`.
    - `.bif`: a Bayesian network, of which only the structure is read; see
      `Graph.from_bayesian_network`.
    - `.txt`, `.edges`, `.csv`, `.tsv`: one edge per line, child and parent, with a blank, a comma,
      a tab or `->` between them; lines that begin with `#` are skipped.

    Edges of GraphML and edge lists lead from child to parent, that is from columns to latent nodes,
    unless `arrows` says that they are those of a Bayesian network, which lead from causes to
    effects. A first line `cause,effect` of an edge list says so too. Leaves without a width have
    1, and are the columns of their names.

    Args:
        path: the file.
        width: of latent nodes that the file gives none; None means 8, or, for Bayesian networks,
            twice the size of the largest family.
        arrows: `"child-parent"` or `"cause-effect"`; None reads what the file says, else the first.

    Returns:
        The graph.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for another ending, contents that are no graph, or arrows that the format does
            not leave open.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "graph.txt").write_text("a -> h\nb -> h\n")
        ...     read_graph(Path(folder, "graph.txt"), width=2)
        Graph: 2 leaves, 1 latent node, 2 edges
        h (2)
        ├── a (1)
        └── b (1)
    """
    file = Path(path)
    reader = READERS.get(file.suffix.lower())
    if reader is None:
        raise ValueError(
            f"graphs are read from files that end in {', '.join(READERS)}, but this one is called "
            f"{file.name!r}; rename it"
        )
    if arrows is not None:
        check_choice("arrows", arrows, ARROWS)
        if file.suffix.lower() in (".json", ".bif"):
            raise ValueError(f"the arrows of {file.suffix} files are fixed; leave arrows out")
    text = _read_text(file)
    try:
        return reader(text, width, arrows)
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is not a graph file: {error}") from error


def holds_learned_graph(path: str | Path) -> bool:
    """Whether a file is JSON that `LearnedGraph.save` wrote."""
    if Path(path).suffix.lower() != ".json" or not Path(path).is_file():
        return False
    try:
        description = json.loads(_read_text(Path(path)))
    except (ValueError, RecursionError):  # `read_graph` says what is wrong
        return False
    return isinstance(description, dict) and "graph" in description


def states_arrows(path: str | Path) -> bool:
    """Whether a graph file says where its edges lead, by its format, attributes or first line.

    Example:
        >>> states_arrows("network.bif")
        True
    """
    file = Path(path)
    if file.suffix.lower() in (".json", ".bif"):
        return True
    text = _read_text(file)
    if file.suffix.lower() == ".graphml":
        return 'attr.name="width"' in text
    return _header(text) is not None


def write_graph(graph: Graph, path: str | Path) -> None:
    """Write a graph as JSON or GraphML, by the ending of the file's name, atomically.

    Args:
        graph: the graph.
        path: the file, which ends in `.json` or `.graphml`.

    Raises:
        ValueError: for another ending.

    Example:
        >>> import tempfile
        >>> graph = Graph.star({"a": 1, "b": 2}, width=3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_graph(graph, Path(folder, "graph.graphml"))
        ...     read_graph(Path(folder, "graph.graphml")) == graph
        True
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (".json", ".graphml"):
        raise ValueError(f"graphs are written as .json or .graphml, but got {str(path)!r}")
    text = (
        _to_graphml(graph) if suffix == ".graphml" else json.dumps(graph.to_dict(), indent=2) + "\n"
    )
    write_atomically(path, text.encode())


def edges_as_graph(edges: Sequence[tuple[str, str]], width: int | None = None) -> Graph:
    """A graph from (child, parent) pairs alone: leaves of width 1, latent nodes of one width.

    Raises:
        ValueError: if there are no edges, or they are no graph.

    Example:
        >>> edges_as_graph([("a", "h"), ("b", "h")], width=2).sections
        {'a': 1, 'b': 1}
    """
    if not edges:
        raise ValueError("it has no edges; write one per line, as in 'child parent'")
    parents = dict.fromkeys(parent for _, parent in edges)
    names = dict.fromkeys(name for edge in edges for name in edge)
    inner = LATENT_WIDTH if width is None else width
    return Graph.from_edges(edges, {name: inner if name in parents else 1 for name in names})


def _read_text(file: Path) -> str:
    if not file.is_file():
        raise FileNotFoundError(f"there is no graph file {str(file)!r}")
    if file.stat().st_size > LARGEST:
        raise ValueError(f"the graph file {str(file)!r} is larger than {LARGEST // 2**20} MiB")
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"the graph file {str(file)!r} is not text in UTF-8") from error


def _from_json(text: str, width: int | None, arrows: str | None) -> Graph:
    try:
        description = json.loads(text)
        # A learned graph has more to say of its edges; see `vfg.LearnedGraph`.
        learned = isinstance(description, dict) and "graph" in description
        return Graph.from_dict(description["graph"] if learned else description)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({str(error) or 'nested too deeply'})") from error


def _from_edge_list(text: str, width: int | None, arrows: str | None) -> Graph:
    edges = list(_edge_lines(text))
    if edges and (arrows or _header(text)) == "cause-effect":
        return Graph.from_bayesian_network(edges, width)
    return edges_as_graph(edges, width)


def _header(text: str) -> str | None:
    """What the first line of an edge list says of its arrows."""
    words = "-".join(_split_line(text.partition("\n")[0].strip().lower()))
    return words if words in ARROWS else None


def _edge_lines(text: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        names = _split_line(stripped)
        if number == 1 and "-".join(names).lower() in ARROWS:
            continue
        if len(names) != 2:
            raise ValueError(
                f"line {number} must be a child and a parent, as in 'a -> h', but is {stripped!r}"
            )
        yield names[0], names[1]


def _split_line(line: str) -> list[str]:
    """The parts of a line; names may contain blanks where something else divides them."""
    for divider in ("->", "\t", ","):
        if divider in line:
            return [_unquote(part) for part in line.split(divider)]
    return [_unquote(part) for part in line.split()]


def _unquote(text: str) -> str:
    text = text.strip()
    quoted = len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if quoted else text


def _from_bif(text: str, width: int | None, arrows: str | None) -> Graph:
    tokens = iter(TOKEN.findall(COMMENT.sub(" ", text)))
    variables: list[str] = []
    edges: list[tuple[str, str]] = []
    for token in tokens:
        if token == "variable":
            variables.append(_unquote("".join(takewhile(lambda word: word != "{", tokens))))
        elif token == "probability" and next(tokens, "") == "(":
            # As in `child | parent, parent`.
            words = list(takewhile(lambda word: word != ")", tokens))
            bar = words.index("|") if "|" in words else len(words)
            child = _unquote("".join(words[:bar]))
            edges += [(_unquote(parent), child) for parent in words[bar + 1 :] if parent != ","]
    if not variables:
        raise ValueError("it declares no variable, as in 'variable A { ... }'")
    for name in dict.fromkeys(name for edge in edges for name in edge):
        if name not in variables:
            raise ValueError(f"the variable {name!r} has a probability but no declaration")
    return Graph.from_bayesian_network(edges, width, variables)


def _from_graphml(text: str, width: int | None, arrows: str | None) -> Graph:
    import networkx

    try:
        digraph = networkx.parse_graphml(text)
    except Exception as error:  # the parsers of XML that networkx may use have errors of their own
        raise ValueError(f"it is not GraphML ({error})") from error
    if arrows == "cause-effect":
        return Graph.from_bayesian_network(digraph, width)
    for attributes in [*digraph.nodes.values(), *digraph.edges.values()]:
        for key in ("columns", "coordinates"):  # GraphML has no lists
            if key in attributes:
                attributes[key] = _parse_list(attributes[key])
    if digraph.is_directed():
        for name, attributes in digraph.nodes(data=True):
            listed = attributes.get("columns", (None,))
            inner = LATENT_WIDTH if width is None else width
            attributes.setdefault("width", inner if digraph.in_degree(name) else len(listed))
    return Graph(*builders.from_networkx(digraph))


def _parse_list(text: Any) -> tuple[Any, ...]:
    parts = [part.strip() for part in str(text).split(",")]
    return tuple(int(part) if part.isdecimal() else part for part in parts)


def _to_graphml(graph: Graph) -> str:
    import networkx

    digraph = builders.to_networkx(graph.nodes, graph.edges)
    for attributes in [*digraph.nodes.values(), *digraph.edges.values()]:
        for key, value in attributes.items():
            if isinstance(value, tuple):
                attributes[key] = ",".join(map(str, value))
    return "\n".join(networkx.generate_graphml(digraph)) + "\n"


READERS: dict[str, Callable[[str, int | None, str | None], Graph]] = {
    ".json": _from_json,
    ".graphml": _from_graphml,
    ".bif": _from_bif,
    ".txt": _from_edge_list,
    ".edges": _from_edge_list,
    ".csv": _from_edge_list,
    ".tsv": _from_edge_list,
}
"""How to read a graph, by the ending of a file's name."""
