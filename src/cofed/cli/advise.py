"""`cofed advise`"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console, RenderableType

from cofed.cli.advise_sites import AdviceRequest, by_sums
from cofed.cli.fit_sites import check_processes
from cofed.cli.messages import fail, refuse, say_written, stop
from cofed.cli.options import MOST, Plain, Policy, Processes, between, names, there, writable_folder

Found = TypeVar("Found")


def advise(
    data: Annotated[
        Path,
        typer.Argument(
            callback=there,
            help="A CSV or Parquet file with the rows of all sites; or, without --client, a folder with a table per "
            "site (SITE.csv, .parquet, .feather, .xlsx), each asked for sums only.",
            show_default=False,
        ),
    ],
    target: Annotated[str, typer.Option(help="The column to predict.", show_default=False)],
    client: Annotated[
        str | None, typer.Option(help="The column that says which site a row of one table is of.", show_default=False)
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "--split-by", help="Rows with one value here, such as a person, stay together."),
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="The columns to predict from, with commas; by default all others.")
    ] = None,
    drop: Annotated[str | None, typer.Option(help="Columns not to use, with commas.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="linear, logistic, multinomial (of one table) or poisson; by default what the target suggests."
        ),
    ] = None,
    folds: Annotated[int, typer.Option(callback=between(2, 50), help="Folds of the cross-validation.")] = 5,
    seed: Annotated[int, typer.Option(callback=between(0, MOST), help="The seed of the folds.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Write the page, with a figure, to this HTML file.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Write the figure to this .png, .svg or .pdf file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON, for programs.")] = False,
    processes: Processes = False,
    plain: Plain = False,
    policy: Policy = None,
) -> None:
    """Should the sites share one model, have a model each, or something between?

    Of one table with all rows, every choice is trained and judged inside the sites by cross-validation: one model for
    all, a model each, and FedProx, which holds the sites' models together with a strength between the two. The page
    says how different the sites are, what each choice gives, overall and site by site, what to choose, and how sure
    that is.

    Of a folder with a table per site no row is pooled: each site gives sums, which tell its own fit, and the verdict is
    by how far the fits are apart beyond chance. With --processes every site is a process of its own, as for cofed fit;
    their answers are then seen one by one, so that --plain must be given, too.

    Examples: cofed advise patients.csv --target ill --client hospital --group patient --html advice.html;
    cofed advise hospitals --target ill
    """
    check_file(html, (".html", ".htm"), "--html")
    check_file(figure, (".png", ".svg", ".pdf"), "--figure")
    check_processes(processes, plain, policy)
    if processes and not plain:
        refuse("--processes: the verdict is made of each site's own fit, which masks hide: give --plain, too")
    if client is None or processes:
        if group is not None:
            refuse("--group is for the cross-validation of one table: leave it out, or give one table and --client")
        asked = AdviceRequest(data, target, client, names(features), names(drop) or (), model)
        found = by_sums(asked, processes, policy)
        from cofed.advise import by_sums as show_sums

        files = {html: show_sums.save_page, figure: show_sums.save_figure}
        shown(found, show_sums.as_json if as_json else None, show_sums.terminal, files)
        return
    from rich.progress import Progress

    from cofed.advise import show
    from cofed.advise.advice import advise as judge
    from cofed.advise.table import Columns, prepare, read

    try:
        columns = Columns(target, client, group, names(features), names(drop) or ())
        ready = prepare(read(data, client), columns, model, folds)
        with Progress(console=Console(stderr=True), transient=True, disable=as_json) as bar:
            task = bar.add_task("comparing", total=None)
            advice = judge(ready, folds, seed, lambda done, total: bar.update(task, completed=done, total=total))
    except (ValueError, TypeError) as error:
        refuse(str(error))
    except KeyboardInterrupt:
        stop("Stopped before there was anything to say.")
    screen = Console()
    files = {html: show.save_page, figure: show.save_figure}
    shown(advice, show.as_json if as_json else None, lambda found: show.terminal(found, screen.width), files)


def shown(
    found: Found,
    as_json: Callable[[Found], str] | None,
    terminal: Callable[[Found], RenderableType],
    files: Mapping[Path | None, Callable[[Found, Path], None]],
) -> None:
    """Write the files that are asked for, and print what was found, as JSON or for the terminal."""
    written, unwritten = write_files(found, files)
    if as_json is not None:
        print(as_json(found))
    else:
        Console().print(terminal(found))
        if written:
            say_written(*written)
    if unwritten:
        fail("; ".join(unwritten))


def check_file(path: Path | None, endings: tuple[str, ...], option: str) -> None:
    """Refuse a file that cannot be written, before anything is computed."""
    if path is None:
        return
    if path.suffix.lower() not in endings:
        refuse(f"{option}: {path} must end in {' or '.join(endings)}")
    if path.is_dir():
        refuse(f"{option}: {path} is a folder; give the name of a file")
    writable_folder(path.parent, option)


def write_files(
    found: Found, writers: Mapping[Path | None, Callable[[Found, Path], None]]
) -> tuple[list[Path], list[str]]:
    """The files that were written, and why others were not."""
    written, unwritten = [], []
    for path, save in writers.items():
        if path is None:
            continue
        try:
            save(found, path)
            written.append(path)
        except OSError as error:
            unwritten.append(f"{path} cannot be written: {error.strerror}")
    return written, unwritten
