"""The configuration file: what it becomes, and what each error says."""

from __future__ import annotations

import msgspec
import pytest

from gateway.config import Config, Http2, Listener, TcpAddress, load, parse
from gateway.errors import ConfigError

LISTENERS = '[[listeners]]\naddress = "127.0.0.1:8080"\n'
ROUTES = '[[routes]]\ncluster = "llama"\n'
ENDPOINTS = 'endpoints = [{ address = "127.0.0.1:9001" }]\n'
CLUSTERS = f"[clusters.llama]\n{ENDPOINTS}"
LEAST = LISTENERS + ROUTES + CLUSTERS


def errors_of(text: str) -> list[str]:
    """The lines of the error, the file's name cut off."""
    with pytest.raises(ConfigError) as caught:
        parse(text, source="g.toml")
    lines = str(caught.value).split("\n")
    assert all(line.startswith("g.toml:") for line in lines)
    return [line.removeprefix("g.toml:") for line in lines]


def error_of(text: str) -> str:
    """The only error."""
    (error,) = errors_of(text)
    return error


# ------------------------------------------------------------------------------ what is right


def test_the_least_that_can_be_served():
    config = parse(LEAST)
    assert config == Config(
        listeners=(Listener(address="127.0.0.1:8080"),),
        routes=config.routes,
        clusters=config.clusters,
    )
    cluster = config.clusters["llama"]
    assert cluster.name == "llama"
    assert cluster.policy == "least_connections"
    assert cluster.endpoints[0].target() == TcpAddress("127.0.0.1", 9001)
    assert (cluster.max_idle, cluster.idle_timeout_s) == (100, 15.0)
    assert (cluster.keepalive_interval_s, cluster.keepalive_timeout_s) == (5.0, 1.0)
    assert (config.routes[0].timeout_s, config.routes[0].idle_timeout_s) == (None, 300.0)
    assert config.http2 == Http2()


def test_defaults_made_in_python_are_those_of_an_empty_table():
    assert parse("[http2]\n[gateway]\n" + LEAST).http2 == Http2()


def test_units_and_none():
    config = parse(
        "[gateway]\nworkers = 4\ndrain_timeout = '1m30s'\n"
        "[http2]\nmax_frame_size = '32KiB'\nstall_timeout = 'none'\n"
        "[[listeners]]\naddress = 'unix:/run/g.sock'\nmode = '0660'\nidle_timeout = 2\n"
        "[[routes]]\ncluster = 'llama'\ntimeout = '1s'\nidle_timeout = 'none'\n"
        "max_request_body = '1MiB'\nmatch = { path = '/x', headers = { A = 'b' } }\n"
        "[clusters.llama]\nkeepalive_interval = 'none'\nmax_connection_age_grace = 'none'\n"
        "stream_share = 1\n" + ENDPOINTS
    )
    assert (config.gateway.workers, config.gateway.drain_timeout_s) == (4, 90.0)
    assert (config.http2.max_frame_size, config.http2.stall_timeout_s) == (32768, None)
    assert config.listeners[0].mode_bits() == 0o660
    assert config.listeners[0].idle_timeout_s == 2.0
    route = config.routes[0]
    assert (route.timeout_s, route.idle_timeout_s) == (1.0, None)
    assert (route.max_request_body, route.connect_timeout_s) == (2**20, None)
    assert route.match.headers == {"A": "b"}
    cluster = config.clusters["llama"]
    assert (cluster.keepalive_interval_s, cluster.max_connection_age_grace_s) == (None, None)
    assert isinstance(cluster.stream_share, float)


def test_models_are_frozen():
    config = parse(LEAST)
    with pytest.raises(AttributeError):
        config.gateway.workers = 2  # type: ignore[misc]


def test_models_made_in_python_take_keywords_only():
    with pytest.raises(TypeError):
        Listener("127.0.0.1:80")  # type: ignore[call-arg]


