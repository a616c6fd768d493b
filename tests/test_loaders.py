"""Real data: tiny files of each layout, the files themselves where they are, and what is said where they are not."""

import gzip
import os
import sys
from pathlib import Path

import h5py
import nibabel
import numpy as np
import pytest
from sklearn.datasets import load_digits

from cofed import datasets
from cofed._util import extras
from cofed.datasets.digits import FORM, STARTS

SHARED = Path(os.environ.get("COFED_DATA") or Path(__file__).parents[2] / "shared" / "data")


def real(name: str) -> Path:
    """The folder with the real data, or a skip."""
    if not (SHARED / name).is_dir():
        pytest.skip(f"{SHARED} has no {name}; set COFED_DATA to the folder that has")
    return SHARED


def write_idx(path: Path, array: np.ndarray) -> None:
    raw = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype(np.uint8).tobytes()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)


@pytest.fixture
def tiny_mnist(tmp_path):
    """Seven images to train on and three to test on, some files compressed."""
    pixels = np.random.default_rng(0).integers(0, 256, (7, 28, 28))
    write_idx(tmp_path / "mnist" / "train-images-idx3-ubyte.gz", pixels)
    write_idx(tmp_path / "mnist" / "train-labels-idx1-ubyte", np.arange(7))
    write_idx(tmp_path / "mnist" / "t10k-images-idx3-ubyte", pixels[:3])
    write_idx(tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz", np.array([9, 8, 7]))
    return tmp_path, pixels


def test_the_folder_is_the_one_given_or_that_of_the_variable(tmp_path, monkeypatch):
    monkeypatch.delenv("COFED_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"--data DIR\) or set the variable COFED_DATA to it"):
        datasets.data_folder()
    monkeypatch.setenv("COFED_DATA", str(tmp_path))
    assert datasets.data_folder() == tmp_path
    (tmp_path / "other").mkdir()
    assert datasets.data_folder(tmp_path / "other") == tmp_path / "other"
    monkeypatch.setenv("COFED_DATA", str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*gone, which the variable COFED_DATA names"):
        datasets.mnist()


def test_mnist_files_are_read_as_they_are_and_compressed(tiny_mnist, monkeypatch):
    root, pixels = tiny_mnist
    images = datasets.mnist(root / "mnist")
    np.testing.assert_array_equal(images.train_X, pixels.astype("float32") / np.float32(255))
    assert images.train_X.dtype == np.float32
    assert images.train_y.dtype == np.int32
    assert images.train_y.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert images.test_y.tolist() == [9, 8, 7]
    monkeypatch.setenv("COFED_DATA", str(root))
    np.testing.assert_array_equal(datasets.mnist().test_X, images.test_X)


BROKEN = {
    "another kind of file": ("train-labels-idx1-ubyte", lambda raw: b"GIF8" + raw[4:], "begins with the bytes 47 49"),
    "images for labels": ("train-labels-idx1-ubyte", lambda raw: raw[:3] + b"\3" + raw[4:], "expected 00 00 08 01"),
    "nothing": ("train-labels-idx1-ubyte", lambda raw: b"", r"\(none\), expected"),
    "half a header": ("train-labels-idx1-ubyte", lambda raw: raw[:6], "ends within its header, after 6 bytes"),
    "cut off": ("train-labels-idx1-ubyte", lambda raw: raw[:-2], "5 bytes of data, but its header announces 7"),
    "too long": ("train-labels-idx1-ubyte", lambda raw: raw + b"\0", "8 bytes of data, but its header announces 7"),
    "a label too high": ("train-labels-idx1-ubyte", lambda raw: raw[:-1] + b"\12", "has the label 10"),
    "cut off gzip": ("train-images-idx3-ubyte.gz", lambda raw: raw[:-20], "not a whole gzip file"),
    "no gzip": ("train-images-idx3-ubyte.gz", lambda raw: raw[2:], "not a whole gzip file"),
    "damaged gzip": ("train-images-idx3-ubyte.gz", lambda raw: raw[:20] + b"\xff" * 9 + raw[29:], "not a whole gzip"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_mnist_files_are_named(case, tiny_mnist):
    root, _ = tiny_mnist
    name, damage, message = BROKEN[case]
    path = root / "mnist" / name
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=f"{name} .*{message}"):
        datasets.mnist(root)


def test_mnist_files_that_do_not_fit_each_other_are_refused(tiny_mnist):
    root, pixels = tiny_mnist
    write_idx(root / "mnist" / "t10k-images-idx3-ubyte", pixels)
    with pytest.raises(ValueError, match=r"t10k-images-idx3-ubyte has 7 images, but .* has 3 labels"):
        datasets.mnist(root)
    write_idx(root / "mnist" / "t10k-images-idx3-ubyte", pixels[:3, :, :20])
    with pytest.raises(ValueError, match="has images of 28 x 20 pixels, expected 28 x 28"):
        datasets.mnist(root)
    (root / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no t10k-labels-idx1-ubyte.gz .* mnist\(download=True\)"):
        datasets.mnist(root)


@pytest.mark.filterwarnings("ignore:Invalid cache", "ignore:A network error")  # scikit-learn's, between its attempts
def test_a_download_that_fails_is_a_sentence(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    with pytest.raises(ConnectionError, match=r"scikit-learn could not download MNIST \(URLError.*put the four files"):
        datasets.mnist(tmp_path, download=True)


def test_the_real_mnist():
    images = datasets.mnist(real("mnist"))
    assert images.train_X.shape == (60_000, 28, 28)
    assert images.test_X.shape == (10_000, 28, 28)
    assert np.bincount(images.test_y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert images.train_y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    # The mean and the spread that everybody normalizes MNIST with.
    assert images.train_X.mean() == pytest.approx(0.1307, abs=5e-5)
    assert images.train_X.std() == pytest.approx(0.3081, abs=5e-5)


def test_pseudo_writers_share_all_images_and_differ_in_their_digits():
    rng = np.random.default_rng(0)
    pixels, labels = rng.random((500, 28, 28), "float32"), rng.integers(0, 10, 500).astype(np.int32)
    images = datasets.Images(pixels, labels, pixels[:1], labels[:1])
    fed = datasets.mnist_by_writer(images, writers=12, alpha=0.2, min_size=4, seed=3)
    assert fed.names[11] == "pseudo-writer 11"
    assert fed.ids.tolist() == list(range(12))
    X, y = fed.pooled()
    order, back = np.lexsort(X.T), np.lexsort(pixels.reshape(500, -1).T)
    np.testing.assert_array_equal(X[order], pixels.reshape(500, -1)[back])
    np.testing.assert_array_equal(y[order], labels[back])
    counts = np.stack([np.bincount(fed.client(m)[1], minlength=10) for m in range(12)])
    assert (counts.max(axis=1) / counts.sum(axis=1)).mean() > 0.3  # 0.1 where all have all digits alike


def test_digits_are_split_where_the_forms_begin_anew():
    """Each block of labels is the form's text, up to missing digits; one label in all is another one."""
    labels = load_digits().target
    others = 0
    for block in np.split(labels, STARTS[1:]):
        place = iter(FORM)
        matched = sum(any(str(label) == asked for asked in place) for label in block[:-1])
        assert matched == len(block) - 1
        others += not any(str(block[-1]) == asked for asked in place)
    assert len(FORM) == 130
    assert others == 1
    assert 14 * 130 - len(labels) == 23


def test_digits():
    fed = datasets.digits(dtype="float64")
    X, y = fed.pooled()
    np.testing.assert_array_equal(X * 16, load_digits().data)
    np.testing.assert_array_equal(y, load_digits().target)
    assert X.max() == 1
    small = datasets.digits(parts=3, flat=False)
    assert small.n_clients == 42
    assert small.feature_shape == (8, 8)
    assert int(small.sizes.min()) == 40
    np.testing.assert_array_equal(small.pooled()[1], y)
    with pytest.raises(ValueError, match="parts must be at most 122"):
        datasets.digits(parts=123)
    with pytest.raises(ValueError, match="parts must be a whole number >= 1, got 0"):
        datasets.digits(parts=0)


def write_scans(folder: Path, runs: list[list[str]], seed: int = 0, header: bool = True) -> np.ndarray:
    """A subject with these labels in each run, in a brain of 3 x 2 x 2 voxels; one voxel is constant."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = [f"{label} {run}" for run, names in enumerate(runs) for label in names]
    bold = np.random.default_rng(seed).integers(0, 1000, (3, 2, 2, len(labels))).astype(np.int16)
    bold[2, 1, 1] = 5
    nibabel.save(nibabel.Nifti1Image(bold, np.eye(4)), folder / "bold.nii.gz")
    name = "labels.txt" if header else "attributes_literal.txt"
    (folder / name).write_text("\n".join(["labels chunks"] * header + labels) + "\n")
    return bold


def write_mask(path: Path, off: int = 4) -> np.ndarray:
    mask = np.ones((3, 2, 2), np.int16)
    mask.reshape(-1)[:off] = 0
    nibabel.save(nibabel.Nifti1Image(mask, np.eye(4)), path)
    return mask > 0


RUN = ["rest", "face", "face", "cat", "rest", "house", "house", "house", "face", "rest"]


@pytest.fixture
def six_subjects(tmp_path):
    """nilearn's layout, with a run of subject 5 that has no labels."""
    for subject in range(1, 7):
        runs = [RUN, ["rest"] * 10 if subject == 5 else RUN, RUN]
        write_scans(tmp_path / "haxby2001" / f"subj{subject}", runs, seed=subject)
        write_mask(tmp_path / "haxby2001" / f"subj{subject}" / "mask4_vt.nii.gz", off=subject)
    write_mask(tmp_path / "haxby2001" / "mask.nii.gz")
    return tmp_path


def test_a_run_is_a_client_and_a_voxel_of_the_mask_a_feature(tmp_path):
    bold = write_scans(tmp_path, [RUN, RUN[1:]], header=False)
    mask = write_mask(tmp_path / "mask.nii.gz")
    fed = datasets.haxby(tmp_path, standardize=False, dtype="float64")
    assert fed.names == ("run 0", "run 1")
    X, y = fed.client("run 1")
    np.testing.assert_array_equal(X, bold[mask].T[[10, 11, 14, 15, 16, 17]])
    assert y.tolist() == [1, 1, 0, 0, 0, 1]
    X, _ = datasets.haxby(tmp_path, dtype="float64").client("run 1")
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(X.std(axis=0), [1] * 7 + [0])  # the last voxel is constant
    every = datasets.haxby(tmp_path, classes=None).client("run 0")[1]
    assert every.tolist() == [1, 1, 0, 2, 2, 2, 1]  # cat, face, house
    halves = datasets.haxby(tmp_path, parts=2, dtype="float64", standardize=False)
    assert halves.names[:2] == ("run 0 part 0", "run 0 part 1")
    assert [halves.client(m)[1].tolist() for m in range(2)] == [[1, 0, 0, 1], [1, 0]]
    assert sorted(halves.pooled()[0].sum(axis=1)) == sorted(fed.pooled()[0].sum(axis=1))


def test_several_subjects_and_the_papers_division(six_subjects):
    split = datasets.haxby_split(six_subjects)
    assert split.train.n_clients == 14  # 5 subjects of 3 runs, but for the one without labels
    assert split.test.names == ("subject 6 run 0", "subject 6 run 1", "subject 6 run 2")
    assert "subject 5 run 1" not in split.train.names
    assert split.source == "Haxby 2001, 8 voxels, subjects 1, 2, 3, 4, 5; tested on subject 6"
    one = datasets.haxby(six_subjects, subjects=3, mask="mask4_vt.nii.gz")
    assert (one.n_features, one.names[0]) == (9, "run 0")
    np.testing.assert_array_equal(
        datasets.haxby(six_subjects / "haxby2001", subjects=3).client("run 2")[0],
        split.train.client("subject 3 run 2")[0],
    )
    with pytest.raises(ValueError, match=r"mask4_vt.nii.gz of subject 2 is another one than that of subject 1"):
        datasets.haxby(six_subjects, subjects=[1, 2], mask="mask4_vt.nii.gz")
    with pytest.raises(FileNotFoundError, match=r"has subject 1, 2, 3, 4, 5, 6, got subjects=2, 7"):
        datasets.haxby(six_subjects, subjects=[2, 7])


def test_one_subject_is_divided_by_runs(tmp_path):
    write_scans(tmp_path / "haxby-slice", [RUN] * 8, header=False)
    write_mask(tmp_path / "haxby-slice" / "mask.nii.gz")
    split = datasets.haxby_split(tmp_path)
    assert split.test.names == ("run 6", "run 7")
    assert split.source == "Haxby 2001, 8 voxels, subject 1, run 0 to run 5; tested on run 6 to run 7"
    write_scans(tmp_path / "haxby-slice", [RUN], header=False)
    with pytest.raises(ValueError, match="has one run, so that nothing is left to test on"):
        datasets.haxby_split(tmp_path)


def test_missing_and_broken_scans_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"neither haxby2001/subj1/bold.nii.gz .*fetch_haxby.*yuan_fmri_like"):
        datasets.haxby(tmp_path)
    with pytest.raises(FileNotFoundError, match="neither haxby2001"):
        datasets.haxby_split(tmp_path)
    write_scans(tmp_path, [RUN, RUN])
    with pytest.raises(FileNotFoundError, match=r"has no file with the mask, mask.nii.gz \(nor has the folder above\)"):
        datasets.haxby(tmp_path)
    write_mask(tmp_path / "mask.nii.gz")
    datasets.haxby(tmp_path)
    for classes in ("face", ("face",), ("face", "face")):
        with pytest.raises(ValueError, match="classes must be two or more different categories"):
            datasets.haxby(tmp_path, classes=classes)
    with pytest.raises(ValueError, match=r"has no scan of 'horse'; it has 'cat', 'face', 'house'"):
        datasets.haxby(tmp_path, classes=("face", "horse"))

    labels = (tmp_path / "labels.txt").read_text()
    (tmp_path / "labels.txt").write_text(labels + "face 1\n")
    with pytest.raises(ValueError, match=r"labels.txt has 21 lines, but .*bold.nii.gz has 20 volumes"):
        datasets.haxby(tmp_path)
    (tmp_path / "labels.txt").write_text("face\n" + labels)
    with pytest.raises(
        ValueError, match=r"labels.txt, volume 0: expected a label and a run as in 'face 0', got 'face'"
    ):
        datasets.haxby(tmp_path)
    (tmp_path / "labels.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no file with the labels, labels.txt"):
        datasets.haxby(tmp_path)
    (tmp_path / "labels.txt").write_text(labels)

    write_mask(tmp_path / "mask.nii.gz", off=12)
    with pytest.raises(ValueError, match=r"mask.nii.gz is zero everywhere"):
        datasets.haxby(tmp_path)
    nibabel.save(nibabel.Nifti1Image(np.ones((3, 2, 1), np.int16), np.eye(4)), tmp_path / "mask.nii.gz")
    with pytest.raises(ValueError, match=r"has shape \(3, 2, 1\), but the volumes of .* have \(3, 2, 2\)"):
        datasets.haxby(tmp_path)
    write_mask(tmp_path / "mask.nii.gz")
    whole = (tmp_path / "bold.nii.gz").read_bytes()
    for damaged in (whole[:-100], b"text, no scans", b""):
        (tmp_path / "bold.nii.gz").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"bold.nii.gz is not a whole NIfTI file"):
            datasets.haxby(tmp_path)
    (tmp_path / "bold.nii.gz").write_bytes(whole)
    (tmp_path / "mask.nii.gz").write_bytes(b"text, no mask")
    with pytest.raises(ValueError, match=r"mask.nii.gz is not a whole NIfTI file"):
        datasets.haxby(tmp_path)
    write_mask(tmp_path / "mask.nii.gz")
    nibabel.save(nibabel.Nifti1Image(np.ones((3, 2, 2), np.int16), np.eye(4)), tmp_path / "bold.nii.gz")
    with pytest.raises(ValueError, match="expected four axes: three of space, then time"):
        datasets.haxby(tmp_path)


def test_the_real_slice():
    split = datasets.haxby_split(real("haxby-slice"))
    assert split.train.X.shape == (9, 18, 530)
    assert split.test.X.shape == (3, 18, 530)
    assert np.asarray(split.train.y).sum(axis=1).tolist() == [9] * 9
    # The two kinds of pictures differ by more than chance: the best voxel's means by over a standard deviation.
    X, y = split.train.pooled()
    best = np.argmax(abs(X[y == 0].mean(axis=0) - X[y == 1].mean(axis=0)))
    X, y = split.test.pooled()
    assert abs(X[y == 0].mean(axis=0) - X[y == 1].mean(axis=0))[best] > 1


@pytest.fixture
def tiny_femnist(tmp_path):
    rng = np.random.default_rng(0)
    written = {}
    with h5py.File(tmp_path / "fed_emnist_digitsonly_train.h5", "w") as file:
        for writer, count in (("f0010_02", 4), ("f0002_11", 3), ("f0001_41", 2)):
            written[writer] = rng.random((count, 28, 28), "float32"), rng.integers(0, 10, count, "int32")
            file[f"examples/{writer}/pixels"], file[f"examples/{writer}/label"] = written[writer]
    return tmp_path, written


def test_femnist_by_writer(tiny_femnist):
    root, written = tiny_femnist
    fed = datasets.femnist(root)
    assert fed.names == ("f0001_41", "f0002_11", "f0010_02")
    for name in fed.names:
        X, y = fed.client(name)
        np.testing.assert_array_equal(X, written[name][0].reshape(len(y), 784))
        np.testing.assert_array_equal(y, written[name][1])
    assert datasets.femnist(root, writers=2).names == ("f0001_41", "f0002_11")
    assert datasets.femnist(root, writers=["f0010_02"], flat=False).X.shape == (1, 4, 28, 28)
    (root / "femnist").mkdir()
    (root / "fed_emnist_digitsonly_train.h5").rename(root / "femnist" / "fed_emnist_test.h5")
    assert datasets.femnist(root, test=True, digits_only=False).n_samples == 9


def test_missing_and_broken_femnist_files_are_named(tiny_femnist):
    root, _ = tiny_femnist
    with pytest.raises(FileNotFoundError, match=r"has no fed_emnist_digitsonly_test.h5, .*emnist.load_data"):
        datasets.femnist(root, test=True)
    with pytest.raises(ValueError, match=r"writers must be at most the 3 writers of .*, got 4"):
        datasets.femnist(root, writers=4)
    with pytest.raises(ValueError, match="writers must be a whole number >= 1, got 0"):
        datasets.femnist(root, writers=0)
    with pytest.raises(ValueError, match=r"has no writer 'f9'; it has 'f0001_41', 'f0002_11', 'f0010_02'"):
        datasets.femnist(root, writers=["f9"])
    with pytest.raises(TypeError, match="a number or a list of names, got the string 'f0001_41'"):
        datasets.femnist(root, writers="f0001_41")
    path = root / "fed_emnist_digitsonly_train.h5"
    whole = path.read_bytes()
    with h5py.File(path, "a") as file:
        del file["examples/f0002_11/label"]
        file["examples/f0002_11/label"] = np.zeros(5, "int32")
    with pytest.raises(ValueError, match=r"'f0002_11' has pixels of shape \(3, 28, 28\) and 5 labels"):
        datasets.femnist(root)
    with h5py.File(path, "a") as file:
        del file["examples/f0002_11/label"]
    with pytest.raises(ValueError, match="writer 'f0002_11' has no 'label'"):
        datasets.femnist(root)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="is not a whole HDF5 file"):
        datasets.femnist(root)
    h5py.File(path, "w").close()
    with pytest.raises(ValueError, match="expected is a group 'examples' with a group per writer"):
        datasets.femnist(root)


def test_a_missing_package_is_asked_for(tiny_femnist, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"Reading FEMNIST needs the package h5py; .*pip install 'cofed\[data\]'"):
        datasets.femnist(tiny_femnist[0])


def test_a_package_that_is_broken_says_so_itself(tmp_path, monkeypatch):
    (tmp_path / "halfway.py").write_text("import not_there_at_all")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        extras.imported("halfway", "This", "halfway", "data")
