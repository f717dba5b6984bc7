"""The console script ``mtlqwen``: chats, answers for scripts, and what helps around them.

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
from mtlqwen.progress import is_terminal

if TYPE_CHECKING:
    from mtlqwen.sampling import SamplingParams
    from mtlqwen.screen import Screen
    from mtlqwen.tools import Tool

_INTERRUPTED = 130  # as shells report SIGINT and SIGPIPE
_PIPE_CLOSED = 141
_MODEL_HELP = "a GGUF file, a model directory, a hub id owner/name[@REVISION][:QUANT], or tiny"
_DRAFTER_HELP = "a DFlash drafter, as MODEL; unset: the one beside the model, if there is one"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the console script and return its exit code.

    Args:
        arguments: what follows the program's name; unset: those of the process.
    """
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int | None] = options.command
    try:
        code = command(options)
        if sys.stdout is not None:
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
    return code or 0


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

    chat = commands.add_parser("chat", help="talk, or answer one message")
    _add_common(chat, "MESSAGE", "what to say; unset: a conversation, or standard input")
    _add_chat(chat)
    chat.set_defaults(command=_chat)

    run = commands.add_parser("run", help="answer once, for scripts: the answer and nothing else")
    _add_common(run, "PROMPT", "what to say; what is piped in follows it")
    _add_chat(run)
    run.add_argument("--json", action="store_true", help="a line of JSON with all that is known")
    run.set_defaults(command=_run)

    pull = commands.add_parser("pull", help="download a model, and print where it is")
    pull.add_argument("model", metavar="MODEL", help=_MODEL_HELP)
    pull.add_argument("--drafter", metavar="MODEL", help=_DRAFTER_HELP)
    pull.set_defaults(command=_pull)

    convert = commands.add_parser("convert", help="write a GGUF file from safetensors")
    _add_convert(convert)
    convert.set_defaults(command=_convert)

    doctor = commands.add_parser("doctor", help="check that everything works here")
    doctor.set_defaults(command=_doctor)

    bench = commands.add_parser("bench", help="measure a model's speed")
    bench.add_argument("model", nargs="?", default="tiny", metavar="MODEL", help="default: tiny")
    bench.add_argument("-p", type=_count, default=512, metavar="N", help="tokens of the prompt")
    bench.add_argument("-n", type=_count, default=64, metavar="N", help="tokens to generate")
    bench.add_argument("--json", action="store_true", help="a line of JSON")
    _add_engine(bench)
    bench.set_defaults(command=_bench)
    return parser


def _add_convert(parser: argparse.ArgumentParser) -> None:
    type_help = "of matrices: f32, bf16, f16, q8_0, q6_k, q5_k, q4_k_m, ..; default: %(default)s"
    part_help = "another type for some matrices, as token_embd=q6_k; repeatable"
    parser.add_argument("source", metavar="SOURCE", help="a model directory, or a hub id")
    parser.add_argument("target", metavar="OUT.gguf", help="what to write")
    parser.add_argument("--type", default="q8_0", metavar="TYPE", help=type_help)
    parser.add_argument(
        "--part", action="append", default=[], type=_part, metavar="PART=TYPE", help=part_help
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a file that is there")
    threads_help = "threads that quantise; unset: one for each core"
    parser.add_argument("--threads", type=_count, metavar="N", help=threads_help)


def _part(text: str) -> tuple[str, str]:
    part, _, name = text.partition("=")
    if not part or not name:
        raise argparse.ArgumentTypeError(f"no type of a part (got {text}, want PART=TYPE)")
    return part, name


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"not a count (got {text}, want 1 or more)")
    return int(text)


