"""The command `inbounds`: a table of subcommands, each loaded when it is called."""

from __future__ import annotations

import argparse
import shlex
import sys
from importlib import import_module

from . import __version__
from .extras import advice


def positive(text: str) -> int:
    """A whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"asked for a whole number >= 1, got {text}")
    return number


def seconds(text: str) -> float:
    """A finite number of seconds of at least 0."""
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"asked for a number of seconds >= 0, got {text}")
    return number


def where_to_train(parser: argparse.ArgumentParser) -> None:
    """The options of commands that train: in processes of this machine, on a cluster, or in the command's own process."""
    parser.add_argument(
        "--executor",
        choices=("local", "ray", "here"),
        default="local",
        help="where to train: processes, a cluster, or this process (%(default)s)",
    )
    parser.add_argument("--address", metavar="A", help="of the Ray cluster")
    parser.add_argument("--workers", type=positive, metavar="N", help="processes of one thread (one per core)")


def gallery_options(parser: argparse.ArgumentParser) -> None:
    """The options of `inbounds gallery`."""
    parser.add_argument(
        "--out", default="results/gallery", metavar="DIR", help="where pictures and gallery.json go (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the noise (%(default)s)")
    parser.add_argument(
        "--points", type=positive, default=10_000, help="noise points per set, and batch size of the timing (%(default)s)"
    )
    parser.add_argument("--sets", metavar="NAME,NAME", help="only these, e.g. so3,box-minus-balls")


def table_options(parser: argparse.ArgumentParser) -> None:
    """The options of `inbounds table`."""
    parser.add_argument(
        "--preset", choices=("quick", "standard", "paper"), default="quick", help="how long to train (%(default)s)"
    )
    parser.add_argument("--datasets", metavar="NAME,NAME", help="among sphere,disk,so3,cs,flock,protein (all)")
    parser.add_argument(
        "--models",
        metavar="NAME,NAME",
        help="among regular,proj-iaa,exp-iaa,flow-iaa,prob,proj-faa,exp-faa,flow-faa,wide-faa,wide-iaa (these); fit-iaa,fit-faa",
    )
    parser.add_argument("--seeds", type=positive, metavar="K", help="models per grid point")
    parser.add_argument("--depths", metavar="4,6,8", help="numbers of blocks to try")
    parser.add_argument("--decays", metavar="0,1e-4", help="weight decays to try")
    parser.add_argument(
        "--epochs", type=positive, metavar="N", help="passes over the training data; more of them go on from fewer"
    )
    parser.add_argument("--data", metavar="DIR", help="your own sphere.npz, so3.npz, ...; what is not there is generated")
    parser.add_argument("--published-data", action="store_true", help="the files of --data are the paper's own: no * beside them")
    parser.add_argument("--chains", metavar="FOLDER", help="protein from your own PDB, mmCIF or ProteinNet files")
    where_to_train(parser)
    parser.add_argument("--out", metavar="DIR", help="the run store; the same command goes on where it stopped (runs/PRESET)")
    parser.add_argument("--results", metavar="DIR", help="also write each dataset's table there, as NAME.json")
    parser.add_argument(
        "--shipped", metavar="DIR", help="finished runs made elsewhere, not run again (paper: results/paper, if it is there)"
    )
    parser.add_argument("--export", metavar="DIR", help="also copy each finished run there, with its weights")
    parser.add_argument(
        "--checkpoint", type=seconds, default=20.0, metavar="S", help="seconds of work a kill may cost (%(default)s)"
    )
    parser.add_argument("--finished", action="store_true", help="show the cells that are finished, train nothing")
    parser.add_argument("--yes", action="store_true", help="start the paper preset without asking")


def runs_options(parser: argparse.ArgumentParser) -> None:
    """The options of `inbounds runs`."""
    parser.add_argument("folder", help="a run store such as runs/quick, or a folder of shipped runs such as results/paper")
    parser.add_argument("--prune", action="store_true", help="remove the runs that no finished cell uses, unfinished ones too")


