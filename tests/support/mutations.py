"""Change JSON-able documents at random, for the fuzz tests."""

import copy

from optrove.errors import BadData

ATOMS = [
    *(None, True, False, 0, 1, -1, 2**64, 1 << 3000, 0.5, float("nan"), float("inf"), "", "x"),
    *("nan", "$tuple", "\ud800", "\ud834\udd1e", "ttnn.MemoryConfig", "python.slice", "YQ=="),
    *(
        [],
        {},
        [[]],
        {"$tuple": []},
        {"$set": [1, 1]},
        {"$frozenset": [1]},
        {"$map": [[1, 2]]},
        {"$float": "nan"},
    ),
    *({"$opaque": "a", "token": "b"}, {"$struct": "python.range", "fields": {"start": 1}}),
    *({"": 1}, {"$": 1}, {1: 2}, object()),
]


def places(data):
    """Return every container of ``data`` with one of its keys or indices, without recursion."""
    found, pending = [], [data]
    while pending:
        item = pending.pop()
        keys = item if isinstance(item, dict) else range(len(item))
        for key in keys:
            found.append((item, key))
            if isinstance(item[key], (dict, list)):
                pending.append(item[key])
    return found


def mutate(data, chance):
    """Change ``data`` in one to three places."""
    for _ in range(chance.randint(1, 3)):
        spots = places(data)
        if not spots:
            return
        container, key = chance.choice(spots)
        action = chance.randrange(5)
        if action == 0:
            container[key] = copy.deepcopy(chance.choice(ATOMS))
        elif action == 1:
            del container[key]
        elif action == 2:
            other, other_key = chance.choice(spots)
            if other_key in other or (isinstance(other, list) and other_key < len(other)):
                container[key] = copy.deepcopy(other[other_key])
        elif action == 3 and isinstance(container, dict):
            container[chance.choice(["$tuple", "x", "", "name", "fields", "$x"])] = 1
        elif isinstance(container, list):
            container.insert(key, copy.deepcopy(chance.choice(ATOMS)))


def ends_well(action, *arguments):
    """Return whether ``action`` succeeded; any exception but BadData passes through."""
    try:
        action(*arguments)
    except BadData as error:
        faults = error.faults
    else:
        return True
    assert faults
    return False
