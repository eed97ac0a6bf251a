"""No text keeps a name that it was scrubbed of, wherever the name stood."""

from hypothesis import given
from hypothesis import strategies as st

from optrove.trove.scrubbing import Names, Scrubber

users = st.from_regex(r"zq[a-z]{2,6}", fullmatch=True)
hosts = st.from_regex(r"wx[a-z0-9]{2,6}-[0-9]{1,2}", fullmatch=True)
homes = st.sampled_from(
    ["/home/{user}", "/Users/{user}", "/data/homes/{user} b", "C:\\Users\\{user}"]
)
PATTERNS = (
    *("{home}", "{home}/", "{home}/a/b c.py", "{home}\\x\\y.py", "file://{home}/x", "-I{home}/x"),
    *("~{user}/x/y", "../..{home}/x", "rel/{user}/x.py", "/mnt/{user}/{host}/w.bin", "{user}"),
    *("{user}@{host}", "{user}@{host}.corp.example:22", "https://{user}:pw@{host}/x?y={user}"),
    *("\\\\{host}\\share\\{user}\\x", "{host}", "{host}.corp.example", "{user}_2", "my_{user}"),
)
BETWEEN = (" ", "'", '"', "(", ")", ":", "=", "\n", ",", "[", "]", "_", "0", "\0", " é ")


@st.composite
def records(draw):
    """Return names, and a text that tells of them."""
    user, host = draw(users), draw(hosts)
    home = draw(homes).format(user=user)
    parts = draw(
        st.lists(st.tuples(st.sampled_from(PATTERNS), st.sampled_from(BETWEEN)), min_size=1)
    )
    text = ""
    for pattern, between in parts:
        spelled = pattern.format(user=user, host=host, home=home)
        text += between + draw(st.sampled_from([spelled, spelled.upper(), spelled.title()]))
    names = Names(frozenset({host}), frozenset({user}), frozenset({home}))
    return user, host, home, names, text


@given(records())
def test_no_name_stays_in_a_text(drawn):
    user, host, home, names, text = drawn
    for scrub in (Scrubber(names).text, Scrubber(names).file, Scrubber(names).source):
        found = scrub(text)
        assert not any(name in found.lower() for name in (user, host, home.lower())), found


@given(records(), st.text())
def test_scrubbing_twice_is_the_same_as_once(drawn, other):
    *_, names, text = drawn
    scrub = Scrubber(names).text
    for each in (text, other, text + other):
        assert scrub(scrub(each)) == scrub(each)
