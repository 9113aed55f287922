"""Lines of keys: tomllib says which keys there are, the text says where they are."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from gateway.config.lines import key_lines, render_path


def paths_of(value, path=()):
    """All paths in what tomllib read."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in pairs:
        yield (*path, key)
        if isinstance(item, (dict, list)):
            yield from paths_of(item, (*path, key))


EVERYTHING = '''\
# a comment with key = "value"
top = 1
"quoted key" = 'a # no comment'
dotted.inner."x.y" = true

[gateway] # comment
workers = "auto"
text = """
[not.a.table]
key = 1 \\""" still
"""
raw = \'\'\'
# no comment ''
\'\'\'
stamp = 1979-05-27T07:32:00Z

[[listeners]]
address = "a:1"
[[listeners]]
address = "b:1"
  [listeners.inner]
  deep = [ # comment ]
    1,
    { x = "}", y = [ "]", 2 ] },
    [ [ ], [ 3 ] ], # trailing
  ]
  [[listeners.subs]]
  k = 1
  [[listeners.subs]]
  k = 2

[clusters.llama]
endpoints = [{ address = "a:1", weight = 1 },
             { address = "b:1" }]
[clusters]
late = {}
'''


def test_every_key_of_a_text_with_everything():
    lines = key_lines(EVERYTHING)
    assert set(lines) == set(paths_of(tomllib.loads(EVERYTHING)))
    text = EVERYTHING.split("\n")
    for path, key in [
        (("top",), "top"),
        (("quoted key",), "quoted"),
        (("dotted", "inner", "x.y"), "dotted"),
        (("gateway",), "[gateway]"),
        (("gateway", "stamp"), "stamp"),
        (("listeners", 0, "address"), '"a:1"'),
        (("listeners", 1, "address"), '"b:1"'),
        (("listeners", 1, "inner", "deep", 1, "y", 1), "{ x"),
        (("listeners", 1, "inner", "deep", 2, 1, 0), "[ 3 ]"),
        (("listeners", 1, "subs", 1, "k"), "k = 2"),
        (("clusters", "llama", "endpoints", 1, "address"), '"b:1"'),
        (("clusters",), "[clusters]"),
        (("clusters", "late"), "late"),
    ]:
        assert key in text[lines[path] - 1], path


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_lines_count_from_one(newline):
    assert key_lines(newline.join(["a = 1", "", "b = 2"])) == {("a",): 1, ("b",): 3}


_scalars = st.sampled_from(
    [
        "1",
        "-2.5e3",
        "true",
        "07:32:00",
        '"a]b"',
        "'x}y'",
        '""',
        '"#"',
        '"""\nk = 1\n"""',
        "'''\n'''",
        '"""x"""""',
        "'''x''''",
    ]
)
_keys = st.sampled_from(["a", "b-c", '"d e"', "'f.g'", '"\\u0068"', "i.b", '"".x', "i . c"])
_blanks = st.sampled_from(["", " ", "\n", " # c ] }\n", "\n\n"])


@st.composite
def _arrays(draw, inner):
    items = draw(st.lists(inner, max_size=3))
    out = "["
    for item in items:
        out += draw(_blanks) + item + draw(_blanks) + ","
    return out + draw(_blanks) + "]"


@st.composite
def _inline_tables(draw, inner):
    names = draw(st.lists(st.sampled_from(["p", "q", '"r"']), unique=True))
    return "{" + ", ".join(f"{name} = {draw(inner)}" for name in names) + "}"


_values = st.recursive(_scalars, lambda inner: _arrays(inner) | _inline_tables(inner), max_leaves=6)


@st.composite
def _texts(draw):
    out = ""
    headers = st.sampled_from(["[t]", "[ t.u ]", "[t.'x y']", "[[v]]", "[[v.w]]", "[v.x]"])
    for header in ["", *draw(st.lists(headers, max_size=4))]:
        out += draw(_blanks) + header + "\n"
        for key in draw(st.lists(_keys, max_size=3, unique=True)):
            comment = draw(st.sampled_from(["", " # k = 1"]))
            out += f"{key} = {draw(_values)}{comment}\n"
    return draw(st.sampled_from([out, out.replace("\n", "\r\n")]))


@given(_texts())
def test_the_paths_of_any_text_are_those_of_tomllib(text):
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError:  # a table defined twice
        event("not valid")
        return
    lines = key_lines(text)
    assert set(lines) == set(paths_of(read))
    assert all(1 <= line <= text.count("\n") + 1 for line in lines.values())


def test_paths_are_written_as_in_toml():
    path = ("clusters", "a b", "endpoints", 0, "address")
    assert render_path(path) == 'clusters."a b".endpoints[0].address'
