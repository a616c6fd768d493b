"""Clients' data in: round trips, padding, types, splits, and a sentence for every bad input."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import cofed
from cofed.federation import Federation

FINITE = {
    "float32": st.floats(-1e6, 1e6, width=32),
    "float64": st.floats(-1e6, 1e6),
}


@st.composite
def pairs(draw):
    """Clients of different sizes, one dtype, any feature shape."""
    dtype = draw(st.sampled_from(["float32", "float64"]))
    shape = draw(st.sampled_from([(1,), (3,), (2, 2)]))
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    labels = draw(st.booleans())
    clients = []
    for n in sizes:
        X = draw(hnp.arrays(dtype, (n, *shape), elements=FINITE[dtype]))
        y = draw(hnp.arrays("int32" if labels else dtype, n, elements=st.integers(-5, 5)))
        clients.append((X, y))
    return clients


def two(**changes):
    """Two good clients, of which a test spoils one thing."""
    clients = {"A": (np.ones((3, 2)), np.zeros(3)), "B": (np.ones((2, 2)), np.zeros(2))}
    return {**clients, **changes}


def frame(**changes):
    columns = {"site": ["b", "a", "b", "c"], "age": [1.0, 2.0, 3.0, 4.0], "dose": [5.0, 6.0, 7.0, 8.0]}
    return pd.DataFrame({**columns, "cost": [0.5, 1.5, 2.5, 3.5], **changes})


class TestRoundTrips:
    @given(pairs())
    def test_pooled_and_client_give_back_exactly_what_went_in(self, clients):
        fed = Federation.from_arrays(clients)
        X, y = fed.pooled()
        np.testing.assert_array_equal(X, np.concatenate([X for X, _ in clients]))
        np.testing.assert_array_equal(y, np.concatenate([y for _, y in clients]))
        assert X.dtype == clients[0][0].dtype == fed.dtype
        assert y.dtype == clients[0][1].dtype
        for m, (X, y) in enumerate(clients):
            np.testing.assert_array_equal(fed.client(m)[0], X)
            np.testing.assert_array_equal(fed.client(str(m))[1], y)
        assert fed.n_clients == len(clients)
        assert fed.n_samples == sum(len(y) for _, y in clients)
        assert fed.feature_shape == clients[0][0].shape[1:]

    @given(pairs())
    def test_padding_repeats_the_first_sample_and_is_masked(self, clients):
        fed = Federation.from_arrays(clients)
        mask = np.asarray(fed.mask())
        np.testing.assert_array_equal(mask.sum(axis=1), [len(y) for _, y in clients])
        for padded in (np.asarray(fed.X), np.asarray(fed.y)):
            first = np.broadcast_to(padded[:, :1], padded.shape)
            np.testing.assert_array_equal(padded[~mask], first[~mask])
        # Real samples come first, so that a batch index below the size is always a real one.
        assert (np.diff(mask.astype(int), axis=1) <= 0).all()

    @given(pairs(), st.randoms(use_true_random=False))
    def test_permuting_clients_permutes_everything_alike(self, clients, random):
        names = [f"site{m}" for m in range(len(clients))]
        order = list(range(len(clients)))
        random.shuffle(order)
        fed = Federation.from_arrays(clients, names)
        moved = Federation.from_arrays([clients[m] for m in order], [names[m] for m in order])
        for a, b in [(fed.X, moved.X), (fed.y, moved.y), (fed.ids, moved.ids), (fed.sizes, moved.sizes)]:
            np.testing.assert_array_equal(np.asarray(a)[order], b)

    @given(pairs(), st.randoms(use_true_random=False))
    def test_a_frame_gives_the_same_federation_as_arrays(self, clients, random):
        clients = [(X.reshape(len(X), -1), y) for X, y in clients]
        rows = pd.concat(
            [pd.DataFrame(X).add_prefix("f").assign(y=y, site=f"s{m}") for m, (X, y) in enumerate(clients)]
        )
        # Rows of different clients interleaved, each client's own rows in order.
        turns = [m for m, (_, y) in enumerate(clients) for _ in y]
        random.shuffle(turns)
        queues = [iter(np.flatnonzero(rows["site"] == f"s{m}")) for m in range(len(clients))]
        mixed = rows.iloc[[next(queues[m]) for m in turns]].sample(frac=1, axis=1, random_state=0)
        features = [f"f{j}" for j in range(clients[0][0].shape[1])]
        fed = Federation.from_frame(mixed, target="y", client="site", features=features)
        direct = Federation.from_arrays(clients, [f"s{m}" for m in range(len(clients))], features)
        assert fed.names == direct.names
        for a, b in zip(jax.tree.leaves(fed), jax.tree.leaves(direct), strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype

    def test_it_is_a_pytree_that_jit_takes(self):
        fed = Federation.from_arrays(two())
        total = jax.jit(lambda f: jnp.sum(f.X * f.mask()[:, :, None].astype(f.dtype)))(fed)
        assert float(total) == 10.0
        assert len(jax.tree.leaves(fed)) == 4

    def test_lists_jax_arrays_and_series_are_welcome(self):
        fed = Federation.from_arrays(
            [
                ([[1.0], [2.0]], [3.0, 4.0]),
                (jnp.ones((1, 1)), jnp.ones(1)),
                (np.ones((1, 1)), pd.Series([2.0])),
            ]
        )
        assert fed.pooled()[1].tolist() == [3.0, 4.0, 1.0, 2.0]

    def test_several_targets(self):
        fed = Federation.from_arrays([(np.ones((2, 1)), np.ones((2, 3)))])
        assert fed.y.shape == (1, 2, 3)
        assert Federation.from_frame(frame(), target=["cost", "dose"], client="site").y.shape == (3, 2, 2)
        assert Federation.from_frame(frame(), target="cost", client="site").y.shape == (3, 2)

    def test_repr_is_short_also_inside_jit(self):
        fed = Federation.from_arrays(two())
        assert repr(fed) == (
            "Federation(2 clients, 5 samples (min 2, median 2.5, max 3 per client), 2 features, float64)"
        )
        seen = []
        jax.jit(lambda f: seen.append(repr(f)))(fed)
        assert seen == ["Federation(2 clients, 2 features, float64)"]
        images = Federation.from_arrays([(np.ones((1, 4, 5)), [1])])
        assert "features (4, 5)" in repr(images)
        assert images.n_features == 20


class TestNames:
    def test_ids_are_ranks_in_natural_order(self):
        names = ["10", "2", "b10", "b9", "1"]
        fed = Federation.from_arrays([(np.ones((1, 1)), [1.0])] * 5, names)
        assert fed.ids.tolist() == [2, 1, 4, 3, 0]
        assert fed.ids.dtype == fed.sizes.dtype == np.int32

    @given(st.lists(st.text(max_size=6), min_size=1, max_size=6, unique=True))
    def test_any_text_is_a_name(self, names):
        fed = Federation.from_arrays([(np.ones((1, 1)), [1.0])] * len(names), names)
        assert sorted(fed.ids.tolist()) == list(range(len(names)))

    def test_equal_numbers_written_differently_differ(self):
        a = Federation.from_arrays({name: ([[1.0]], [1.0]) for name in ["1", "01"]})
        b = Federation.from_arrays({name: ([[1.0]], [1.0]) for name in ["01", "1"]})
        assert a.ids.tolist() == b.ids.tolist()[::-1]

    def test_defaults_and_clients_of_a_frame_in_natural_order(self):
        assert Federation.from_arrays([([[1.0]], [1.0])] * 3).names == ("0", "1", "2")
        fed = Federation.from_frame(frame(site=[10, 2, 10, 1]), target="cost", client="site")
        assert fed.names == ("1", "2", "10")
        assert fed.client("10")[1].tolist() == [0.5, 2.5]

    @pytest.mark.parametrize(
        ("names", "words"),
        [
            (["A", "A"], "'A' is given twice"),
            (["A"], "1 names for 2 clients"),
            ([1, "1"], "'1' is given twice"),
        ],
    )
    def test_refused(self, names, words):
        with pytest.raises(ValueError, match=words):
            Federation.from_arrays(list(two().values()), names)

    def test_names_beside_a_mapping_are_refused(self):
        with pytest.raises(ValueError, match="leave names= out"):
            Federation.from_arrays(two(), names=["x", "y"])


class TestTypes:
    def test_float64_turns_on_64_bits_and_float32_does_not(self):
        jax.config.update("jax_enable_x64", False)
        try:
            fed = Federation.from_arrays([(np.ones((1, 1), "float32"), np.ones(1))])
            assert fed.X.dtype == fed.y.dtype == np.float32  # float targets follow the features
            assert not jax.config.jax_enable_x64
            fed = Federation.from_arrays([(np.ones((1, 1)), np.ones(1, "float32"))])
            assert fed.X.dtype == fed.y.dtype == np.float64
            assert jax.config.jax_enable_x64
        finally:
            jax.config.update("jax_enable_x64", True)

    def test_integer_features_become_float64_exactly(self):
        fed = Federation.from_arrays([([[2**40 + 1]], [1]), (np.array([[True]]), [1])])
        assert fed.dtype == np.float64
        assert fed.pooled()[0].tolist() == [[2.0**40 + 1], [1.0]]

    @pytest.mark.parametrize("y", [[True, False], np.array([1, 0], "uint8"), np.array([1, 0], "int64")])
    def test_labels_are_int32(self, y):
        fed = Federation.from_arrays([(np.ones((2, 1)), y)])
        assert fed.y.dtype == np.int32
        assert fed.pooled()[1].tolist() == [1, 0]

    def test_dtype_settles_a_mix(self):
        mix = [(np.ones((1, 1), "float32"), [1.0]), (np.ones((1, 1), int), [1.0]), (np.ones((1, 1)), [1.0])]
        assert Federation.from_arrays(mix, dtype="float32").dtype == np.float32
        assert Federation.from_arrays(mix, dtype=np.float64).dtype == np.float64

    @pytest.mark.parametrize(("a", "b"), list(itertools.permutations(["float32", "float64", "int64"], 2)))
    def test_a_mix_is_refused_naming_both_clients(self, a, b):
        with pytest.raises(ValueError, match=rf"'A' has {a} features and client 'B' has {b}.*dtype="):
            Federation.from_arrays({"A": (np.ones((1, 1), a), [1.0]), "B": (np.ones((1, 1), b), [1.0])})

    def test_a_mix_of_targets_is_refused(self):
        with pytest.raises(ValueError, match=r"'A' has float64 targets and client 'B' has int64.*whole numbers"):
            Federation.from_arrays(two(B=(np.ones((2, 2)), np.array([1, 2]))))

    @pytest.mark.parametrize("dtype", ["int32", "float16", "words"])
    def test_other_dtypes_are_refused(self, dtype):
        with pytest.raises(ValueError, match=f"'float32' or 'float64', got '{dtype}'"):
            Federation.from_arrays(two(), dtype=dtype)

    def test_half_precision_needs_a_word(self):
        half = [(np.ones((1, 1), "float16"), [1.0])]
        with pytest.raises(ValueError, match=r"float16; pass dtype="):
            Federation.from_arrays(half)
        assert Federation.from_arrays(half, dtype="float32").dtype == np.float32

    def test_numbers_that_do_not_fit_are_refused(self):
        with pytest.raises(ValueError, match=r"'A': X holds numbers too large for float32"):
            Federation.from_arrays({"A": ([[1e300]], [1.0])}, dtype="float32")
        with pytest.raises(ValueError, match=r"'A': y holds numbers too large for float32"):
            Federation.from_arrays({"A": ([[1.0]], [1e300])}, dtype="float32")
        with pytest.raises(ValueError, match="'A': y holds whole numbers beyond 32 bits"):
            Federation.from_arrays({"A": ([[1.0]], [2**31])})


class TestColumns:
    def test_columns_become_feature_names_and_are_reordered(self):
        a = pd.DataFrame({"age": [1.0], "dose": [2.0]})
        fed = Federation.from_arrays({"A": (a, [1.0]), "B": (a[["dose", "age"]] * 10, [1.0])})
        assert fed.feature_names == ("age", "dose")
        assert fed.pooled()[0].tolist() == [[1.0, 2.0], [10.0, 20.0]]
        turned = Federation.from_arrays({"A": (a, [1.0])}, feature_names=["dose", "age"])
        assert turned.pooled()[0].tolist() == [[2.0, 1.0]]

    def test_other_columns_are_refused_naming_the_client(self):
        a, b = pd.DataFrame({"age": [1.0], "dose": [2.0]}), pd.DataFrame({"age": [1.0], "size": [2.0]})
        with pytest.raises(ValueError, match=r"'B': .*'A': it lacks 'dose' and has besides 'size'"):
            Federation.from_arrays({"A": (a, [1.0]), "B": (b, [1.0])})
        with pytest.raises(ValueError, match=r"'A' has named columns, but client 'B' has none"):
            Federation.from_arrays({"A": (a, [1.0]), "B": (np.ones((1, 2)), [1.0])})
        with pytest.raises(ValueError, match=r"'A' has two columns called 'age'"):
            Federation.from_arrays({"A": (pd.DataFrame([[1.0, 2.0]], columns=["age", "age"]), [1.0])})

    @pytest.mark.parametrize(
        "values", [["x", "y"], pd.Categorical(["x", "y"]), pd.to_datetime(["2020-01-01"] * 2), [1 + 1j, 1j]]
    )
    def test_a_column_without_numbers_is_refused_by_name(self, values):
        df = pd.DataFrame({"age": [1.0, 2.0], "sex": values})
        with pytest.raises(TypeError, match=r"'A': column 'sex' holds .*encode"):
            Federation.from_arrays({"A": (df, [1.0, 1.0])})
        with pytest.raises(TypeError, match=r"column 'sex' holds .*encode"):
            Federation.from_frame(df.assign(y=1.0, site="A"), target="y", client="site")

    def test_booleans_and_nullable_columns_are_numbers(self):
        df = pd.DataFrame(
            {"age": pd.array([1, 2], "Int64"), "ill": [True, False], "dose": np.array([0.5, 1.5], "float32")}
        )
        fed = Federation.from_arrays([(df, [1.0, 1.0])])
        assert fed.pooled()[0].tolist() == [[1.0, 1.0, 0.5], [2.0, 0.0, 1.5]]
        gap = df.assign(age=pd.array([1, None], "Int64"))
        with pytest.raises(ValueError, match=r"'0': X, column 'age', row 1 is missing"):
            Federation.from_arrays([(gap, [1.0, 1.0])])

    def test_the_number_of_feature_names_must_fit(self):
        with pytest.raises(ValueError, match="feature_names holds 1 names, but X has 2 features"):
            Federation.from_arrays(two(), feature_names=["age"])


BAD = np.array([[1.0, 2.0], [3.0, np.nan]])


class TestRefusals:
    @pytest.mark.parametrize(
        ("clients", "words"),
        [
            ([], "at least one client, got none"),
            ({}, "at least one client, got none"),
            (two(B=(np.ones((0, 2)), np.ones(0))), "'B' is empty"),
            (two(B=(np.ones((2, 2)), np.ones(3))), "'B': X has 2 samples, but y has 3"),
            (two(B=(np.ones((2, 5)), np.ones(2))), "'B' has 5 features, but client 'A' has 2 features"),
            (two(B=(np.ones((2, 2, 2)), np.ones(2))), r"'B' has features of shape \(2, 2\)"),
            (two(B=(BAD, np.ones(2))), r"'B': X, column 1, row 1 is missing \(NaN\)"),
            (two(B=(np.array([[-np.inf, 1.0]]), np.ones(1))), "'B': X, column 0, row 0 is infinite"),
            (two(B=(np.ones((2, 2)), np.array([0, np.inf]))), "'B': y, row 1 is infinite"),
            (two(B=(np.ones(2), np.ones(2))), r"'B': X has shape \(2,\).*reshape"),
            (two(B=(np.ones((2, 2)), np.ones((2, 1, 1)))), r"'B': y has shape \(2, 1, 1\), expected"),
            (two(B=(np.ones((2, 2)), np.ones((2, 1)))), r"'B': y has shape \(2, 1\).*same number of targets"),
            (two(B=([[1.0], [2.0, 3.0]], [1.0, 2.0])), "'B': X is not a regular array"),
            ([(np.ones((1, 0)), [1.0])], "X has no features"),
        ],
    )
    def test_values(self, clients, words):
        with pytest.raises(ValueError, match=words):
            Federation.from_arrays(clients)

    def test_the_column_of_a_bad_value_is_named(self):
        with pytest.raises(ValueError, match="'0': X, column 'dose', row 1"):
            Federation.from_arrays([(BAD, [1.0, 2.0])], feature_names=["age", "dose"])
        image = np.ones((2, 3, 3))
        image[1, 2, 0] = np.inf
        with pytest.raises(ValueError, match=r"'0': X, column \(2, 0\), row 1 is infinite"):
            Federation.from_arrays([(image, [1.0, 2.0])])

    @pytest.mark.parametrize(
        ("clients", "words"),
        [
            (3, "list of .* pairs or a mapping .*int"),
            ("AB", "list of .* pairs or a mapping .*str"),
            (np.ones((2, 3)), r"client '0': expected a pair \(X, y\), got .*ndarray"),
            ([(np.ones((1, 1)),)], r"client '0': expected a pair \(X, y\)"),
            ({"A": (np.array([["x"]]), [1.0])}, "'A': X holds .* values, expected numbers"),
            ({"A": (np.ones((1, 1)), ["yes"])}, "'A': y holds .* values, expected numbers"),
        ],
    )
    def test_kinds(self, clients, words):
        with pytest.raises(TypeError, match=words):
            Federation.from_arrays(clients)


class TestFrames:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (
                {"target": "price", "client": "site"},
                "no target column 'price'; the columns are 'site', 'age'",
            ),
            ({"target": "cost", "client": "clinic"}, "no client column 'clinic'"),
            ({"target": "cost", "client": "site", "features": ["age", "size"]}, "no feature column 'size'"),
            ({"target": "cost", "client": "site", "features": ["cost"]}, "must be different columns"),
            ({"target": "cost", "client": "site", "features": []}, "no feature column is left"),
            (
                {"target": "cost", "client": "site", "clients": ["a", "z"]},
                "client 'z' not found in column 'site'",
            ),
        ],
    )
    def test_columns_refused(self, arguments, words):
        with pytest.raises(ValueError, match=words):
            Federation.from_frame(frame(), **arguments)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"site": ["b", None, None, "c"]}, "'site' names the client, but 2 of 4 rows"),
            (
                {"age": [np.nan, 2.0, np.nan, np.nan]},
                r"'b' has 2 missing values in column 'age' \(3 over all",
            ),
            ({"cost": [1.0, np.nan, 1.0, 1.0]}, "'a' has 1 missing values in column 'cost'"),
            ({"age": pd.array([1, 2, None, 4], "Int64")}, "'b' has 1 missing values in column 'age'"),
            ({"age": [1.0, 2.0, np.inf, 4.0]}, "'b': X, column 'age', row 1 is infinite"),
            ({"site": [1, "1", 2, 2]}, "'1' is given twice"),
        ],
    )
    def test_values_refused(self, changes, words):
        with pytest.raises(ValueError, match=words):
            Federation.from_frame(frame(**changes), target="cost", client="site")

    def test_other_refusals(self):
        with pytest.raises(ValueError, match="no rows"):
            Federation.from_frame(frame().iloc[:0], target="cost", client="site")
        with pytest.raises(TypeError, match=r"pandas DataFrame, got .*dict"):
            Federation.from_frame({"cost": [1.0]}, target="cost", client="site")
        with pytest.raises(TypeError, match="list of columns, got the string 'age'"):
            Federation.from_frame(frame(), target="cost", client="site", features="age")
        doubled = pd.concat([frame(), frame()[["age"]]], axis=1)
        with pytest.raises(ValueError, match="'age' is there 2 times"):
            Federation.from_frame(doubled, target="cost", client="site")

    def test_expected_clients_are_taken_in_their_order_and_others_left_out(self):
        # A gap in the rows of a client that is not taken does no harm.
        df = frame(age=[1.0, 2.0, 3.0, np.nan])
        fed = Federation.from_frame(df, target="cost", client="site", clients=["b", "a"])
        assert fed.names == ("b", "a")
        assert fed.pooled()[1].tolist() == [0.5, 2.5, 1.5]

    def test_parquet_file_folder_and_hive_folder(self, tmp_path):
        direct = Federation.from_frame(frame(), target="cost", client="site")
        frame().to_parquet(tmp_path / "all.parquet")
        folder, hive = tmp_path / "parts", tmp_path / "hive"
        folder.mkdir()
        frame().iloc[:2].to_parquet(folder / "1.parquet")
        frame().iloc[2:].to_parquet(folder / "2.parquet")
        (folder / "notes.txt").write_text("not data")
        frame().to_parquet(hive, partition_cols=["site"])
        for path in [tmp_path / "all.parquet", str(folder), hive]:
            fed = Federation.from_parquet(path, target="cost", client="site")
            assert (fed.names, fed.feature_names) == (direct.names, direct.feature_names)
            for a, b in zip(jax.tree.leaves(fed), jax.tree.leaves(direct), strict=True):
                np.testing.assert_array_equal(a, b)

    def test_parquet_refusals(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"no file or folder .*nowhere"):
            Federation.from_parquet(tmp_path / "nowhere", target="cost", client="site")
        with pytest.raises(ValueError, match=r"holds no file that ends in \.parquet"):
            Federation.from_parquet(tmp_path, target="cost", client="site")
        fake = tmp_path / "fake.parquet"
        fake.write_text("this is text, and not parquet at all")
        with pytest.raises(ValueError, match=r"fake\.parquet could not be read as parquet"):
            Federation.from_parquet(fake, target="cost", client="site")
        frame().to_parquet(fake)
        with pytest.raises(ValueError, match="no target column 'price'"):
            Federation.from_parquet(fake, target="price", client="site")

    def test_csv(self, tmp_path):
        path = tmp_path / "data.csv"
        frame(site=["007", "8", "007", "8"]).to_csv(path, index=False)
        fed = Federation.from_csv(path, target="cost", client="site")
        assert fed.names == ("007", "8")
        assert fed.client("007")[1].tolist() == [0.5, 2.5]
        with pytest.raises(FileNotFoundError, match="no file or folder"):
            Federation.from_csv(tmp_path / "nowhere.csv", target="cost", client="site")
        with pytest.raises(ValueError, match="no client column 'clinic'"):
            Federation.from_csv(path, target="cost", client="clinic")

    def test_many_interleaved_rows_keep_their_order(self):
        rng = np.random.default_rng(0)
        df = pd.DataFrame(rng.standard_normal((50_000, 3))).add_prefix("f")
        df = df.assign(y=rng.standard_normal(50_000), site=rng.integers(0, 300, 50_000))
        fed = Federation.from_frame(df, target="y", client="site")
        assert fed.n_samples == 50_000
        for site in (0, 17, 299):
            mine = df[df["site"] == site]
            np.testing.assert_array_equal(fed.client(str(site))[1], mine["y"])
            np.testing.assert_array_equal(fed.client(str(site))[0], mine[["f0", "f1", "f2"]])


class TestWeights:
    def test_kinds(self):
        fed = Federation.from_arrays({"A": (np.ones((3, 1)), np.ones(3)), "B": (np.ones((1, 1)), np.ones(1))})
        assert fed.weights().tolist() == [0.5, 0.5]
        assert fed.weights("samples").tolist() == [0.75, 0.25]
        assert fed.weights([0, 2]).tolist() == [0.0, 1.0]
        assert fed.weights(np.array([1.0, 3.0])).tolist() == [0.25, 0.75]

    def test_dtype_follows_the_data(self):
        fed = Federation.from_arrays([(np.ones((1, 1), "float32"), [1])])
        assert fed.weights("samples").dtype == np.float32

    @pytest.mark.parametrize(
        ("kind", "words"),
        [
            ("size", "'uniform', 'samples' or one number per client, got 'size'"),
            ([1.0], r"\(2 clients\), got \[1.0\]"),
            (3.0, "one number per client"),
            ([1.0, -1.0], "nonnegative"),
            ([0.0, 0.0], "positive sum"),
            ([1.0, np.nan], "finite"),
            (None, "one number per client"),
        ],
    )
    def test_refused(self, kind, words):
        with pytest.raises(ValueError, match=words):
            Federation.from_arrays(two()).weights(kind)


def numbered(sizes, names=None):
    """Every sample carries its own number, so that nothing can be lost or doubled unseen."""
    ends = np.cumsum(sizes)
    return Federation.from_arrays(
        [(np.arange(e - n, e, dtype=float)[:, None], np.arange(e - n, e)) for n, e in zip(sizes, ends, strict=True)],
        names,
        ["number"],
    )


class TestSplit:
    @given(
        st.lists(st.integers(1, 9), min_size=1, max_size=5).filter(lambda s: max(s) > 1),
        st.floats(0.01, 0.99),
        st.integers(0, 10**9),
    )
    def test_every_sample_is_on_one_side_and_every_client_on_both(self, sizes, share, seed):
        fed = numbered(sizes)
        train, test = fed.split(share, seed)
        both = np.concatenate([train.pooled()[1], test.pooled()[1]])
        assert sorted(both.tolist()) == list(range(sum(sizes)))
        assert train.names == fed.names
        assert test.names == tuple(str(m) for m, n in enumerate(sizes) if n > 1)
        assert train.feature_names == test.feature_names == ("number",)
        for name in test.names:
            n, held = sizes[int(name)], len(test.client(name)[1])
            assert held == min(max(round(share * n), 1), n - 1)
            assert set(test.client(name)[1]) | set(train.client(name)[1]) == set(fed.client(name)[1])
        np.testing.assert_array_equal(test.pooled()[0][:, 0], test.pooled()[1])  # X and y stay together

    def test_the_draw_follows_the_name_and_the_seed(self):
        fed = numbered([20, 20, 20], ["a", "b", "c"])
        held = fed.split(0.3, seed=1)[1]
        alone = fed.select(["c"]).split(0.3, seed=1)[1]
        np.testing.assert_array_equal(held.client("c")[1], alone.client("c")[1])
        assert held.client("c")[1].tolist() != fed.split(0.3, seed=2)[1].client("c")[1].tolist()
        assert (held.client("a")[1] + 40).tolist() != held.client("c")[1].tolist()

    def test_the_dtype_stays(self):
        fed = Federation.from_arrays([(np.ones((4, 1), "float32"), [0, 1, 0, 1])])
        for side in fed.split():
            assert side.dtype == np.float32
            assert side.y.dtype == np.int32

    @given(
        st.lists(st.integers(0, 4), min_size=2, max_size=12).filter(lambda g: len(set(g)) > 1),
        st.integers(0, 99),
    )
    def test_groups_stay_together(self, persons, seed):
        fed = numbered([len(persons)], ["A"])
        sides = fed.split(0.4, seed, groups={"A": persons})
        seen = [{persons[i] for i in side.pooled()[1]} for side in sides]
        assert not seen[0] & seen[1]
        assert seen[0] | seen[1] == set(persons)
        assert len(seen[1]) == min(max(round(0.4 * len(set(persons))), 1), len(set(persons)) - 1)

    def test_a_client_with_one_group_keeps_it_in_train(self):
        train, test = numbered([3, 4]).split(0.5, groups=[["p", "p", "p"], ["p", "p", "q", "q"]])
        assert test.names == ("1",)
        assert len(train.client("0")[1]) == 3
        assert len(train.client("1")[1]) == 2

    @pytest.mark.parametrize("share", [0, 1, -0.5, 1.5])
    def test_share_refused(self, share):
        with pytest.raises(ValueError, match="between 0 and 1"):
            numbered([4]).split(float(share))

    def test_refused(self):
        with pytest.raises(ValueError, match="nothing is left to test on"):
            numbered([1, 1]).split()
        with pytest.raises(ValueError, match="seed must be a whole number >= 0, got -1"):
            numbered([4]).split(seed=-1)
        with pytest.raises(ValueError, match=r"one array per client \(2\), got 1"):
            numbered([2, 2]).split(groups=[[1, 2]])
        with pytest.raises(ValueError, match=r"client '1' has 2 samples, but its groups have shape \(3,\)"):
            numbered([2, 2]).split(groups=[[1, 2], [1, 2, 3]])
        with pytest.raises(ValueError, match="groups lacks client '1'"):
            numbered([2, 2]).split(groups={"0": [1, 2]})


class TestSelect:
    def test_order_and_content(self):
        fed = numbered([2, 3, 1], ["a", "b", "c"])
        few = fed.select(["c", "a"])
        assert few.names == ("c", "a")
        assert few.ids.tolist() == [1, 0]
        assert few.pooled()[1].tolist() == [5, 0, 1]
        assert few.X.shape == (2, 2, 1)

    @pytest.mark.parametrize(
        ("which", "error", "words"),
        [
            ("z", ValueError, "no client 'z'; there are 'a', 'b'"),
            (2, ValueError, "position 2; there are 2 clients"),
            (-3, ValueError, "position -3"),
            (1.0, TypeError, "name or position"),
            (True, TypeError, "name or position"),
        ],
    )
    def test_an_unknown_client_is_refused(self, which, error, words):
        fed = numbered([1, 1], ["a", "b"])
        with pytest.raises(error, match=words):
            fed.client(which)
        with pytest.raises(error, match=words):
            fed.select([which])

    def test_long_lists_are_cut(self):
        with pytest.raises(ValueError, match="'9' and 90 more"):
            numbered([1] * 100).client("z")

    def test_refused(self):
        with pytest.raises(TypeError, match="list of client names, got the string 'a'"):
            numbered([1], ["a"]).select("a")
        with pytest.raises(ValueError, match="at least one client"):
            numbered([1]).select([])


def test_rows_are_matched_by_position_with_a_warning_where_pandas_would_match_them_otherwise():
    X = pd.DataFrame({"x": [1.0, 2.0, 3.0]}, index=["a", "b", "c"])
    y = pd.Series([1.0, 2.0, 3.0], index=["c", "b", "a"])
    with pytest.warns(UserWarning, match="client '0': X and y have the same row labels in another order"):
        fed = Federation.from_arrays([(X, y)])
    assert fed.client(0)[1].tolist() == [1.0, 2.0, 3.0]
    with pytest.warns(UserWarning, match="iid: X and y have the same row labels in another order"):
        cofed.partition.iid(X, y, clients=1)
    Federation.from_arrays([(X, y.set_axis([7, 8, 9]))])  # labels that say nothing about one another
    table = pd.DataFrame({"site": ["s", "t"], "x": [1.0, 2.0], "y": [3.0, 4.0]}, index=[1, 0])
    assert Federation.from_frame(table, "y", "site").client("s")[1].tolist() == [3.0]
