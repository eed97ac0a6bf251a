import pytest

from asking import ask
from optrove.web.app import COOKIE, POLICY, make_app

TOKEN = "correct horse battery"  # noqa: S105 - opens nothing but a test


@pytest.fixture
def local(site):
    return make_app(site)


@pytest.fixture
def shared(site):
    return make_app(site, TOKEN, loopback=False)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8777", "[::1]:8777", "LOCALHOST:1"])
def test_this_machine_is_let_in_by_any_of_its_names(local, host):
    assert ask(local, "/", headers={"host": host}).status == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", ""])
def test_a_page_that_points_its_name_at_this_machine_is_refused(local, host):
    assert ask(local, "/", headers={"host": host}).status == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_but_reading_is_allowed(local, method):
    for address in ("/", "/ops", "/login", "/static/style.css", "/nothing"):
        answer = ask(local, address, method)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


def test_every_answer_has_the_strict_headers(local):
    for address in ("/", "/ops?format=json", "/static/script.js", "/nothing", "/openapi.json"):
        headers = ask(local, address).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    assert "unsafe" not in POLICY


@pytest.mark.parametrize(
    "address",
    ["/static/../pages.py", "/static/%2e%2e/pages.py", "//etc/passwd", "/static/", "/../style.css"],
)
def test_no_path_reaches_a_file(local, address):
    assert ask(local, address).status == 404


def test_requests_are_bounded(local):
    assert ask(local, f"/ops?search={'x' * 70_000}").status == 414
    assert ask(local, f"/{'x' * 300}").status == 414
    assert ask(local, "/", headers={"content-length": "5"}, body=b"hello").status == 413
    assert ask(local, "/", headers={"transfer-encoding": "chunked"}).status == 413


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"cookie": f"{COOKIE}={TOKEN}"},
        {"cookie": f"{COOKIE}=; ={TOKEN};;;"},
    ],
)
def test_without_the_token_nothing_is_shown(shared, headers):
    for address in ("/", "/ops", "/case?id=123456", "/openapi.json", "/nothing"):
        answer = ask(shared, address, headers=headers)
        assert answer.status == 401
        assert "softmax" not in answer.text
    assert "Authorization: Bearer" in ask(shared, "/", headers=headers, format="json").data["error"]


def test_the_token_opens_by_header(shared):
    headers = {"authorization": f"bearer {TOKEN}", "host": "trove.example"}
    assert ask(shared, "/", headers=headers).status == 200


def test_the_token_opens_by_the_form_and_its_cookie(shared):
    form = ask(shared, "/")
    assert (form.status, 'action="/login"' in form.text) == (401, True)
    wrong = ask(shared, "/login", "POST", body=b"token=guess")
    assert (wrong.status, "set-cookie" in wrong.headers) == (401, False)
    body = f"token={TOKEN.replace(' ', '+')}".encode()
    given = ask(shared, "/login", "POST", body=body)
    assert (given.status, given.headers["location"]) == (303, "/")
    cookie = given.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in cookie
    assert ask(shared, "/", headers={"cookie": cookie.partition(";")[0]}).status == 200


def test_a_form_of_megabytes_is_not_read(shared):
    answer = ask(shared, "/login", "POST", body=b"token=" + b"x" * 2_000_000)
    assert answer.status == 401
