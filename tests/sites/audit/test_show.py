"""What is told of a log: sums by study, fit and question, and sentences."""

import dataclasses
import io

from rich.console import Console

from cofed.sites.audit import AuditEvent, AuditLog, verify
from cofed.sites.audit.show import content, terminal
from cofed.sites.audit.summary import in_words, what_left
from tests.sites.audit.worlds import RUN, Signer, answer, fit


def log_with_everything(path):
    """Masked and plain answers, refusals that show and one that does not, a failure, a line that was cut off."""
    own = AuditLog(path, "oslo", Signer("oslo").sign)
    own.add(AuditEvent(event="started"))
    own.add(AuditEvent(event="hello", run=RUN, size=500))
    own.add(answer(0))
    own.add(answer(1, sites=("bern", "oslo"), size=60, epsilon=0.5))
    own.add(answer(2, query="gram", version=1, is_masked=False, sites=(), size=1000))
    own.add(answer(3, event="refusal", decision="refused", rule="points", content=None, size=80, note="Too many."))
    own.add(answer(4, decision="refused", rule="dominance"))  # noise left, so that nobody learns of the refusal
    own.add(answer(5, event="failure", decision=None, content=None, size=90, note="A NaN."))
    with open(path, "ab") as file:
        file.write(b"{")
    own = AuditLog(path, "oslo", Signer("oslo").sign)
    own.add(AuditEvent(event="ended"))
    return path


def printed(found):
    """What a terminal of 80 columns shows."""
    screen = Console(width=80, file=io.StringIO())
    screen.print(terminal(found))
    return screen.file.getvalue()


def test_a_question_is_not_cut_in_two_where_it_need_not_be(tmp_path):
    own = AuditLog(tmp_path / "audit.jsonl", "oslo", Signer("oslo").sign)
    for number, query in enumerate(("histogram", "observed", "concordance")):
        own.add(answer(number, query=query, version=1, size=123_456))
    text = printed(verify(own.path))
    assert all(f"{query} 1" in text for query in ("histogram", "observed", "concordance"))


def test_what_left_adds_up(tmp_path):
    found = verify(log_with_everything(tmp_path / "audit.jsonl"))
    assert found.holds
    hello, look, gram = what_left(found.lines)
    assert (hello.question, hello.answers, hello.size) == ("hello", 1, 500)
    assert (look.question, look.answers, look.plain, look.refused, look.failed) == ("look 2", 3, 0, 2, 1)
    assert look.size == 1440 + 60 + 80 + 1440 + 90
    assert look.sites == (2, 3)
    assert look.epsilon == 0.5
    assert (gram.question, gram.answers, gram.plain, gram.sites) == ("gram 1", 1, 1, ())
    said = in_words(found)
    assert said[0].startswith("4 answers left, 1 of them plain: not masked, so that the server saw")
    assert said[1] == "The site's rules refused 2 questions: points (1), dominance (1)."
    assert "an epsilon of 0.5" in said[2]
    assert said[3] == "The site was stopped once while it wrote a line."


def test_a_log_of_masked_answers_says_that_all_were(tmp_path):
    found = verify(fit(tmp_path)["oslo"])
    assert in_words(found) == [
        "6 answers left, all masked: nobody saw them but as part of a sum. What the site says of itself (hello: its "
        "name, rows and columns) went as it is."
    ]
    without = dataclasses.replace(found, sound=tuple(line for line in found.sound if line.event != "hello"))
    assert in_words(without) == ["6 answers left, all masked: nobody saw them but as part of a sum."]


def test_the_terminal_shows_it_in_eighty_columns(tmp_path):
    found = verify(log_with_everything(tmp_path / "audit.jsonl"))
    text = printed(found)
    assert "✓ It holds: 10 lines" in text
    [row] = [line.split() for line in text.splitlines() if "look 2" in line]
    assert " ".join(row).endswith("look 2 3 - 2 1 3.11 kB 2 to 3")


def test_text_from_elsewhere_gives_a_terminal_no_orders(tmp_path):
    own = AuditLog(tmp_path / "audit.jsonl", "oslo")
    own.add(answer(0, event="refusal", decision="refused", query="\x1b[2Jgone", run="\x07run", rule="[red]\x1b]0;rule"))
    text = printed(verify(own.path))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[red]" in text


def test_the_page_tells_every_line(tmp_path):
    found = verify(log_with_everything(tmp_path / "audit.jsonl"))
    shown = content([found])
    [log] = shown["logs"]
    assert shown["title"] == "What left oslo"
    assert [row[0] for row in log["lines"]["rows"]] == list(range(1, 11))
    assert all(len(row) == len(log["lines"]["columns"]) for row in log["lines"]["rows"])
    assert all(len(row) == len(log["left"]["columns"]) for row in log["left"]["rows"])
    assert log["tiles"][2] == ["1", "plain, not masked", "bad"]
    assert [words.split(": ")[1] for words in log["said"]][:2] == ["Too many.", "A NaN."]