def report_options(parser: argparse.ArgumentParser) -> None:
    """The options of `inbounds report`."""
    parser.add_argument("folder", help="a run store such as runs/quick, or a folder of shipped runs such as results/paper")
    parser.add_argument(
        "--out", metavar="FILE", help="the page (report.html in the folder); its pictures go to a folder of the same name"
    )


def learn_options(parser: argparse.ArgumentParser) -> None:
    """The options of `inbounds learn`."""
    parser.add_argument("points", help="samples of the set, a row each: .npy, .npz or .csv")
    parser.add_argument("-o", "--out", required=True, metavar="FILE", help="where the set goes, e.g. set.safetensors")
    parser.add_argument("--array", metavar="NAME", help="which array of an .npz file (its only one)")
    parser.add_argument(
        "--method",
        choices=("auto", "algebraic", "local", "heat", "flow", "flow-own-time"),
        default="auto",
        help="how to fit (%(default)s)",
    )
    parser.add_argument(
        "--support",
        choices=("closure", "sampled"),
        default="closure",
        help="all that satisfies the equations found, or the part that samples came from (%(default)s)",
    )
    parser.add_argument("--shape", metavar="3,3", help="of a point, if rows are flat")
    parser.add_argument("--seed", type=int, default=0, help="of splits and noise (%(default)s)")


def project_options(parser: argparse.ArgumentParser) -> None:
    """The options of `inbounds project`."""
    parser.add_argument("set", help="a file that inbounds learn wrote")
    parser.add_argument("points", help="points to project: .npy, .npz or .csv")
    parser.add_argument("-o", "--out", required=True, metavar="FILE", help="where the projections go: .npy, .npz or .csv")
    parser.add_argument("--array", metavar="NAME", help="which array of an .npz file (its only one)")


def figure_options(parser: argparse.ArgumentParser) -> None:
    """The options of `inbounds figure`."""
    parser.add_argument("name", choices=("projection", "heat-kernel", "planning"), help="which")
    parser.add_argument("--out", default="results/figures", metavar="DIR", help="where it goes (%(default)s)")
    parser.add_argument("--datasets", metavar="NAME,NAME", help="projection: among sphere,disk,so3,cs,protein (all)")
    parser.add_argument(
        "--flow-epochs", type=positive, default=8, metavar="N", help="projection: training of the flows (%(default)s)"
    )


def plan_options(parser: argparse.ArgumentParser) -> None:
    """The options of `inbounds plan`."""
    parser.add_argument("--world", metavar="FILE", help="rect, rect-overlap, sphere or a JSON file (rect)")
    parser.add_argument("--random", type=int, metavar="SEED", help="a random world of 3 to 8 discs instead")
    parser.add_argument("--from", dest="start", metavar="X,Y", help="start; with a minus sign in front write --from=-1,0,0")
    parser.add_argument("--to", dest="target", metavar="X,Y", help="target")
    parser.add_argument("--pairs", type=positive, metavar="N", help="without --from: random pairs (8)")
    parser.add_argument(
        "--through", metavar="FILE", help="points to visit on the way, in this order: numbers like 0.5,2 in lines"
    )
    parser.add_argument("--radius", type=float, metavar="R", help="of the robot: its centre stays R away from everything (0)")
    parser.add_argument(
        "--planner",
        choices=("sides", "direction", "paper", "closed-form", "roadmap", "exact"),
        help="direction and paper are trained first, half a minute (sides)",
    )
    parser.add_argument("--snap", action="store_true", help="move points inside obstacles to the nearest free ones")
    parser.add_argument("--tight", action="store_true", help="pull the paths tight")
    parser.add_argument("--points", metavar="FILE", help="write the way points of the paths: .csv with path, point, x, y")
    parser.add_argument("--animate", action="store_true", help="write a GIF")
    parser.add_argument("--seed", type=int, default=0, help="of pairs and training (%(default)s)")
    parser.add_argument("-o", "--out", metavar="FILE", help="the picture (path.png, with --animate path.gif)")
    parser.add_argument(
        "--train",
        metavar="FILE",
        help="train the network of --planner sides again, a minute or two, and save it; with --seed alone",
    )