def test_a_name_is_no_key():
    text = LEAST + 'name = "other"\n'
    assert error_of(text).startswith("7: clusters.llama.name: unknown key")


@pytest.mark.parametrize(
    "hash_on",
    ["header:X-A", "metadata:a-bin", "cookie:sid", "query:user", "path", "authority", "client"],
)
def test_hash_sources(hash_on):
    text = LEAST + f'policy = "ring_hash"\nhash_on = "{hash_on}"\n'
    assert parse(text).clusters["llama"].hash_on == hash_on


def test_listeners_on_a_port_that_the_system_chooses():
    listeners = '[[listeners]]\naddress = "127.0.0.1:0"\n'
    assert len(parse(listeners + listeners + ROUTES + CLUSTERS).listeners) == 2


@pytest.mark.parametrize(
    "match",
    [
        "{}",
        '{ path = "*", method = "OPTIONS" }',
        '{ path_prefix = "/a%20b" }',
        '{ authority = "*.example.org" }',
        '{ authority = "example.org:8080" }',
        '{ authority = "[::1]:8080" }',
        '{ authority = "model_1" }',
        '{ headers = { x = "", y = "a b" } }',
    ],
)
def test_matches(match):
    parse(LISTENERS + ROUTES + f"match = {match}\n" + CLUSTERS)


# ------------------------------------------------------------------------------ unknown, missing


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[gatway]\n" + LEAST, '1: gatway: unknown key; did you mean "gateway"?'),
        (
            "[gateway]\nworker = 2\n" + LEAST,
            '2: gateway.worker: unknown key; did you mean "workers"?',
        ),
        (
            "[http2]\nmax-frame-size = 1\n" + LEAST,
            '2: http2.max-frame-size: unknown key; did you mean "max_frame_size"?',
        ),
        (
            "[http2]\nstall_timeout_s = 1\n" + LEAST,
            '2: http2.stall_timeout_s: unknown key; did you mean "stall_timeout"?',
        ),
        ("workers = 2\n" + LEAST, "1: workers: unknown key here; it belongs in [gateway]"),
        (
            LISTENERS + ROUTES + 'hash_on = "path"\n' + CLUSTERS,
            "5: routes[0].hash_on: unknown key here; it belongs in [clusters.NAME]",
        ),
        (
            LISTENERS + ROUTES + 'match = { path_prefx = "/" }\n' + CLUSTERS,
            '5: routes[0].match.path_prefx: unknown key; did you mean "path_prefix"?',
        ),
        (
            LISTENERS + LISTENERS.replace("address", "adress") + ROUTES + CLUSTERS,
            '4: listeners[1].adress: unknown key; did you mean "address"?',
        ),
        (
            LEAST + '[clusters."a b"]\npolcy = "random"\n' + ENDPOINTS,
            '8: clusters."a b".polcy: unknown key; did you mean "policy"?',
        ),
    ],
)
def test_an_unknown_key_names_the_nearest_one(text, error):
    assert error_of(text) == error


def test_an_unknown_key_that_is_near_to_none_lists_the_known_ones():
    error = error_of("[gateway]\nqwertz = 1\n" + LEAST)
    assert error.startswith("2: gateway.qwertz: unknown key; known here: workers, drain_timeout, ")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (ROUTES + CLUSTERS, " listeners: missing; write [[listeners]]"),
        (LISTENERS + CLUSTERS, " routes: missing; write [[routes]]"),
        (LISTENERS + ROUTES, " clusters: missing; write [clusters.NAME]"),
        ("listeners = []\n" + ROUTES + CLUSTERS, "1: listeners: empty; at least one [[listeners]]"),
        ("routes = []\n" + LISTENERS + CLUSTERS, "1: routes: empty; at least one [[routes]]"),
        (LISTENERS + ROUTES + "[clusters]\n", "5: clusters: empty; at least one [clusters.NAME]"),
        (LISTENERS + "[[routes]]\n" + CLUSTERS, "3: routes[0].cluster: missing; write cluster ="),
        (
            LISTENERS + ROUTES + "[clusters.llama]\n",
            "5: clusters.llama.endpoints: missing; write endpoints = [{ address =",
        ),
        (
            LISTENERS + ROUTES + "[clusters.llama]\nendpoints = []\n",
            "6: clusters.llama.endpoints: empty",
        ),
    ],
)
def test_what_is_missing(text, error):
    assert error_of(text).startswith(error)


