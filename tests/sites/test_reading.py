"""Tables from files on disk."""

import pandas as pd
import pytest

from cofed.sites import SiteTable, read_sites, read_table, site_files, table_sites
from tests.sites import worlds

TABLE = worlds.hospital(12, 3)


def write(folder):
    """Four sites in four formats, and files that are none."""
    TABLE.to_csv(folder / "site 10.csv", index=False)
    TABLE.to_csv(folder / "site 2.tsv.gz", index=False, sep="\t")
    TABLE.to_parquet(folder / "site 3.parquet")
    (folder / "site 1").mkdir()
    TABLE.to_feather(folder / "site 1" / "2024.feather")
    for name in ("README.md", ".hidden.csv", "~$open.xlsx"):
        (folder / name).write_text("nothing")


def test_a_folder_with_a_file_per_site_is_read(tmp_path):
    write(tmp_path)
    assert list(site_files(tmp_path)) == ["site 1", "site 2", "site 3", "site 10"]
    for table in read_sites(tmp_path).values():
        pd.testing.assert_frame_equal(table.frame, TABLE, check_dtype=False)
    sites = table_sites(tmp_path, "ill")
    assert sites.sizes == (12,) * 4
    assert (sites.rows.X.reshape(4, 12, -1) == sites.rows.X[:12]).all()


def test_semicolons_are_seen(tmp_path):
    (tmp_path / "a.csv").write_text("age;cost, total\n61;1.5\n")
    assert read_table(tmp_path / "a.csv").to_dict("list") == {"age": [61], "cost, total": [1.5]}


def test_excel_files_are_read(tmp_path):
    pytest.importorskip("openpyxl")
    TABLE.to_excel(tmp_path / "oslo.xlsx", index=False)
    pd.testing.assert_frame_equal(read_table(tmp_path / "oslo.xlsx"), TABLE, check_dtype=False)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", b"", "could not be read as a table: it is empty; expected a header and rows"),
        ("a.csv", b"a,b\n1,2,3\n", "could not be read as a table: its rows have more fields than its header"),
        ("a.csv", b"a;b\n1;2\n1;2;3;4\n", "could not be read as a table: line 3 has 4 fields, and the header 2"),
        ("a.csv", b'a,b\n1,"2\n3,4\n', "could not be read as a table: a quotation mark is opened and never closed"),
        ("a.csv", b"a,a\n1,2\n", "the column 'a' is there twice"),
        ("a.csv", b"\xff\xfe\x00", "could not be read as a table: it is not UTF-8 text"),
        ("a.parquet", b"PAR1", "could not be read as a table"),
        ("a.feather", b"no", "could not be read as a table"),
        ("a.xlsx", b"\xd0\xcf\x11\xe0", "it is no Excel file of the kind .xlsx, whatever its name; save it as one"),
        ("a.txt", b"a,b", "ends in '.txt'; a table is a file that ends in .csv"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    if name.endswith(".xlsx"):
        pytest.importorskip("openpyxl")
    with pytest.raises(ValueError, match=said):
        read_table(tmp_path / name)


@pytest.mark.parametrize("name", ["rome.xls", "rome.SAV"])
def test_a_table_of_another_program_is_not_left_out_without_a_word(tmp_path, name):
    write(tmp_path)
    (tmp_path / name).write_bytes(b"rows")
    with pytest.raises(ValueError, match=f"{name} is a table that cannot be read here; save it as .csv or .xlsx"):
        read_sites(tmp_path)


def test_what_is_not_there_or_there_twice_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(ValueError, match="holds no site"):
        site_files(tmp_path)
    for name in ("a.csv", "a.parquet"):
        (tmp_path / name).write_text("x")
    with pytest.raises(ValueError, match=r"the site 'a' has two files: a.csv and a.parquet"):
        site_files(tmp_path)
    (tmp_path / "b").mkdir()
    for name in ("1.csv", "2.csv"):
        (tmp_path / "b" / name).write_text("x")
    (tmp_path / "a.csv").unlink()
    with pytest.raises(ValueError, match="holds 2 tables; a site has one"):
        site_files(tmp_path)
    with pytest.raises(ValueError, match="is a file; give a folder"):
        site_files(tmp_path / "a.parquet")


def test_whole_numbers_of_more_digits_than_floats_have_are_infinite(tmp_path):
    (tmp_path / "oslo.csv").write_text(f"age,ill\n{10**400},0\n{-(10**400)},1\n61,1\n")
    [age, _] = SiteTable(read_table(tmp_path / "oslo.csv"), "oslo").info().columns
    assert age.infinite == 2
