"""Our HTTPS connection to a Kubernetes API, against a server with real certificates on loopback."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import SecretStr

from provision.connections.contracts import KubeEndpoint
from provision.connections.kube import HttpsKubeConnection
from provision.connections.kubeconfig import endpoint_of
from provision.lab.kube.app import KubeApi, Request, Response
from provision.lab.kube.server import KubeServer
from provision.values.errors import Permanent, Refused, Transient, UnknownOutcome
from tests.contract.certificates import Authority


class Served:
    """One API on loopback."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority()
        certificate, key = self.authority.issue("server", "127.0.0.1")
        (folder / "server.pem").write_text(certificate + key)
        (folder / "ca.pem").write_text(self.authority.pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem")
        context.load_verify_locations(folder / "ca.pem")
        context.verify_mode = ssl.CERT_OPTIONAL
        self.api = KubeApi()
        self.server = KubeServer(self.api, ("127.0.0.1", 0), context)
        self.server.start()
        self.url = f"https://127.0.0.1:{self.server.port}"

    def endpoint(self, authority: str = "") -> KubeEndpoint:
        certificate, key = self.authority.issue("admin")
        return KubeEndpoint(self.url, authority or self.authority.pem, certificate, SecretStr(key))

    def kubeconfig(self, server: str = "") -> str:
        certificate, key = self.authority.issue("admin")
        data = {
            name: base64.b64encode(text.encode()).decode()
            for name, text in (("ca", self.authority.pem), ("cert", certificate), ("key", key))
        }
        return f"""
apiVersion: v1
kind: Config
current-context: default
contexts: [{{name: default, context: {{cluster: default, user: default}}}}]
clusters:
  - {{name: default, cluster: {{server: "{server or self.url}", certificate-authority-data: {data["ca"]}}}}}
users: [{{name: default, user: {{client-certificate-data: {data["cert"]}, client-key-data: {data["key"]}}}}}]
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("kube"))
    yield served
    served.server.stop()


def test_a_client_certificate_opens_the_api(served: Served) -> None:
    with closing(HttpsKubeConnection(served.endpoint())) as connection:
        assert connection.request("GET", "/api/v1/namespaces").is_success
        assert connection.requests == 1


def test_the_kubeconfig_of_a_server_leads_to_its_address(served: Served) -> None:
    text = served.kubeconfig("https://127.0.0.1:1")
    endpoint = endpoint_of(text, where="server", server=served.url)
    with closing(HttpsKubeConnection(endpoint)) as connection:
        assert connection.request("GET", "/api/v1/namespaces").is_success


def test_another_authority_is_refused_before_anything_is_sent(served: Served) -> None:
    before = len(served.api.requests)
    with (
        closing(HttpsKubeConnection(served.endpoint(Authority("other").pem))) as connection,
        pytest.raises(Refused, match="KUBE_CERTIFICATE_UNKNOWN"),
    ):
        connection.request("GET", "/api/v1/namespaces")
    assert len(served.api.requests) == before


def test_the_proxy_of_the_environment_is_not_used(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with closing(HttpsKubeConnection(served.endpoint())) as connection:
        assert connection.request("GET", "/readyz").body == "ok"


def test_a_wrong_token_is_a_lasting_problem_without_the_token(served: Served) -> None:
    endpoint = KubeEndpoint(served.url, served.authority.pem, token=SecretStr("planted-secret"))
    with (
        closing(HttpsKubeConnection(endpoint)) as connection,
        pytest.raises(Permanent, match="KUBE_AUTH_FAILED") as caught,
    ):
        connection.request("GET", "/api/v1/namespaces")
    assert "planted-secret" not in str(caught.value.diagnostics)


def test_a_kubelet_that_refuses_the_api_is_no_problem_of_our_credentials(served: Served) -> None:
    """As kube-apiserver 1.36.2 passes on that a kubelet does not know it."""
    path = "/api/v1/namespaces/default/pods/one/log"
    said = {
        "kind": "Status",
        "status": "Failure",
        "message": "the server has asked for the client to provide credentials ( pods/log one)",
        "reason": "Unauthorized",
        "details": {"name": "one", "kind": "pods/log"},
        "code": 401,
    }
    served.api.faults.append(lambda request: Response(401, said) if request.path == path else None)
    try:
        with closing(HttpsKubeConnection(served.endpoint())) as connection:
            assert connection.request("GET", path).status == 401
    finally:
        served.api.faults.clear()


def test_a_connection_that_the_server_closed_is_opened_again(served: Served) -> None:
    with closing(HttpsKubeConnection(served.endpoint())) as connection:
        connection.request("GET", "/readyz")
        assert connection._connection is not None
        connection._connection.sock.shutdown(socket.SHUT_RDWR)
        assert connection.request("GET", "/readyz").body == "ok"


def test_nobody_there_may_go_away(served: Served) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"https://127.0.0.1:{free.getsockname()[1]}"
    with (
        closing(HttpsKubeConnection(KubeEndpoint(url, served.authority.pem))) as connection,
        pytest.raises(Transient, match="KUBE_UNREACHABLE"),
    ):
        connection.request("GET", "/readyz")


def test_a_write_without_an_answer_has_an_unknown_outcome(served: Served) -> None:
    answered = threading.Event()

    def withhold(request: Request) -> Response | None:
        if "slow" in request.path:
            answered.wait(60)
        return None

    served.api.faults.append(withhold)
    # long enough for a connection to be made beside any load
    with closing(HttpsKubeConnection(served.endpoint(), timeout=2.0)) as connection:
        with pytest.raises(UnknownOutcome, match="KUBE_ANSWER_LOST"):
            connection.request("POST", "/api/v1/namespaces/slow/configmaps", {})
        answered.set()
    served.api.faults.clear()


def test_an_endless_answer_ends_at_its_deadline(served: Served) -> None:
    path = "/api/v1/namespaces?watch=1&timeoutSeconds=300"
    stop = threading.Event()

    def drip() -> None:
        while not stop.wait(0.05):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "drip"}}
            served.api.store.seed(body)

    threading.Thread(target=drip, daemon=True).start()
    try:
        with (
            closing(HttpsKubeConnection(served.endpoint(), timeout=2.0)) as connection,
            pytest.raises(Transient),
        ):
            connection.request("GET", path)
    finally:
        stop.set()