def _add_chat(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--system", metavar="TEXT", help="system message")
    parser.add_argument("--tools", metavar="FILE", help="a Python file with @tool functions to run")
    thinking = parser.add_mutually_exclusive_group()
    thinking.add_argument(
        "--thinking", action="store_true", default=None, help="reason before the answer"
    )
    thinking.add_argument("--no-thinking", action="store_false", dest="thinking", help="do not")


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
    parser.add_argument("--threads", type=int, metavar="N", help=threads_help)
    parser.add_argument("--spec", choices=SPECS, default="auto", metavar="WHO", help=spec_help)
    parser.add_argument("--drafter", metavar="MODEL", help=_DRAFTER_HELP)


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
    from mtlqwen.commands import read_text
    from mtlqwen.engine import Engine
    from mtlqwen.screen import Screen

    prompt, sampling, screen = read_text(options.text), _sampling(options), Screen(sys.stdout)
    with Engine(options.model, **_engine_options(options)) as engine:
        for piece in engine.stream(prompt, sampling=sampling):
            screen.write(piece)
        screen.write("\n")


def _chat(options: argparse.Namespace) -> None:
    from mtlqwen.commands import load_tools, read_text
    from mtlqwen.engine import Engine
    from mtlqwen.screen import Screen, show_stream

    tools, screen = load_tools(options.tools), Screen(sys.stdout)
    if options.text is None and is_terminal(sys.stdin) and is_terminal(sys.stdout):
        _talk(options, screen, tools)
        return
    messages = _messages(options, read_text(options.text))
    with Engine(options.model, **_engine_options(options)) as engine:
        show_stream(screen, engine.stream(messages, **_chat_options(options, tools)))


def _talk(options: argparse.Namespace, screen: Screen, tools: Sequence[Tool]) -> None:
    """Hold a conversation in a terminal."""
    from dataclasses import replace

    from mtlqwen.chat_loop import ChatLoop
    from mtlqwen.engine import Engine
    from mtlqwen.screen import make_view

    sampling = replace(_sampling(options), thinking=options.thinking)
    with Engine(options.model, **_engine_options(options)) as engine:
        view = make_view(screen, sys.stdout)
        loop = ChatLoop(engine, screen, view, system=options.system, sampling=sampling, tools=tools)
        loop.run()


def _run(options: argparse.Namespace) -> None:
    from mtlqwen.commands import load_tools, read_text, result_json
    from mtlqwen.engine import Engine
    from mtlqwen.result import ChatResult
    from mtlqwen.screen import Screen

    tools, screen = load_tools(options.tools), Screen(sys.stdout)
    messages = _messages(options, read_text(options.text, behind=True))
    with Engine(options.model, **_engine_options(options)) as engine:
        stream = engine.stream(messages, **_chat_options(options, tools))
        for piece in stream:
            if piece.kind == "text" and not options.json:
                screen.write(piece)
        result = stream.result()
        assert isinstance(result, ChatResult)
        screen.write(result_json(result) + "\n" if options.json else "\n")


def _messages(options: argparse.Namespace, text: str) -> list[dict[str, Any]]:
    system = [] if options.system is None else [{"role": "system", "content": options.system}]
    return [*system, {"role": "user", "content": text}]


def _chat_options(options: argparse.Namespace, tools: Sequence[Tool]) -> dict[str, Any]:
    chosen = {"sampling": _sampling(options), "thinking": options.thinking}
    return chosen | ({"tools": tools, "run_tools": True} if tools else {})


def _pull(options: argparse.Namespace) -> None:
    from mtlqwen.commands import pull

    for path in pull(options.model, options.drafter):
        print(path)


def _convert(options: argparse.Namespace) -> None:
    from mtlqwen.conversion import convert

    path = convert(
        options.source,
        options.target,
        options.type,
        parts=dict(options.part),
        overwrite=options.overwrite,
        threads=options.threads,
    )
    print(path)


def _doctor(_: argparse.Namespace) -> int:
    from mtlqwen.commands import doctor
    from mtlqwen.screen import Screen

    return 0 if doctor(Screen(sys.stdout)) else 1


def _bench(options: argparse.Namespace) -> None:
    from mtlqwen.commands import bench
    from mtlqwen.engine import Engine

    with Engine(options.model, **_engine_options(options)) as engine:
        measured = bench(engine, options.p, options.n)
    if options.json:
        print(json.dumps(measured))
        return
    rows = (
        (f"prompt of {options.p} tokens", "prompt_tps"),
        ("one sequence", "decode_tps"),
        (f"{measured['sequences']} sequences together", "together_tps"),
    )
    for name, key in rows:
        print(f"{name:<24} {measured[key]:9.1f} tokens/s")
