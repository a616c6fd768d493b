"""`cofed advise`"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cofed.cli.messages import fail, refuse, say_written, stop
from cofed.cli.options import MOST, between, names, writable_folder

if TYPE_CHECKING:
    from cofed.advise.advice import Advice


def advise(
    data: Annotated[Path, typer.Argument(help="A CSV or Parquet file with the rows of all sites.", show_default=False)],
    target: Annotated[str, typer.Option(help="The column to predict.", show_default=False)],
    client: Annotated[str, typer.Option(help="The column that says which site a row is of.", show_default=False)],
    group: Annotated[
        str | None,
        typer.Option("--group", "--split-by", help="Rows with one value here, such as a person, stay together."),
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="The columns to predict from, with commas; by default all others.")
    ] = None,
    drop: Annotated[str | None, typer.Option(help="Columns not to use, with commas.")] = None,
    model: Annotated[
        str | None, typer.Option(help="linear, logistic, multinomial or poisson; by default what the target suggests.")
    ] = None,
    folds: Annotated[int, typer.Option(callback=between(2, 50), help="Parts of the cross-validation.")] = 5,
    seed: Annotated[int, typer.Option(callback=between(0, MOST), help="Of the cross-validation's parts.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Write the page, with a figure, to this HTML file.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Write the figure to this .png, .svg or .pdf file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON, for programs.")] = False,
) -> None:
    """Should the sites share one model, have a model each, or something between?

    Every choice is trained and judged inside the sites by cross-validation: one model for all, a model each, and
    FedProx, which holds the sites' models together with a strength between the two. The page says how different the
    sites are, what each choice gives, overall and site by site, what to choose, and how sure that is.

    Example: cofed advise patients.csv --target ill --client hospital --group patient --html advice.html
    """
    from rich.progress import Progress

    from cofed.advise import show
    from cofed.advise.advice import advise as judge
    from cofed.advise.table import Columns, prepare, read

    check_file(html, (".html", ".htm"), "--html")
    check_file(figure, (".png", ".svg", ".pdf"), "--figure")
    try:
        columns = Columns(target, client, group, names(features), names(drop) or ())
        ready = prepare(read(data, client), columns, model, folds)
        with Progress(console=Console(stderr=True), transient=True, disable=as_json) as bar:
            task = bar.add_task("comparing", total=None)
            found = judge(ready, folds, seed, lambda done, total: bar.update(task, completed=done, total=total))
    except (ValueError, TypeError) as error:
        refuse(str(error))
    except KeyboardInterrupt:
        stop("Stopped before there was anything to say.")
    written, unwritten = write_files(found, {html: show.save_page, figure: show.save_figure})
    if as_json:
        print(show.as_json(found))
    else:
        screen = Console()
        screen.print(show.terminal(found, screen.width))
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
    found: "Advice", writers: "dict[Path | None, Callable[[Advice, Path], None]]"
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
