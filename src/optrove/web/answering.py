"""Answer requests from a trove, several at once, and cache the answers until it changes."""

from __future__ import annotations

import hashlib
import json
import logging
import queue
import threading
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from optrove.errors import OptroveError
from optrove.trove.reader import open_reader
from optrove.version import __version__
from optrove.web.catalog import Catalog, early_index
from optrove.web.compare import prepare_comparisons
from optrove.web.page_request import PageRequest
from optrove.web.wording import FILTERS, address, share

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from optrove.trove.place import Place
    from optrove.trove.reader import TroveReader
    from optrove.web.page_request import Page, View
    from optrove.web.parameters import Values

_LOG: Final = logging.getLogger(__name__)

READERS: Final = 3
"""How many requests read the trove at the same time."""
LONGEST_S: Final = 10.0
"""How long one may take."""
KEPT_BYTES: Final = 32 * 2**20
_PATIENCE_S: Final = 0.5
_LARGEST_KEPT: Final = KEPT_BYTES // 16
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
        if len(answer.body) > _LARGEST_KEPT:
            return
        with self._lock:
            before = self._answers.pop(key, None)
            self._bytes += len(answer.body) - (0 if before is None else len(before.body))
            self._answers[key] = answer
            while self._bytes > self._most:
                _, dropped = self._answers.popitem(last=False)
                self._bytes -= len(dropped.body)


class TroveSite:
    """A trove that is served: open readers, the index of its cases, and cached answers."""

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
        self._catalog = Catalog()
        self._kept = AnswerCache()
        self._templates = _templates(place)
        self._preparing: threading.Thread | None = None
        self._leaving = threading.Event()

    @property
    def is_counting(self) -> bool:
        """Whether the cases are being counted for the first time."""
        return self._preparing is not None and self._preparing.is_alive() and not self._catalog.made

    def close(self) -> None:
        """Close the trove."""
        self._leaving.set()
        if self._preparing is not None:
            # What it does is not worth waiting for; it ends with the process.
            self._preparing.join(_PATIENCE_S)
        for reader in (*self._every, self._watcher):
            reader.close()

    def prepare(self) -> None:
        """Start to count the cases; pages that do not need the counts work meanwhile."""
        self._preparing = threading.Thread(target=self._prepare, name="counting", daemon=True)
        self._preparing.start()
        for name in self._templates.list_templates():
            self._templates.get_template(name)

    def wait(self) -> None:
        """Wait until the preparation is done."""
        if self._preparing is not None:
            self._preparing.join()

    def _prepare(self) -> None:
        try:
            with open_reader(self._place) as reader, reader.source.snapshot():
                index = self._catalog.current(reader.source, self._state())
                prepare_comparisons(reader.source, index, self._leaving)
        except OptroveError as error:
            # The next request counts again, and reports what is wrong.
            _LOG.warning("the cases could not be counted ahead: %s", error)

    def answer(self, page: Page, asked: Values) -> Answer:
        """Return a page, for people or for machines, as ``format`` says."""
        state = self._state()
        key = (page.name, tuple(sorted(asked.items())), state)
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        view, is_whole = self._view(page, asked, state)
        answer = self._answer(page, asked, view)
        # What was made while cases were counted does not hold, though the trove has not changed.
        if is_whole and self._catalog.is_current(state):
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
            return self._watcher.source.state()

    def _view(self, page: Page, asked: Values, state: str) -> tuple[View, bool]:
        """Return the view of a page, and whether all cases were counted."""
        with self._reader() as reader:
            source = reader.source
            with source.snapshot(), source.within(LONGEST_S):
                if page.early and self.is_counting:
                    index = early_index(source)
                else:
                    index = self._catalog.current(source, state)
                return page.make(PageRequest(source, index, asked, self._store)), index.whole

    def _answer(self, page: Page, asked: Values, view: View) -> Answer:
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
    # What is no valid text, such as half of a pair of surrogates, is shown as a question mark.
    body = text.encode("utf-8", "replace")
    return Answer(body, media_type, hashlib.sha256(body).hexdigest()[:32])
