"""Records are the same on every machine, and what is said to people stands apart."""

from golden.plain import MOST, Plain

ID, OTHER = "0f0e0d0c-0000-4000-8000-00000000000a", "0f0e0d0c-0000-4000-8000-00000000000b"


def test_places_ids_and_digests_are_replaced_and_moments_stay() -> None:
    plain = Plain({"/tmp/x": "<top>", "/tmp/x/plan": "<root>"})
    assert plain.text("/tmp/x/plan/a.org in /tmp/x") == "<root>/a.org in <top>"
    assert plain.text(f"{ID} {OTHER} {ID}") == "<id-1> <id-2> <id-1>"
    assert plain.text("a" * 64 + " " + "b" * 40) == "<digest> <commit>"
    assert plain.text("http://127.0.0.1:7117/login/" + "x" * 32) == (
        "http://127.0.0.1:<port>/login/<secret>"
    )
    assert plain.text("cron:2026-06-05T12:00:00Z") == "cron:2026-06-05T12:00:00Z"


def test_a_long_list_is_cut_and_says_how_much_is_left_out() -> None:
    cut = Plain({}).data(list(range(MOST + 3)))
    assert cut == [*range(MOST), {"and more": 3}]
