"""Operations for programs that tests trace where no framework is installed.

A program imports this module, and its calls are reported to the trace of its process just as a
probe reports those of a framework. Without a trace they only do their work.
"""

import sys

from optrove.capture.tracing import active_tracing
from tracing import fake_op


def operation(function):
    """Return a function whose calls are observed as those of the op ``fake.NAME``."""
    form = fake_op(f"fake.{function.__name__}", composite=True)

    def call(*arguments, **keywords):
        tracing = active_tracing()
        if tracing is None:
            return function(*arguments, **keywords)
        listener = tracing._listener
        entered = listener.begin(form, arguments, keywords, sys._getframe(1))
        try:
            result = function(*arguments, **keywords)
        except BaseException as error:
            listener.fail(entered, error)
            raise
        listener.end(entered, result)
        return result

    return call


@operation
def add(a, b):
    return a + b


@operation
def divide(a, b):
    return a // b


@operation
def apply(a):
    return a()
