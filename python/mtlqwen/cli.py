"""The console script ``mtlqwen``: a demonstration, and generation without writing a program.

Parses arguments and prints; everything else is the library's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mtlqwen.errors import MtlqwenError
from mtlqwen.options import SPECS

if TYPE_CHECKING:
    from mtlqwen.sampling import SamplingParams

_INTERRUPTED = 130  # as shells report SIGINT and SIGPIPE
_PIPE_CLOSED = 141
_MODEL_HELP = "a GGUF file, a model directory, a hub id owner/name[@REVISION][:QUANT], or tiny"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the console script and return its exit code.

    Args:
        arguments: what follows the program's name; unset: those of the process.
    """
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], None] = options.command
    try:
        command(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whatever is still buffered has no reader; the flush at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (MtlqwenError, OSError, RuntimeError, ValueError) as error:
        print(f"mtlqwen: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mtlqwen", description="Run Qwen 3.5 language models on this machine."
    )
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="show what the bundled model can do, and how fast")
    demo.add_argument("model", nargs="?", default="tiny", metavar="MODEL", help="default: tiny")
    _add_engine(demo)
    demo.set_defaults(command=_demo)

    info = commands.add_parser("info", help="what is in a file, the memory it takes, if it runs")
    info.add_argument("model", metavar="MODEL", help=f"{_MODEL_HELP}; nothing is downloaded")
    info.add_argument("--json", action="store_true", help="the same for programs")
    info.set_defaults(command=_info)

    generate = commands.add_parser("generate", help="continue a text")
    _add_common(generate, "PROMPT", "the text; unset: standard input")
    generate.set_defaults(command=_generate)

    chat = commands.add_parser("chat", help="answer one message")
    _add_common(chat, "MESSAGE", "what to say; unset: standard input")
    chat.add_argument("--system", metavar="TEXT", help="system message")
    thinking = chat.add_mutually_exclusive_group()
    thinking.add_argument(
        "--thinking", action="store_true", default=None, help="reason before the answer"
    )
    thinking.add_argument("--no-thinking", action="store_false", dest="thinking", help="do not")
    chat.set_defaults(command=_chat)
    return parser


def _add_common(parser: argparse.ArgumentParser, name: str, text_help: str) -> None:
    parser.add_argument("model", metavar="MODEL", help=_MODEL_HELP)
    parser.add_argument("text", nargs="?", metavar=name, help=text_help)
    parser.add_argument("-n", "--max-tokens", type=int, metavar="N", help="tokens at most")
    parser.add_argument("-t", "--temperature", type=float, metavar="T", help="0 is greedy")
    parser.add_argument("--top-k", type=int, metavar="K", help="only the K likeliest tokens")
    parser.add_argument("--top-p", type=float, metavar="P", help="the likeliest that reach P")
    parser.add_argument("--min-p", type=float, metavar="P", help="P as likely as the likeliest")
    parser.add_argument("--seed", type=int, metavar="N", help="same seed, same text")
    parser.add_argument("--stop", action="append", metavar="TEXT", help="ends the text; repeatable")
    _add_engine(parser)


def _add_engine(parser: argparse.ArgumentParser) -> None:
    threads_help = "CPU threads; unset: one for each core"
    spec_help = "who proposes tokens, for speed alone: %(choices)s; default: %(default)s"
    drafter_help = "a DFlash drafter, as MODEL; unset: the one beside the model, if there is one"
    parser.add_argument("--threads", type=int, metavar="N", help=threads_help)
    parser.add_argument("--spec", choices=SPECS, default="auto", metavar="WHO", help=spec_help)
    parser.add_argument("--drafter", metavar="MODEL", help=drafter_help)


def _sampling(options: argparse.Namespace) -> SamplingParams:
    from mtlqwen.sampling import SamplingParams

    return SamplingParams(
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        seed=options.seed,
        stop=options.stop,
    )


def _engine_options(options: argparse.Namespace) -> dict[str, Any]:
    return {"threads": options.threads, "spec": options.spec, "drafter": options.drafter}


class _Version(argparse.Action):
    """Prints the version; only then is the core loaded."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from mtlqwen import __version__

        print(f"mtlqwen {__version__}")
        parser.exit()


def _demo(options: argparse.Namespace) -> None:
    from mtlqwen.demo import run_demo

    run_demo(options.model, **_engine_options(options))


def _info(options: argparse.Namespace) -> None:
    from mtlqwen.info import describe, lines

    report = describe(options.model)
    print(json.dumps(report, indent=1) if options.json else "\n".join(lines(report)))


def _generate(options: argparse.Namespace) -> None:
    from mtlqwen.engine import Engine
    from mtlqwen.screen import Screen

    prompt, sampling, screen = _text(options), _sampling(options), Screen(sys.stdout)
    with Engine(options.model, **_engine_options(options)) as engine:
        for piece in engine.stream(prompt, sampling=sampling):
            screen.write(piece)
        screen.write("\n")


def _chat(options: argparse.Namespace) -> None:
    from mtlqwen.engine import Engine
    from mtlqwen.screen import Screen, show_stream

    messages, sampling = [{"role": "user", "content": _text(options)}], _sampling(options)
    if options.system is not None:
        messages.insert(0, {"role": "system", "content": options.system})
    with Engine(options.model, **_engine_options(options)) as engine:
        stream = engine.stream(messages, sampling=sampling, thinking=options.thinking)
        show_stream(Screen(sys.stdout), stream)


def _text(options: argparse.Namespace) -> str:
    text: str | None = options.text
    return sys.stdin.read() if text is None else text