# ------------------------------------------------------------------------------ single values


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("gateway.workers", "0", '0 is out of range; allowed: 1 to 256 or "auto"'),
        ("gateway.workers", "257", '257 is out of range; allowed: 1 to 256 or "auto"'),
        ("gateway.workers", '"many"', '"many" is not a whole number; allowed: 1 to 256 or "auto"'),
        ("gateway.workers", "true", "a boolean is not a whole number"),
        ("gateway.workers", "1.5", "a number is not a whole number"),
        ("gateway.drain_timeout", '"5"', '"5" has no unit; write "5s"'),
        ("gateway.drain_timeout", '"soon"', '"soon" is not a duration: "100ms", "15s"'),
        ("gateway.drain_timeout", "-1", "-1 is not a duration"),
        ("gateway.drain_timeout", "inf", "inf is not a duration"),
        ("gateway.drain_timeout", "true", "a duration is expected"),
        ("gateway.drain_timeout", '"none"', '"none" is not allowed here; allowed: "0s" to "365d"'),
        ("http2.max_frame_size", "16383", 'out of range; allowed: "16KiB" to 16777215'),
        ("http2.max_frame_size", '"16MiB"', '"16MiB" is out of range; allowed: "16KiB" to 167'),
        ("http2.max_stream_window", '"2GiB"', "out of range; allowed: 1 to 2147483647"),
        ("http2.initial_connection_window", "65534", "out of range; allowed: 65535 to 2147483647"),
        ("http2.max_header_list_size", '"64KB"', 'did you mean "64KiB"?'),
        ("http2.max_header_list_size", "[]", "a size is expected"),
        ("http2.stall_timeout", "0", 'allowed: "100ms" to "365d" or "none"'),
        ("http2.max_pings", '"200"', '"200" is not a whole number; allowed: 1 to 2147483647'),
        ("gateway", "3", "a number, not a table; write [gateway]"),
    ],
)
def test_a_wrong_value_of_a_table(key, value, says):
    error = error_of(f"{key} = {value}\n" + LEAST)
    assert error.startswith(f"1: {key}: ")
    assert says in error


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (
            "policy",
            '"ring_hsh"',
            'unknown value "ring_hsh"; allowed: "least_connections", "ring_hash", "round_robin", '
            '"random"; did you mean "ring_hash"?',
        ),
        ("policy", '"xyz"', 'unknown value "xyz"; allowed: "least_connections", '),
        ("policy", "1", 'a number; allowed: "least_connections", '),
        ("hash_fallback", '"rejekt"', 'did you mean "reject"?'),
        ("stream_share", "0", "0 is out of range; allowed: 0.01 to 1.0"),
        ("stream_share", "nan", "not a number; allowed: 0.01 to 1.0"),
        ("stream_share", '"half"', "not a number; allowed: 0.01 to 1.0"),
        ("hash_on", "3", "a number, not a string"),
        ("hash_on", '"heder:x"', 'did you mean "header"?'),
        ("hash_on", '"header"', 'names no header; write "header:NAME"'),
        ("hash_on", '"header:a b"', '"a b" in "header:a b" is not a header name'),
        ("hash_on", '"metadata:a!"', '"a!" in "metadata:a!" is not a metadata name'),
        ("hash_on", '"path:x"', 'path takes no name; write "path"'),
        ("hash_on", '""', 'is not a hash source: "header:NAME", '),
        ("max_retries", "17", "out of range; allowed: 0 to 16"),
        ("keepalive_interval", '"1ms"', 'allowed: "10ms" to "365d" or "none"'),
        ("max_connection_age_jitter", "1.1", "allowed: 0.0 to 1.0"),
        ("min_connections", "17\nmax_connections = 16", "17 is more than max_connections (16)"),
        ("backoff_base", "11", "11s is more than backoff_max (10s)"),
    ],
)
def test_a_wrong_value_of_a_cluster(key, value, says):
    error = error_of(LEAST + f"{key} = {value}\n")
    assert error.startswith(f"7: clusters.llama.{key}: ")
    assert says in error


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("listeners = 3\n" + ROUTES + CLUSTERS, "1: listeners: not a list of tables; write [[lis"),
        (
            "[listeners]\naddress='a:1'\n" + ROUTES + CLUSTERS,
            "1: listeners: not a list of tables; write [[listeners]]",
        ),
        (
            "[[clusters]]\n" + ENDPOINTS + LISTENERS + ROUTES,
            "1: clusters: a list, not a table; write [clusters.NAME]",
        ),
        ("clusters.x = 1\n" + LEAST, "1: clusters.x: not a table; write [clusters.NAME]"),
        (
            LISTENERS + ROUTES + '[clusters.llama]\nendpoints = ["a:1"]\n',
            "6: clusters.llama.endpoints: not a list of tables; write endpoints = [{ address =",
        ),
        (
            LISTENERS + ROUTES + "match = '/x'\n" + CLUSTERS,
            "5: routes[0].match: a string, not a table; write match = { path_prefix =",
        ),
        (
            LISTENERS + ROUTES + "match.headers = 'x'\n" + CLUSTERS,
            "5: routes[0].match.headers: a string, not a table like",
        ),
        (
            LISTENERS + ROUTES + "match.headers = { a = 1 }\n" + CLUSTERS,
            "5: routes[0].match.headers.a: a number, not a string",
        ),
        (
            LISTENERS + "tls = 1979-05-27\n" + ROUTES + CLUSTERS,
            "3: listeners[0].tls: a date or time, not a string",
        ),
    ],
)
def test_a_value_of_another_shape(text, error):
    assert error_of(text).startswith(error)


