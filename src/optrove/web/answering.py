"""Answer requests from a trove, several at once, and cache the answers until it changes."""

from __future__ import annotations

import hashlib
import json
import queue
import threading
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from optrove.trove.reader import open_reader
from optrove.trove.sessions import is_alive
from optrove.version import __version__
from optrove.web.page_request import CountCache, PageRequest
from optrove.web.wording import FILTERS, address, share

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from optrove.model.trove import Session
    from optrove.trove.place import Place
    from optrove.trove.reader import TroveReader
    from optrove.web.page_request import Page, PageView, Values

READERS: Final = 3
"""How many requests read the trove at the same time."""
MAX_SECONDS: Final = 10.0
"""How long one may take."""
KEPT_BYTES: Final = 16 * 2**20
_MAX_CACHED_BYTES: Final = KEPT_BYTES // 8
_HTML: Final = "text/html; charset=utf-8"
_JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    """The body of an answer; ``tag`` identifies the body."""

    body: bytes
    media_type: str
    tag: str


class AnswerCache:
    """A cache of the answers that were used last, up to a number of bytes."""

    def __init__(self, most: int = KEPT_BYTES) -> None:
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, Answer] = OrderedDict()
        self._bytes = 0
        self._most = most

    def get(self, key: Hashable) -> Answer | None:
        """Return a cached answer."""
        with self._lock:
            found = self._answers.get(key)
            if found is not None:
                self._answers.move_to_end(key)
            return found

    def keep(self, key: Hashable, answer: Answer) -> None:
        """Cache an answer, and drop the least recently used ones if there is no room."""
        if len(answer.body) > _MAX_CACHED_BYTES:
            return
        with self._lock:
            before = self._answers.pop(key, None)
            self._bytes += len(answer.body) - (0 if before is None else len(before.body))
            self._answers[key] = answer
            while self._bytes > self._most:
                _, dropped = self._answers.popitem(last=False)
                self._bytes -= len(dropped.body)


class TroveSite:
    """A trove that is served: open readers, the groups of its cases, and cached answers."""

    def __init__(self, place: Place, store: str | None = None) -> None:
        """Open a trove; ``store`` is how commands on the pages name it."""
        self._store = store
        self._place = place
        self._readers: queue.LifoQueue[TroveReader] = queue.LifoQueue()
        self._every = [open_reader(place) for _ in range(READERS)]
        for reader in self._every:
            self._readers.put(reader)
        self._watcher = open_reader(place)
        self._watching = threading.Lock()
        self._counted: tuple[str, CountCache] | None = None
        self._counting = threading.Lock()
        self._unended: tuple[str, tuple[Session, ...]] = ("", ())
        self._kept = AnswerCache()
        self._templates = _templates(place)

    def close(self) -> None:
        """Close the trove."""
        for reader in (*self._every, self._watcher):
            reader.close()

    def prepare(self) -> None:
        """Load the templates, so that the first page does not wait for them."""
        for name in self._templates.list_templates():
            self._templates.get_template(name)

    def answer(self, page: Page, asked: Values) -> Answer:
        """Return a page, for people or for machines, as ``format`` says."""
        state = self._state()
        # A process that is killed does not change the trove.
        alive = tuple(map(is_alive, self._sessions(state)))
        key = (page.name, tuple(sorted(asked.items())), state, alive)
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        answer = self._answer(page, asked, self._view(page, asked, state))
        self._kept.keep(key, answer)
        return answer

    def problem(self, title: str, message: str, *, as_json: bool, more: str = "") -> Answer:
        """Return an answer that says why there is no page; ``more`` names a template to add."""
        if as_json:
            return _answer(_json({"error": message}), _JSON)
        page = self._templates.get_template("problem.jinja")
        return _answer(page.render(title=title, message=message, more=more, here=""), _HTML)

    def _state(self) -> str:
        with self._watching:
            return self._watcher.connection.state()

    def _sessions(self, state: str) -> tuple[Session, ...]:
        """Return the Sessions without an ending, which are read when the trove has changed."""
        with self._watching:
            if self._unended[0] != state:
                self._unended = state, self._watcher.unended()
            return self._unended[1]

    def _view(self, page: Page, asked: Values, state: str) -> PageView:
        with self._reader() as reader:
            source = reader.connection
            with source.snapshot(), source.within(MAX_SECONDS):
                return page.make(PageRequest(reader, asked, self._store, self._counts(state)))

    def _counts(self, state: str) -> CountCache:
        with self._counting:
            if self._counted is None or self._counted[0] != state:
                self._counted = state, CountCache()
            return self._counted[1]

    def _answer(self, page: Page, asked: Values, view: PageView) -> Answer:
        if asked.get("format") == "json":
            return _answer(_json(view.data), _JSON)
        given = {name: value for name, value in asked.items() if name != "format"}
        template = self._templates.get_template(page.template)
        text = template.render(
            data=view.data, drawn=view.drawn, asked=given, here=page.path, page=page
        )
        return _answer(text, _HTML)

    @contextmanager
    def _reader(self) -> Iterator[TroveReader]:
        reader = self._readers.get()
        try:
            yield reader
        finally:
            self._readers.put(reader)


def _templates(place: Place) -> Environment:
    environment = Environment(
        loader=PackageLoader("optrove.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(FILTERS)
    name = place.path.name if place.path is not None else str(place)
    environment.globals.update(address=address, share=share, version=__version__, trove=name)
    return environment


def _json(data: Any) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def _answer(text: str, media_type: str) -> Answer:
    # Invalid text, such as half of a surrogate pair, is shown as a question mark.
    body = text.encode("utf-8", "replace")
    return Answer(body, media_type, hashlib.sha256(body).hexdigest()[:32])
