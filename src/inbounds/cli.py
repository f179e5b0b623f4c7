"""The command `inbounds`: a table of subcommands, each loaded when it is called."""

from __future__ import annotations

import argparse
import shlex
import sys
from importlib import import_module

from . import __version__

LAB = {"matplotlib", "mpl_toolkits", "numpy", "PIL", "rich"}


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"asked for a whole number >= 1, got {text}")
    return number


def gallery_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", default="results/gallery", metavar="DIR", help="where pictures and gallery.json go (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the noise (%(default)s)")
    parser.add_argument(
        "--points", type=positive, default=10_000, help="noise points per set, and batch size of the timing (%(default)s)"
    )
    parser.add_argument("--sets", metavar="NAME,NAME", help="only these, e.g. so3,box-minus-balls")


# name: (help, options, module with run(args) -> exit code)
COMMANDS = {
    "gallery": ("project noise on every set: a table and pictures", gallery_options, "inbounds.report.gallery"),
}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="inbounds", description="Neural networks that never leave their constraint set.")
    top.add_argument("--version", action="version", version=f"inbounds {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for name, (summary, options, _) in COMMANDS.items():
        options(commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + "."))
    return top


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    top = parser()
    args = top.parse_args(argv, argparse.Namespace(line=shlex.join(["inbounds", *argv])))
    if args.command is None:
        top.print_help()
        return 0
    try:
        return import_module(COMMANDS[args.command][2]).run(args)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in LAB:
            raise
        print(f"inbounds {args.command} needs {error.name}. Install it with: pip install 'inbounds[lab]'", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
