"""Speculative decoding: speed by drafter and task, acceptance by place, widths, texts, sampling.

Every part is a table of its own. `speed`: all drafters take turns on the same requests, so that
ratios mean something where times do not; a group is the requests of one kind that run together.
`kinds`: the same, each kind in a line. `idle`: the same, where nobody drafts: what drafters cost.
`acceptance`: the widest drafts, by place in the draft. `widths`: what the engine chooses. `texts`:
answers against those of plain decoding, and how close the two best logits were where they part.
`sampling`: at temperature 0.7, drafts of the likeliest tokens and drafts that use the target's
noise.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from mtlqwen import _core

from bench.drafting import (
    SLOTS,
    Asked,
    Drafts,
    Work,
    groups_of,
    open_drafting,
    release_all,
    run_timed,
    run_watched,
    submit_all,
)
from bench.drive import TINY, drain
from bench.questions import PREDICTABLE, Question, read_questions
from bench.report import Cell, Report, Spread, parse, reported

DRAFTERS = ("off", "ngram", "mtp", "dflash", "auto")
MOST_WIDTH: int = _core._testing.MOST_WIDTH
LEARNING = 20  # groups that engines run before they are measured


def measure_speed(
    asked: Asked, n: int, width: int | None = None
) -> list[dict[str, dict[str, Work]]]:
    """Work of each drafter on each kind, in each round; width: of all drafts, unset: as learned."""
    engines = {spec: open_drafting(spec) for spec in asked.drafters}
    for engine in engines.values():
        _core._testing.force_width(engine, width)
    groups = list(groups_of(asked, n))
    for _, group in groups[:: max(len(groups) // LEARNING, 1)]:
        for engine in engines.values():
            run_timed(engine, group, asked)
    rounds = []
    for _ in range(asked.rounds):
        works: dict[str, dict[str, Work]] = {spec: {} for spec in asked.drafters}
        for kind, group in groups:
            for spec, engine in engines.items():
                works[spec].setdefault(kind, Work()).add(run_timed(engine, group, asked))
        rounds.append(works)
    for engine in engines.values():
        engine.close()
    return rounds


def add_speed(
    report: Report, n: int, rounds: list[dict[str, dict[str, Work]]], kinds: Sequence[str]
) -> None:
    """A line for each drafter about the kinds together."""
    name = kinds[0] if len(kinds) == 1 else "all" if len(kinds) > 3 else " + ".join(kinds)
    totals: dict[str, list[Work]] = {}
    for works in rounds:
        for spec, of_kind in works.items():
            total = Work()
            for kind in kinds:
                total.add(of_kind[kind])
            totals.setdefault(spec, []).append(total)
    plain = totals["off"]
    for spec, works_of in totals.items():
        against = [work.rate / off.rate for work, off in zip(works_of, plain, strict=True)]
        report.add(
            n,
            name,
            spec,
            Spread.of([work.rate for work in works_of]),
            Spread.of([work.decode_rate for work in works_of]),
            Spread.of(against),
            works_of[-1].per_pass,
        )


def report_speed(report: Report, asked: Asked, width: int | None = None) -> None:
    """All kinds, and those with long answers."""
    for n in asked.together:
        rounds = measure_speed(asked, n, width)
        kinds = list(rounds[0]["off"])
        add_speed(report, n, rounds, kinds)
        if set(PREDICTABLE) < set(kinds):
            add_speed(report, n, rounds, PREDICTABLE)


def report_idle(report: Report, asked: Asked) -> None:
    """The same, where nobody drafts."""
    report_speed(report, asked, width=0)


def report_kinds(report: Report, asked: Asked) -> None:
    """Each kind in lines of its own."""
    for n in asked.together:
        rounds = measure_speed(asked, n)
        for kind in rounds[0]["off"]:
            add_speed(report, n, rounds, [kind])


def report_acceptance(report: Report, asked: Asked) -> None:
    """The widest drafts, one sequence alone."""
    for spec in asked.drafters:
        if spec in ("off", "auto"):
            continue
        engine = open_drafting(spec)
        _core._testing.force_width(engine, MOST_WIDTH)
        of_kind: dict[str, Drafts] = {"all": Drafts()}
        for kind, group in groups_of(asked, 1):
            passes = run_watched(engine, group, asked).passes
            of_kind.setdefault(kind, Drafts()).passes += passes
            of_kind["all"].passes += passes
        engine.close()
        for kind, drafts in of_kind.items():
            shares = [drafts.accepted_at(place) for place in range(MOST_WIDTH)]
            cells = ["" if share is None else round(share, 3) for share in shares]
            report.add(spec, kind, drafts.per_pass, *cells)


def report_widths(report: Report, asked: Asked) -> None:
    """What the engine chooses, as shares of all passes."""
    for n, spec in itertools.product(asked.together, asked.drafters):
        if spec == "off":
            continue
        engine = open_drafting(spec)
        drafts = Drafts()
        for _, group in groups_of(asked, n):
            drafts.passes += run_watched(engine, group, asked).passes
        engine.close()
        chosen = Counter(drafted.width for drafted in drafts.passes)
        shares = [round(chosen[w] / len(drafts.passes), 3) for w in range(MOST_WIDTH + 1)]
        report.add(n, spec, drafts.per_pass, *shares)


def answers_of(engine: _core.Engine, asked: Asked, n: int) -> list[list[int]]:
    """Answers to all questions, n together."""
    answers = []
    for begin in range(0, len(asked.questions), n):
        sequences = submit_all(engine, asked.questions[begin : begin + n], asked)
        drain(engine)
        answers += release_all(engine, sequences)
    return answers


def margin(engine: _core.Engine, question: Question, common: Sequence[int]) -> float:
    """Between the two best logits behind the question and the tokens that two answers share."""
    prompt = [*question.token_ids, *common]
    sequence = engine.submit(prompt, max_tokens=1, temperature=0.0, seed=0, stop_ids=[])
    drain(engine)
    second, best = sorted(_core._testing.last_logits(engine, sequence))[-2:]
    engine.release(sequence)
    return float(best - second)


def report_texts(report: Report, asked: Asked) -> None:
    """Answers with drafts against those without, the same number together."""
    for deterministic, n in itertools.product((False, True), (asked.together[0], SLOTS)):
        plain = open_drafting("off", deterministic=deterministic)
        expected = answers_of(plain, asked, n)
        for spec in asked.drafters:
            if spec == "off":
                continue
            engine = open_drafting(spec, deterministic=deterministic)
            others = answers_of(engine, asked, n)
            engine.close()
            parted = []
            for question, one, other in zip(asked.questions, expected, others, strict=True):
                if one == other:
                    continue
                pairs = zip(one, other, strict=False)
                place = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
                gap = margin(plain, question, one[:place])
                parted.append(f"{question.name} at {place}: {gap:.3g}")
            mode = "deterministic" if deterministic else "default"
            equal = len(expected) - len(parted)
            report.add(mode, n, spec, len(expected), equal, ", ".join(parted) or "none")
        plain.close()


def report_sampling(report: Report, asked: Asked) -> None:
    """Sample and match, with both ways of choosing what to propose.

    What min(1, p / q) would accept follows from the second: two samples that share their noise are
    equal with a probability m between (1 - d) / (1 + d) and 1 - d, where d is the distance in
    variation of the two laws; min(1, p / q) accepts 1 - d, which is m to 2m / (1 + m).
    """
    for spec in asked.drafters:
        if spec not in ("mtp", "dflash"):
            continue
        for draft_noise in (False, True):
            engine = open_drafting(spec, draft_noise=draft_noise)
            _core._testing.force_width(engine, MOST_WIDTH)
            drafts = Drafts()
            for _, group in groups_of(asked, 4):
                drafts.passes += run_watched(engine, group, asked, temperature=0.7).passes
            engine.close()
            bounds: list[Cell] = ["", ""]
            first = drafts.accepted_at(0) or 0.0
            if draft_noise:
                bounds = [round(first, 3), round(2 * first / (1 + first), 3)]
            shares = [drafts.accepted_at(place) for place in (0, 1, 2, 3)]
            cells = ["" if share is None else round(share, 3) for share in shares]
            how = "the target's noise" if draft_noise else "likeliest tokens"
            report.add(spec, how, drafts.per_pass, *cells, *bounds)


SPEED = (
    *("together", "texts", "drafter", "tokens/s", "decode tokens/s"),
    *("against off", "tokens/pass"),
)
PLACES = tuple(str(place + 1) for place in range(MOST_WIDTH))
COLUMNS = {
    "speed": SPEED,
    "kinds": SPEED,
    "idle": SPEED,
    "acceptance": ("drafter", "texts", "tokens/pass", *PLACES),
    "widths": ("together", "drafter", "tokens/pass", "0", *PLACES),
    "texts": ("mode", "together", "drafter", "texts", "equal", "parted (logit margin)"),
    "sampling": (
        *("drafter", "drafts", "tokens/pass", "1", "2", "3", "4"),
        *("min(1, p/q) at 1: least", "most"),
    ),
}
REPORTS = {
    "speed": report_speed,
    "kinds": report_kinds,
    "idle": report_idle,
    "acceptance": report_acceptance,
    "widths": report_widths,
    "texts": report_texts,
    "sampling": report_sampling,
}


def main() -> None:
    """Measure one part."""
    options = parse(
        __doc__,
        part="speed",
        drafters=DRAFTERS,
        together=(1, 4, 8),
        kinds=("all",),
        max_tokens=256,
        rounds=3,
        every=5,
    )
    questions, stop_ids = read_questions(options.every)
    if "all" not in options.kinds:
        questions = [question for question in questions if question.kind in options.kinds]
    asked = Asked(
        questions,
        stop_ids,
        tuple(options.together),
        tuple(options.drafters),
        options.max_tokens,
        options.rounds,
    )
    with reported(f"spec {options.part}", COLUMNS[options.part], options.json) as report:
        report.facts["model"] = TINY.name
        report.facts["requests"] = len(questions)
        REPORTS[options.part](report, asked)


if __name__ == "__main__":
    main()