# ------------------------------------------------------------------------------ between values


def test_a_route_to_an_unknown_cluster_names_the_nearest():
    error = error_of(LISTENERS + '[[routes]]\ncluster = "lama"\n' + CLUSTERS)
    assert error == (
        '4: routes[0].cluster: no cluster "lama"; known: "llama"; did you mean "llama"?'
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("127.0.0.1:80", "127.0.0.1:80"),
        ("[::1]:80", "[0::1]:80"),
        ("localhost:80", "LOCALHOST:80"),
        ("unix:/a", "unix:/a"),
    ],
)
def test_an_address_is_listened_on_once(first, second):
    listeners = f'[[listeners]]\naddress = "{first}"\n[[listeners]]\naddress = "{second}"\n'
    assert error_of(listeners + ROUTES + CLUSTERS) == (
        f'4: listeners[1].address: "{second}" is the address of listeners[0] too'
    )


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("127.0.0.1:9001", "is the address of endpoints[0] too"),
        ("127.0.0.1:0", "needs a port, 1..65535"),
        ("127.0.0.1", 'has no port; an address is "host:port", "[v6]:port" or "unix:/path"'),
    ],
)
def test_addresses_of_endpoints(address, says):
    endpoints = ENDPOINTS.replace("}]", f'}},\n{{ address = "{address}" }}]')
    error = error_of(LISTENERS + ROUTES + "[clusters.llama]\n" + endpoints)
    assert error.startswith(f'7: clusters.llama.endpoints[1].address: "{address}"')
    assert says in error


