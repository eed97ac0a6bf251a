"""The faults that an error about bad data names."""

import pytest

from optrove.errors import BadData


def faults_of(action, *arguments, **options):
    """Call a function that refuses its data, and return the problems by their paths."""
    with pytest.raises(BadData) as caught:
        action(*arguments, **options)
    return {fault.path: fault.problem for fault in caught.value.faults}