def compare_options(parser: argparse.ArgumentParser) -> None:
    """The options of `inbounds compare`."""
    parser.add_argument(
        "--problems",
        metavar="NAME,NAME",
        help="among qp,sine,dispatch,control (these); sine-hardnet,qcqp,socp,acopf14,acopf30,arm",
    )
    parser.add_argument(
        "--schemes",
        metavar="NAME,NAME",
        help="among projection,hardnet,rayen,gauge,mixture,penalty,dc3,repair,ray-scaling,splitting,optnet (these); on qp also "
        "dc3-authors,hardnet-authors,penalty-authors, on sine-hardnet hardnet-published, one seed",
    )
    parser.add_argument("--seeds", type=positive, default=1, metavar="K", help="networks per scheme (%(default)s)")
    parser.add_argument("--steps", type=positive, default=1_200, metavar="N", help="of training, 200 rows each (%(default)s)")
    parser.add_argument(
        "--rows", type=positive, metavar="N", help="test instances to solve for the gap (1000 of qp, 100 or 200 of the others)"
    )
    where_to_train(parser)
    parser.add_argument(
        "--out",
        default="runs/compare",
        metavar="DIR",
        help="the run store; the same command goes on where it stopped (%(default)s)",
    )
    parser.add_argument("--results", metavar="DIR", help="also write each problem's table there, as NAME.json")
    parser.add_argument(
        "--checkpoint", type=seconds, default=20.0, metavar="S", help="seconds of work a kill may cost (%(default)s)"
    )
    parser.add_argument("--finished", action="store_true", help="show the cells that are finished, train nothing")


# name: (help, options, module:function(args) -> exit code)
COMMANDS = {
    "table": ("train every architecture on every dataset, print the paper's table", table_options, "inbounds.paper.command:run"),
    "runs": ("list the runs of a store by name", runs_options, "inbounds.paper.runs:run"),
    "report": ("write a run store as one page that opens from disk", report_options, "inbounds.report.command:run"),
    "gallery": ("project noise on every set: a table and pictures", gallery_options, "inbounds.gallery.gallery:run"),
    "learn": ("fit a set to samples and say what was found", learn_options, "inbounds.learned.command:learn"),
    "project": ("project points on a set that was learned", project_options, "inbounds.learned.command:project"),
    "plan": ("plan paths that cannot collide, and draw them", plan_options, "inbounds.planning.command:run"),
    "compare": ("train every scheme on constrained problems, print one table", compare_options, "inbounds.compare.command:run"),
    "figure": ("draw one of the paper's figures", figure_options, "inbounds.paper.figures:run"),
}


def parser() -> argparse.ArgumentParser:
    """Options are written out: with abbreviations `--seed 3` would mean `--seeds 3` where there is no --seed."""
    about = "Neural networks that never leave their constraint set."
    top = argparse.ArgumentParser(prog="inbounds", description=about, allow_abbrev=False)
    top.add_argument("--version", action="version", version=f"inbounds {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for name, (summary, options, _) in COMMANDS.items():
        about = summary[0].upper() + summary[1:] + "."
        options(commands.add_parser(name, help=summary, description=about, allow_abbrev=False))
    return top


def main(argv: list[str] | None = None) -> int:
    """Run a subcommand. Returns the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    top = parser()
    args = top.parse_args(argv, argparse.Namespace(line=shlex.join(["inbounds", *argv])))
    if args.command is None:
        top.print_help()
        return 0
    try:
        module, _, function = COMMANDS[args.command][2].partition(":")
        return getattr(import_module(module), function)(args)
    except ModuleNotFoundError as error:
        told = advice(f"inbounds {args.command}", error)
        if told is None:
            raise
        print(told, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