def test_more_endpoints_than_allowed():
    two = 'endpoints = [{ address = "a:1" }, { address = "b:1" }]\n'
    error = error_of(LISTENERS + ROUTES + "[clusters.llama]\nmax_endpoints = 1\n" + two)
    assert error == "7: clusters.llama.endpoints: 2 endpoints are more than max_endpoints (1)"


def test_ring_hash_needs_something_to_hash():
    error = error_of(LEAST + 'policy = "ring_hash"\n')
    assert error.startswith('5: clusters.llama.hash_on: missing; policy "ring_hash" needs it: ')


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "http2.initial_stream_window = '4MiB'\n",
            "1: http2.initial_stream_window: 4MiB is more than max_stream_window (2MiB)",
        ),
        (
            "http2.max_stream_window = '8MiB'\n",
            "1: http2.max_stream_window: 8MiB is more than max_connection_window (4MiB)",
        ),
        (
            "http2.initial_connection_window = '8MiB'\n",
            "1: http2.initial_connection_window: 8MiB is more than max_connection_window (4MiB)",
        ),
        (
            "http2.max_connection_buffer = '1GiB'\n",
            "1: http2.max_connection_buffer: 1GiB is more than gateway.max_buffered_bytes (256MiB)",
        ),
        (
            "gateway.restart_backoff = '1m'\n",
            "1: gateway.restart_backoff: 1m is more than restart_backoff_max (10s)",
        ),
    ],
)
def test_values_that_are_out_of_order(text, error):
    assert error_of(text + LEAST) == error


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("path", '"x"', "is not a path"),
        ("path", '"/x?y"', "is not a path"),
        ("path_prefix", '"*"', "is not a path"),
        ("path_prefix", '"/a b"', "is not a path"),
        ("path_prefix", '"/é"', "is not a path"),
        ("path_prefix", '""', "is not a path"),
        ("authority", '""', "is not an authority"),
        ("authority", '"*"', "is not an authority"),
        ("authority", '"a.*.org"', "is not an authority"),
        ("authority", '"http://a"', "is not an authority"),
        ("method", '"GET /"', "is not a method"),
        ("headers.x", '"a\\n"', "control character"),
        ("headers.x", '" a"', "blank at an end"),
        ('headers.":path"', '"/"', "pseudo-field"),
        ('headers."a b"', '"x"', "is not a field name"),
    ],
)
def test_a_wrong_match(key, value, says):
    error = error_of(LISTENERS + ROUTES + f"match.{key} = {value}\n" + CLUSTERS)
    assert error.startswith(f"5: routes[0].match.{key}: ")
    assert says in error


def test_a_path_and_a_prefix_together():
    match = 'match = { path = "/a", path_prefix = "/b" }\n'
    error = error_of(LISTENERS + ROUTES + match + CLUSTERS)
    assert error == "5: routes[0].match.path_prefix: give path or path_prefix, not both"


@pytest.mark.parametrize(("first", "second"), [("A", "a"), ("a", "A")])
def test_a_field_that_is_matched_twice(first, second):
    match = f'match.headers = {{ {first} = "1", {second} = "2" }}\n'
    error = error_of(LISTENERS + ROUTES + match + CLUSTERS)
    assert error == f"5: routes[0].match.headers.{second}: given twice; field names have no case"


@pytest.mark.parametrize(
    ("address", "mode", "says"),
    [
        ("127.0.0.1:80", "0660", "only a unix socket has permissions"),
        ("unix:/a", "rw", '"rw" is not a permission in octal, like "0660"'),
        ("unix:/a", "0888", '"0888" is not a permission in octal, like "0660"'),
    ],
)
def test_a_wrong_mode(address, mode, says):
    listeners = f'[[listeners]]\naddress = "{address}"\nmode = "{mode}"\n'
    error = error_of(listeners + ROUTES + CLUSTERS)
    assert error.startswith("3: listeners[0].mode: ")
    assert says in error


