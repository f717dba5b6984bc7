"""`mtlqwen chat MODEL`: a conversation in a terminal, with commands that begin with a slash.

Uses the public surface only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mtlqwen.answer_view import AnswerView
from mtlqwen.errors import MtlqwenError
from mtlqwen.interrupts import Interrupts
from mtlqwen.result import ChatResult, Piece
from mtlqwen.tool_runs import ToolRuns
from mtlqwen.tool_streams import MAX_ROUNDS

if TYPE_CHECKING:
    from mtlqwen.engine import Engine
    from mtlqwen.prepare import Messages
    from mtlqwen.sampling import SamplingParams
    from mtlqwen.screen import Screen
    from mtlqwen.session import Session
    from mtlqwen.tools import Tool

_HELP = """\
/system TEXT   begin anew, with another system message
/regen         answer the last message again
/undo          take the last message and its answer back
/fork [N]      go on in a copy of the conversation; N: in the one of that number
/save FILE     write the conversation to a file
/load FILE     go on with a conversation from a file
/show          show the last reasoning
/stats         tell what the last answer and the engine took
/help, /quit   Ctrl-D quits, too; Ctrl-C stops an answer; a line that ends with \\ goes on
"""


class ChatLoop:
    """A conversation between a terminal and an engine."""

    def __init__(
        self,
        engine: Engine,
        screen: Screen,
        make_view: Callable[[], AnswerView],
        *,
        system: str | None,
        sampling: SamplingParams,
        tools: Sequence[Tool] = (),
    ) -> None:
        """Begin a conversation; ``tools`` are run when the model calls them."""
        self._engine = engine
        self._screen = screen
        self._make_view = make_view
        self._sampling = sampling
        self._tools = list(tools) or None
        self._runs = ToolRuns(self._tools) if self._tools else None
        self._branches = [self._begin(system)]
        self._branch = 0
        self._last: ChatResult | None = None
        self._interrupts = Interrupts()

    def run(self) -> None:
        """Read lines and answer them, until the input ends."""
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  gives input() its editing and its history
        with self._interrupts:
            self._screen.write("/help lists the commands\n", "dim")
            while True:
                try:
                    line = self._interrupts.run(_read)
                except EOFError:
                    self._screen.write("\n")
                    return
                if line is None:
                    self._screen.write("\n(Ctrl-D or /quit ends the chat)\n", "dim")
                    continue
                if line in ("/quit", "/exit"):
                    return
                if line:
                    self._handle(line)

    def _handle(self, line: str) -> None:
        try:
            if line.startswith("/"):
                name, _, rest = line[1:].partition(" ")
                command = _COMMANDS.get(name)
                if command is None:
                    raise ValueError(f"no such command (got /{name}; /help lists them)")
                command(self, rest.strip())
            else:
                self._say(line)
        except (MtlqwenError, OSError, RuntimeError, TypeError, ValueError) as error:
            self._screen.write(f"{error}\n", "bold")

    @property
    def _session(self) -> Session:
        return self._branches[self._branch]

    def _begin(self, system: str | None) -> Session:
        return self._engine.session(system, self._tools, self._sampling)

    def _say(self, content: str | Messages) -> None:
        """Say something and show the answer, and those to the results of tools."""
        view, session = self._make_view(), self._session
        before, result = len(session.messages), None
        try:
            result = self._interrupts.run(lambda: self._answer(content, view))
        finally:
            added = session.messages[before:]
            if result is None and added and added[-1].get("tool_calls"):
                session.rewind()  # nothing answers these calls, and the next turn would follow them
            view.end()
        if result is None:
            self._screen.write("(stopped; what was not answered is forgotten)\n", "dim")
        elif result.finish_reason not in ("stop", "tool_calls"):
            self._screen.write(f"({result.finish_reason})\n", "dim")

    def _answer(self, content: str | Messages, view: AnswerView) -> ChatResult:
        left = MAX_ROUNDS
        while True:
            with self._session.stream(content) as stream:
                for piece in stream:
                    view.add(piece)
                    self._interrupts.check()
                result = stream.result()
            view.end()
            assert isinstance(result, ChatResult)
            self._last = result
            if self._runs is None or result.finish_reason != "tool_calls" or not left:
                return result
            texts = self._runs.run(result.tool_calls)
            for text in texts:
                view.add(Piece(text, [], "tool_result"))
            content = [{"role": "tool", "content": text} for text in texts]
            left -= 1

    def _system(self, text: str) -> None:
        self._branches[self._branch] = self._begin(text or None)
        self._screen.write("(a new conversation)\n", "dim")

    def _regen(self, _: str) -> None:
        said = [one["content"] for one in self._session.messages if one["role"] == "user"]
        if not said:
            raise ValueError("nothing has been said yet")
        self._session.rewind()
        self._say(said[-1])

    def _undo(self, _: str) -> None:
        self._session.rewind()
        self._screen.write(f"({len(self._session.messages)} messages are left)\n", "dim")

    def _fork(self, number: str) -> None:
        if not number:
            self._branches.append(self._session.fork())
            self._branch = len(self._branches) - 1
        elif number.isdecimal() and 1 <= int(number) <= len(self._branches):
            self._branch = int(number) - 1
        else:
            raise ValueError(f"no such fork (got {number}, want 1 to {len(self._branches)})")
        self._screen.write(f"(fork {self._branch + 1} of {len(self._branches)})\n", "dim")

    def _save(self, path: str) -> None:
        tokens = self._session.save(path)
        self._screen.write(f"(saved, with the state of {tokens} tokens)\n", "dim")

    def _load(self, path: str) -> None:
        self._branches[self._branch] = session = self._engine.load_session(path)
        self._screen.write(f"({len(session.messages)} messages)\n", "dim")

    def _show(self, _: str) -> None:
        said = self._last.reasoning if self._last else ""
        self._screen.write(f"{said or '(no reasoning)'}\n", "dim")

    def _stats(self, _: str) -> None:
        stats, last = self._engine.stats(), self._last
        lines = [f"memory      {float(stats['memory_bytes']) / 2**20:.0f} MiB"]
        if last:
            usage, timings, spec = last.usage, last.timings, last.spec
            lines = [
                f"prompt      {usage.prompt_tokens} tokens, {usage.cached_tokens} of them cached",
                f"answer      {usage.completion_tokens} tokens, {usage.reasoning_tokens} reasoning",
                f"first token {timings.ttft_s * 1000:.0f} ms",
                f"speed       {timings.decode_tps:.1f} tokens/s",
                f"drafts      {spec.accepted} of {spec.drafted} tokens held ({spec.drafter})",
                *lines,
            ]
        self._screen.write("\n".join(lines) + "\n")

    def _help(self, _: str) -> None:
        self._screen.write(_HELP)


_COMMANDS: dict[str, Callable[[ChatLoop, str], None]] = {
    "system": ChatLoop._system,
    "regen": ChatLoop._regen,
    "undo": ChatLoop._undo,
    "fork": ChatLoop._fork,
    "save": ChatLoop._save,
    "load": ChatLoop._load,
    "show": ChatLoop._show,
    "stats": ChatLoop._stats,
    "help": ChatLoop._help,
}


def _read() -> str:
    """Return what is typed, lines that go on joined."""
    lines = [input("> ")]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(input(". "))
    return "\n".join(lines).strip()
