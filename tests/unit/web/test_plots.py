import xml.etree.ElementTree as ET

from optrove.web.ops import pcc_plot, time_plot
from optrove.web.runs import timeline


def run(number, **facts):
    usual = {
        "run_id": f"<{number}>",
        "started_at": f"2026-01-{number:02}T00:00:00Z",
        "board": "<b>",
        "device": "mock",
        "kind": "replay",
    }
    return {**usual, "mean_ns": None, "mean_pcc": None, "least_pcc": None, **facts}


def sound(svg):
    root = ET.fromstring(svg)  # noqa: S314 - our own text
    assert "nan" not in svg
    return root


def test_one_run_is_no_plot():
    assert pcc_plot([run(1, mean_pcc=1.0, least_pcc=0.5)]) is None
    assert time_plot([run(1, mean_ns=5), run(2)]) is None


def test_each_run_is_a_point_that_says_what_it_is():
    runs = [run(1, mean_pcc=0.999, least_pcc=0.9), run(2, mean_pcc=0.99, least_pcc=0.8)]
    svg = pcc_plot(runs)
    assert len(list(sound(svg).iter("{http://www.w3.org/2000/svg}circle"))) == 4
    assert "&lt;1&gt;, 2026-01-01 00:00: mean 0.999 on mock &lt;b&gt;, replay" in svg


def test_equal_values_are_a_line_in_the_middle():
    assert 'points="78.0,78.0 548.0,78.0"' in time_plot([run(1, mean_ns=7), run(2, mean_ns=7)])
    sound(time_plot([run(1, mean_ns=0), run(2, mean_ns=0)]))


def test_a_line_joins_only_runs_on_one_device():
    runs = [
        run(1, mean_ns=9, board="n150"),
        run(2, mean_ns=5, board="p150"),
        run(3, mean_ns=8, board="n150"),
        run(4, mean_ns=4, board="n150", device="shadow"),
        run(5, mean_ns=2, board="n150", kind="trace"),
    ]
    root = sound(time_plot(runs))
    (line,) = root.iter("{http://www.w3.org/2000/svg}polyline")
    points = [
        f"{point.get('cx')},{point.get('cy')}"
        for point in root.iter("{http://www.w3.org/2000/svg}circle")
    ]
    assert len(points) == 5
    assert line.get("points") == f"{points[0]} {points[2]}"


def test_a_timeline_puts_calls_below_those_that_made_them():
    calls = [
        {"op_index": n, "op": f"<op{n}>", "case_id": "ab", "depth": depth, "began_ns": began}
        | {"took_ns": took, "outcome": "returned"}
        for n, (depth, began, took) in enumerate([(0, 0, 100), (1, 10, 50), (99, 20, 0)])
    ]
    boxes = list(sound(timeline(calls)).iter("{http://www.w3.org/2000/svg}rect"))
    assert [(box.get("x"), box.get("y"), box.get("width")) for box in boxes] == [
        ("0.00", "0", "1000.00"),
        ("100.00", "22", "500.00"),
        ("200.00", "176", "1.50"),
    ]
    assert timeline([]) is None
    sound(timeline([{**calls[0], "took_ns": 0}]))