# ------------------------------------------------------------------------------ certificates

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"
TLS = '[[tls.edge.certificates]]\ncertificate = "edge.pem"\nprivate_key = "edge.key"\n'


@pytest.fixture
def certificates(tmp_path):
    (tmp_path / "edge.pem").write_text(CERTIFICATE)
    (tmp_path / "edge.key").write_text(KEY)
    return tmp_path


def load_error(directory, text):
    file = directory / "g.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file)
    return str(caught.value).replace(str(directory) + "/", "")


def test_certificates_are_found_beside_the_file(certificates):
    file = certificates / "g.toml"
    file.write_text(LEAST + TLS)
    tls = load(file).tls["edge"]
    assert tls.name == "edge"
    assert tls.certificates[0].certificate == str(certificates / "edge.pem")


def test_a_certificate_that_is_not_there(certificates):
    (certificates / "edge.pem").unlink()
    error = load_error(certificates, LEAST + TLS)
    assert (
        error
        == "g.toml:8: tls.edge.certificates[0].certificate: edge.pem: No such file or directory"
    )


def test_a_key_that_is_a_certificate(certificates):
    (certificates / "edge.key").write_text(CERTIFICATE)
    error = load_error(certificates, LEAST + TLS)
    assert (
        error
        == "g.toml:9: tls.edge.certificates[0].private_key: edge.key: no PEM private key in it"
    )


def test_a_certificate_that_is_a_directory(certificates):
    (certificates / "edge.pem").unlink()
    (certificates / "edge.pem").mkdir()
    error = load_error(certificates, LEAST + TLS)
    assert error == "g.toml:8: tls.edge.certificates[0].certificate: edge.pem: Is a directory"


def test_a_listener_with_a_tls_table_that_is_not_there(certificates):
    text = LISTENERS + 'tls = "egde"\n' + ROUTES + CLUSTERS
    assert load_error(certificates, text + TLS) == (
        'g.toml:3: listeners[0].tls: no [tls.egde] table; known: "edge"; did you mean "edge"?'
    )
    assert load_error(certificates, text) == (
        "g.toml:3: listeners[0].tls: no [tls.egde] table; there is no [tls.NAME] table"
    )


# ------------------------------------------------------------------------------ the file itself


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"/g\.toml: No such file or directory$"):
        load(tmp_path / "g.toml")


def test_a_file_that_is_not_text(tmp_path):
    (tmp_path / "g.toml").write_bytes(b"a = 1\nb = '\xff'\n")
    with pytest.raises(ConfigError, match=r"/g\.toml:2: not UTF-8 text$"):
        load(tmp_path / "g.toml")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a = 1\nb = = 2\n", "2: not valid TOML: Invalid value"),
        ("a = 1\na = 2\n", "2: not valid TOML: Cannot overwrite a value"),
        ("a = [1,\n", "2: not valid TOML: "),
        ("[a\n", "1: not valid TOML: "),
    ],
)
def test_what_is_no_toml(text, error):
    assert error_of(text).startswith(error)


def test_all_errors_are_told_at_once_in_the_order_of_the_file():
    errors = errors_of(
        "[gateway]\nworkers = 0\n" + LEAST + "policy = 'x'\nstream_share = 2\n[http2]\nx = 1\n"
    )
    assert [error.partition(":")[0] for error in errors] == ["2", "9", "10", "12"]
    errors = errors_of(
        CLUSTERS
        + "max_connections = 1\nmin_connections = 2\n"
        + ROUTES
        + "match.method = ''\n"
        + LISTENERS
        + "mode = '0660'\n"
    )
    assert [error.partition(":")[0] for error in errors] == ["4", "7", "10"]


def test_what_was_checked_is_what_msgspec_would_take():
    """The loader leaves nothing for msgspec to refuse: a built model converts to itself."""
    config = parse(LEAST)
    assert msgspec.convert(msgspec.to_builtins(config), Config) == config
