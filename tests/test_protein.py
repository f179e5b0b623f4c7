"""Proteins: frames, pairs, splits, the shipped file, and every format read back from disk."""

import gzip
import json
import re
from importlib.resources import files

import gemmi
import numpy as np
import pytest
import torch

import inbounds as ib
from inbounds.data.backbone import Chain, Pool, broken, frames, neighbours, protein, shipped_chains, shipped_provenance
from inbounds.data.proteinnet import read_proteinnet
from inbounds.data.structures import load_chains, read_folder, read_structure

M = ib.SE(3)
SMALL = {"train": 300, "val": 100, "test": 100}


@pytest.fixture(scope="module")
def shipped():
    return shipped_chains()


@pytest.fixture(scope="module")
def pairs():
    return protein()


def present(atoms):
    """Residues with all three atoms."""
    return atoms[torch.isfinite(atoms).flatten(1).all(1)]


def same(a, b, tol=1e-9):
    torch.testing.assert_close(a.double(), b.double(), rtol=0, atol=tol, equal_nan=True)


# --- frames ----------------------------------------------------------------------------------------------


def test_frames_are_rigid_motions(shipped):
    T = frames(present(torch.cat([c.atoms for c in shipped])))
    assert T.dtype == torch.float64
    assert M.violation(T).max() < 1e-14


@pytest.mark.parametrize("batch", [(), (1,), (3, 1, 2)])
def test_frames_put_each_residue_in_place(shipped, batch):
    """In its own frame CA is the origin, C is on the positive x axis, N in the upper half of the xy plane."""
    atoms = present(shipped[0].atoms)[: max(1, int(np.prod(batch)))].reshape(*batch, 3, 3)
    T = frames(atoms)
    local = M.inverse(T)[..., None, :3, :3] @ atoms[..., None] + M.inverse(T)[..., None, :3, 3:]
    n, ca, c = local[..., 0].unbind(-2)
    assert T.shape == (*batch, 4, 4)
    assert ca.abs().max() < 1e-12
    assert c[..., 1:].abs().max() < 1e-12 and (c[..., 0] > 1.2).all()
    assert n[..., 2].abs().max() < 1e-12 and (n[..., 1] > 0.5).all()


def test_frames_move_with_the_protein(shipped):
    atoms = present(shipped[3].atoms)
    g = M.sample(generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    same(frames(atoms @ g[:3, :3].mT + g[:3, 3]), g @ frames(atoms), tol=1e-11)


def test_frames_in_float64_whatever_comes(shipped):
    atoms = present(shipped[0].atoms).float()
    assert M.violation(frames(atoms)).max() < 1e-14


def line_of(residues):
    """An ideal straight chain: every bond length right, C(i)-N(i+1) 1.33 Angstrom."""
    residue = torch.tensor([[0.0, 0, 0], [1.2, 0.83, 0], [2.4, -0.1, 0]], dtype=torch.float64)
    return residue + torch.arange(residues)[:, None, None] * torch.tensor([3.73, -0.1, 0], dtype=torch.float64)


def test_broken_residues_have_one_reason_each():
    atoms = line_of(6)
    atoms[1, 2] = torch.nan
    atoms[2, 0] = atoms[2, 1] + 2.0
    atoms[3] = torch.tensor([[0.0, 0, 0], [1.5, 0, 0], [3, 0.01, 0]])
    atoms[4] = 0.0
    found = {reason: mask.nonzero()[:, 0].tolist() for reason, mask in broken(Chain("a", atoms)).items()}
    assert found == {"missing atom": [1], "bond length": [2, 4], "collinear": [3]}


def test_neighbours_are_bonded():
    atoms = line_of(7)
    atoms[3:] += 5.0  # a gap that the record does not show
    atoms[5, 1] = torch.nan
    chain = Chain("a", atoms)
    assert neighbours(chain).tolist() == [0, 1, 3]
    assert neighbours(chain, "mask").tolist() == [0, 1, 2, 3]
    assert neighbours(Chain("short", atoms[:1])).tolist() == []
    with pytest.raises(ValueError, match=r"one of 'distance', 'mask', got 'number'"):
        neighbours(chain, "number")


def test_chain_says_what_it_wants():
    assert Chain("a", line_of(2)).group == "a"
    for atoms in (line_of(2).flatten(1), line_of(2).long(), line_of(2)[0]):
        with pytest.raises(ValueError, match=r"Chain a asked for .*atoms of shape .*got "):
            Chain("a", atoms)


# --- the shipped file ------------------------------------------------------------------------------------


def test_shipped_file_is_small_and_large(shipped):
    file = files("inbounds.data") / "backbones.npz"
    assert len(file.read_bytes()) <= 3_000_000
    assert sum(len(neighbours(c)) for c in shipped) >= 20_000
    assert Pool.of(shipped, "distance").pairs == sum(row["pairs"] for row in shipped_provenance())


def test_shipped_chains_have_a_provenance(shipped):
    rows = shipped_provenance()
    for row, chain in zip(rows, shipped, strict=True):
        assert (row["id"], row["group"], row["residues"]) == (chain.id, chain.group, len(chain.atoms))
        assert row["wheel"] in ("bioemu-benchmarks==0.0.2.post1", "dockstring==0.3.4")
        assert row["file"].endswith((".pdb", ".pdbqt")) and row["licence"]
        assert row["pdb"] in row["file"] and (row["pdb"] or row["group"] in row["file"])
    assert len({r["id"] for r in rows}) == len({r["group"] for r in rows}) == len({r["file"] for r in rows}) == len(rows)
    page = (files("inbounds.data") / "backbones.md").read_text(encoding="utf-8")
    assert f"{len(rows)} protein chains" in page and f"{sum(r['pairs'] for r in rows):,} pairs" in page


def test_shipped_file_holds_plain_arrays_and_the_licences():
    with np.load(str(files("inbounds.data") / "backbones.npz"), allow_pickle=False) as table:
        assert {name: table[name].dtype.kind for name in table} == {
            "steps": "i",
            "missing": "b",
            "provenance": "u",
            "licences": "u",
        }
        texts = json.loads(table["licences"].tobytes())
    assert "Apache License" in texts["dockstring==0.3.4"]["LICENSE"]
    assert "CC0" in texts["bioemu-benchmarks==0.0.2.post1"]["NOTICE"]


def test_shipped_geometry_is_real(shipped):
    """N-CA 1.46, CA-C 1.52 Angstrom, and positions to 0.001."""
    atoms = present(torch.cat([c.atoms for c in shipped]))
    n, ca, c = atoms.unbind(-2)
    assert abs((n - ca).norm(dim=-1).median() - 1.46) < 0.01
    assert abs((c - ca).norm(dim=-1).median() - 1.525) < 0.01
    assert (atoms * 1000 - (atoms * 1000).round()).abs().max() < 1e-6


# --- pairs -----------------------------------------------------------------------------------------------


def test_pairs_by_default(pairs):
    assert (pairs.name, repr(pairs.set), pairs.tokens, pairs.synthetic) == ("protein", "SE(3)", (), False)
    assert {name: len(pairs[name][0]) for name in pairs.splits} == {"train": 4000, "val": 800, "test": 1200}
    assert pairs.x.shape == pairs.y.shape == (6000, 4, 4)
    assert pairs.x.dtype == pairs.y.dtype == torch.float32


def test_pairs_are_on_the_set(pairs):
    for points in (pairs.x, pairs.y):
        assert M.violation(points.double()).max() <= 1e-6
        assert (points[:, 3] == torch.tensor([0.0, 0, 0, 1])).all()


def test_pairs_in_their_own_units(pairs, shipped):
    """Unscaled, y is the residue bonded to x: CA-CA is 3.8 Angstrom, 2.9 for the few cis bonds."""
    x, y = pairs.unscaled(pairs.x.double()), pairs.unscaled(pairs.y.double())
    far = (x - y)[:, :3, 3].norm(dim=-1)
    assert abs(far.median() - 3.8) < 0.03
    assert ((far > 3.6) & (far < 4.0)).double().mean() > 0.99
    assert (far > 2.6).all() and (far < 4.3).all()
    train = pairs["train"][0][:, :3, 3]
    assert abs(train.std() - 1) < 1e-5 and train.mean().abs() > 0.01  # scaled, not centred
    atoms = torch.cat([c.atoms for c in shipped])
    known = {place: k for k, place in enumerate(places(atoms[:, 1]))}
    first, second = ([known[place] for place in places(points[:, :3, 3])] for points in (x, y))
    assert [k + 1 for k in first] == second
    same(frames(atoms[first]), x, tol=1e-4)


def places(ca):
    """Positions in whole 0.001 Angstrom, which survive float32."""
    return [tuple(row) for row in (ca.nan_to_num() * 1000).round().long().tolist()]


def groups_by_split(pairs, chains):
    """The proteins of each split, read off the positions alone."""
    home = {place: c.group for c in chains for place in places(c.atoms[:, 1])}
    points = {name: pairs.unscaled(torch.cat(pairs[name]).double())[:, :3, 3] for name in pairs.splits}
    return {name: {home[place] for place in places(ca)} for name, ca in points.items()}


@pytest.mark.parametrize("seed", [0, 1])
def test_no_protein_is_in_two_splits(shipped, seed):
    split = groups_by_split(protein(seed=seed), shipped)
    assert min(map(len, split.values())) >= 10
    assert sum(map(len, split.values())) == len(set().union(*split.values()))


def test_chains_of_one_group_stay_together(shipped):
    chains = [Chain(c.id, c.atoms, f"family {k // 4}") for k, c in enumerate(shipped[:40])]
    split = groups_by_split(protein(SMALL, chains=chains), chains)
    assert sum(map(len, split.values())) == len(set().union(*split.values())) == 10


def test_no_pair_twice(pairs):
    assert len(torch.unique(pairs.x.flatten(1), dim=0)) == len(pairs.x)


def test_seed_decides(pairs):
    assert protein().fingerprint() == pairs.fingerprint()
    assert protein(seed=1).fingerprint() != pairs.fingerprint()


def test_seed_decides_which_proteins_are_tested(shipped):
    zero, one = (groups_by_split(protein(seed=seed), shipped)["test"] for seed in (0, 1))
    assert len(zero & one) < len(zero) / 2


def test_splits_do_not_depend_on_the_order_of_chains(shipped):
    """Which proteins go where depends on their names, not on the order in which they arrive."""
    a, b = (groups_by_split(protein(SMALL, chains=chains), shipped) for chains in (shipped[:30], shipped[:30][::-1]))
    assert a == b


@pytest.mark.parametrize("sizes", [{"train": 28_000, "val": 4_000, "test": 6_000}, {"train": 5, "val": 1, "test": 1}])
def test_sizes_on_request(sizes):
    p = protein(sizes)
    assert {name: len(p[name][0]) for name in p.splits} == sizes


def test_too_many_asked(shipped):
    total = sum(len(neighbours(c)) for c in shipped)
    with pytest.raises(
        ValueError, match=rf"train 50000, val 800, test 1200.*there are {total} in {len(shipped)} proteins.*smaller"
    ):
        protein({"train": 50_000})
    with pytest.raises(ValueError, match="there are 0 in 0 proteins"):
        protein(chains=[])
    with pytest.raises(TypeError, match=r"got a path\. Write chains=load_chains\('folder'\)"):
        protein(chains="folder")  # pyright: ignore[reportArgumentType]


def test_notes_say_what_happened(pairs, shipped):
    notes = pairs.notes
    assert f"{len(shipped)} chains, {sum(len(c.atoms) for c in shipped)} residues" in notes["chains"]
    lost = {reason: sum(int(broken(c)[reason].sum()) for c in shipped) for reason in broken(shipped[0])}
    assert notes["dropped residues"] == ", ".join(f"{reason} {n}" for reason, n in lost.items())
    assert notes["bonded"].startswith("distance: C(i) and N(i+1) are 1.0 to 1.7")
    mean, most = map(float, re.findall(r"\d\.\de-\d+", notes["projection"]))
    assert 0 < mean <= most < 1e-14
    assert "backbones.npz" in notes["source"]
    other = protein(SMALL, chains=iter(shipped), bonded="mask").notes
    assert other["bonded"].startswith("mask") and other["source"] == "chains given by the caller"
    assert int(re.findall(r"(\d+) pairs", other["chains"])[0]) > int(re.findall(r"(\d+) pairs", notes["chains"])[0])


# --- PDB and mmCIF ---------------------------------------------------------------------------------------


def structure_of(chains, name="ALA"):
    """Chains A, B, .. with the given atoms, NaN left out, as alanines that end in TER."""
    st = gemmi.Structure()
    model = gemmi.Model(1)
    for letter, chain in zip("ABCDEFGH", chains, strict=False):
        out = gemmi.Chain(letter)
        for k, residue in enumerate(chain.atoms):
            out.add_residue(residue_of(residue, k + 1, name))
        model.add_chain(out)
    st.add_model(model)
    st.setup_entities()
    st.assign_label_seq_id()
    return st


def residue_of(positions, number, name, altloc="\0", occ=1.0):
    r = gemmi.Residue()
    r.name, r.seqid = name, gemmi.SeqId(number, " ")
    for label, pos in zip(("N", "CA", "C"), positions.tolist(), strict=True):
        if pos[0] == pos[0]:
            r.add_atom(atom(label, pos, altloc, occ))
    return r


def atom(label, pos, altloc="\0", occ=1.0):
    a = gemmi.Atom()
    a.name, a.element, a.occ, a.altloc, a.pos = label, gemmi.Element(label[0]), occ, altloc, gemmi.Position(*pos)
    return a


def ligand(number, name, label, element):
    r = gemmi.Residue()
    r.name, r.seqid = name, gemmi.SeqId(number, " ")
    r.add_atom(atom(label, [1.0, 2.0, 3.0]))
    r[0].element = gemmi.Element(element)
    return r


def write(st, path):
    text = st.make_mmcif_document().as_string() if "cif" in path.name else st.make_pdb_string()
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.fixture
def two(shipped):
    """Two chains, the first with a missing atom in the middle."""
    atoms = shipped[0].atoms[:40].clone()
    atoms[7, 2] = torch.nan
    return [Chain("first", atoms), Chain("second", shipped[1].atoms[:30])]


@pytest.mark.parametrize("name", ["x.pdb", "x.ent", "x.pdb.gz", "x.cif", "x.cif.gz", "x.mmcif", "X.PDB"])
def test_structures_read_back(tmp_path, two, name):
    for chains in (read_structure, load_chains):
        back = chains(write(structure_of(two), tmp_path / name))
        assert [c.id for c in back] == [f"{name[0]}_A", f"{name[0]}_B"]
        assert {c.group for c in back} == {name[0]}
        for chain, was in zip(back, two, strict=True):
            same(chain.atoms, was.atoms)


@pytest.mark.parametrize("name", ["x.pdb", "x.cif"])
def test_only_protein_of_the_first_model(tmp_path, two, name):
    """Not the second model, nor water, a calcium ion (an atom called CA), a sugar, a free amino acid."""
    st = structure_of(two)
    other = structure_of([Chain(c.id, c.atoms + 1.0) for c in two])[0]
    other.num = 2
    free = residue_of(two[0].atoms[0] + 30.0, 903, "GLU")
    ligands = [("HOH", "O", "O"), ("CA", "CA", "Ca"), ("GLC", "C1", "C")]
    for r in (*(ligand(900 + k, *what) for k, what in enumerate(ligands)), free):
        r.het_flag, r.entity_type = "H", gemmi.EntityType.Water if r.name == "HOH" else gemmi.EntityType.NonPolymer
        st[0]["A"].add_residue(r)
    st.add_model(other)
    st.setup_entities()
    back = read_structure(write(st, tmp_path / name))
    assert [len(c.atoms) for c in back] == [40, 30]
    same(back[0].atoms, two[0].atoms)


@pytest.mark.parametrize("name", ["x.pdb", "x.cif"])
@pytest.mark.parametrize(("occupancies", "shift"), [((0.4, 0.6), 0.1), ((0.6, 0.4), 0.0), ((0.5, 0.5), 0.0)])
def test_one_conformation(tmp_path, two, name, occupancies, shift):
    """The highest occupancy, the first among equals; all three atoms of the same."""
    st = structure_of(two)
    place = st[0]["A"][3]
    r = residue_of(two[0].atoms[3], 4, "ALA", "A", occupancies[0])
    for a in residue_of(two[0].atoms[3] + 0.1, 4, "ALA", "B", occupancies[1]):
        r.add_atom(a)
    while len(place):
        del place[0]
    for a in r:
        place.add_atom(a)
    back = read_structure(write(st, tmp_path / name))[0].atoms
    assert len(back) == 40
    same(back[3], two[0].atoms[3] + shift)
    same(back[4:], two[0].atoms[4:])


def test_two_residues_in_one_place(tmp_path, two):
    st = structure_of(two)
    chain = st[0]["A"]
    for a in chain[3]:
        a.altloc, a.occ = "A", 0.5
    chain.add_residue(residue_of(two[0].atoms[3] + 0.1, 4, "SER", "B", 0.5), 4)
    back = read_structure(write(st, tmp_path / "x.pdb"))[0].atoms
    same(back, two[0].atoms)


# --- ProteinNet ------------------------------------------------------------------------------------------


def record(chain, id, extra=""):
    """One record; `extra` goes between [EVOLUTIONARY] and [TERTIARY]."""
    good = torch.isfinite(chain.atoms).flatten(1).all(1)
    pm = torch.where(good[:, None, None], chain.atoms * 100, 0.0).reshape(-1, 3).T
    rows = ["\t".join(f"{v:.1f}" for v in row) for row in pm.tolist()]
    evolution = "\n".join("\t".join(["0.5"] * len(good)) for _ in range(21))
    mask = "".join("+" if g else "-" for g in good)
    head = ["[ID]", id, "[PRIMARY]", "A" * len(good), "[EVOLUTIONARY]", evolution, *([extra] if extra else [])]
    return "\n".join([*head, "[TERTIARY]", *rows, "[MASK]", mask, "", ""])


def masked(chain):
    """ProteinNet masks whole residues."""
    atoms = chain.atoms.clone()
    atoms[~torch.isfinite(atoms).flatten(1).all(1)] = torch.nan
    return atoms


FORMS = {
    "plain": lambda text: text,
    "no newline at the end": lambda text: text.rstrip(),
    "no blank line between": lambda text: re.sub(r"\n\n+", "\n", text),
    "many blank lines": lambda text: "\n\n" + text.replace("\n\n", "\n\n\n\n"),
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("name", ["training_30", "training_30.txt", "training_30.gz"])
@pytest.mark.parametrize("form", FORMS)
def test_proteinnet_reads_back(tmp_path, two, name, form):
    extra = "[RAMA]\n1.0 2.0\n[CHI]\n-\nnot numbers"
    text = FORMS[form](record(two[0], "40#1ABC_1_A", extra) + record(two[1], "1abc_d1abca1") + record(two[1], "TBM#T0872"))
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    for back in (list(read_proteinnet(path)), load_chains(path)):
        assert [(c.id, c.group) for c in back] == [("40#1ABC_1_A", "1ABC"), ("1abc_d1abca1", "1abc"), ("TBM#T0872", "T0872")]
        same(back[0].atoms, masked(two[0]))
        same(back[1].atoms, two[1].atoms)
    assert torch.isnan(back[0].atoms[7]).all()


@pytest.mark.parametrize("rest", ["[ID]\n2XYZ_1_A\n[PRIMARY]\nAAA", "nonsense", "[ID]\n[ID]\n"])
def test_proteinnet_streams(tmp_path, two, rest):
    """The first record arrives before the second, which is malformed, is looked at."""
    path = tmp_path / "validation"
    path.write_text(record(two[0], "1ABC_1_A") + rest)
    chains = read_proteinnet(path)
    assert next(chains).id == "1ABC_1_A"
    with pytest.raises(ValueError, match=r"validation, (record 2XYZ_1_A|record without id|line 34)"):
        next(chains)


MALFORMED = {
    "too few numbers": (lambda t: re.sub(r"(\[TERTIARY\]\n)\S+\t", r"\1", t), r"line 28: asked for 120 coordinates.*got 119"),
    "short sequence": (lambda t: t.replace("AAAA\n", "AAA\n"), r"line 28: asked for 117 coordinates.*got 120"),
    "a word": (lambda t: re.sub(r"(\[TERTIARY\]\n)\S+\t", r"\1x1\t", t), r"line 28: .*picometres, could not convert.*'x1'"),
    "two rows": (lambda t: re.sub(r"(\[TERTIARY\]\n).*\n", r"\1", t), r"line 29: asked for 3 rows.*got 2"),
    "short mask": (lambda t: t.replace("++\n", "+\n"), r"line 32: asked for 40 marks.*got 39"),
    "strange mask": (lambda t: t.replace("++\n", "+?\n"), r"line 32: asked for 40 marks"),
    "cut": (lambda t: t[: t.index("[MASK]")], r"line 30: .*ends without \[MASK\]"),
    "cut in the mask": (lambda t: t[: t.index("[MASK]") + 6], r"line 31: .*ends without \[MASK\]"),
    "twice": (lambda t: t.replace("[MASK]", "[PRIMARY]\nAAA\n[MASK]"), r"line 31: asked for one \[PRIMARY\]"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_proteinnet(tmp_path, two, case):
    spoil, message = MALFORMED[case]
    path = tmp_path / "bad.txt"
    path.write_text(spoil(record(two[0], "40#1ABC_1_A")))
    with pytest.raises(ValueError, match=rf"bad\.txt,.*{message}") as error:
        list(read_proteinnet(path))
    assert "40#1ABC_1_A" in str(error.value) or case == "twice"


def test_not_proteinnet(tmp_path, two):
    path = tmp_path / "bad.gz"
    path.write_bytes(b"[ID] is what it should say, compressed")
    with pytest.raises(ValueError, match=r"bad\.gz, after line 0: asked for ProteinNet text"):
        list(read_proteinnet(path))
    path.write_bytes(gzip.compress((record(two[0], "1ABC_1_A") * 20).encode())[:-300])
    with pytest.raises(ValueError, match=r"bad\.gz, after line \d+: asked for ProteinNet text"):
        list(read_proteinnet(path))
    path = tmp_path / "bad.txt"
    path.write_text("hello\n")
    with pytest.raises(ValueError, match=r"bad\.txt, line 1: .*starts with \[ID\], got 'hello'"):
        list(read_proteinnet(path))


# --- folders and bad files -------------------------------------------------------------------------------


def test_folder_of_every_kind(tmp_path, two):
    write(structure_of(two), tmp_path / "b.pdb")
    write(structure_of(two[:1]), tmp_path / "c.cif.gz")
    (tmp_path / "a").write_text(record(two[1], "1ABC_1_A"))
    (tmp_path / ".hidden").write_text("passed over")
    (tmp_path / "inner").mkdir()
    assert [c.id for c in read_folder(tmp_path)] == ["1ABC_1_A", "b_A", "b_B", "c_A"]
    assert [c.id for c in load_chains(str(tmp_path))] == ["1ABC_1_A", "b_A", "b_B", "c_A"]
    p = protein({"train": 20, "val": 5, "test": 10}, chains=load_chains(tmp_path))
    assert len(p.x) == 35


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bad.pdb", b"garbage\n"),
        ("bad.cif", b"garbage\n"),
        ("bad.cif", b"data_x\n_cell.length_a 1\n"),
        ("bad.pdb.gz", b"not compressed\n"),
        ("bad.cif.gz", gzip.compress(b"data_x\n" * 999)[:-20]),
        ("bad.txt", b"hello"),
        ("bad.bin", bytes(range(256))),
        ("bad.pdb", b""),
        ("bad.gz", b""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_files_are_named(tmp_path, two, name, content):
    write(structure_of(two), tmp_path / "a.pdb")
    (tmp_path / name).write_bytes(content)
    for read in (lambda: load_chains(tmp_path / name), lambda: read_folder(tmp_path)):
        with pytest.raises(ValueError, match=rf"{re.escape(name)}: asked for a structure"):
            read()


def test_nothing_there(tmp_path):
    with pytest.raises(ValueError, match=rf"{re.escape(str(tmp_path))}: asked for a folder with files"):
        read_folder(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"none\.pdb"):
        load_chains(tmp_path / "none.pdb")
    with pytest.raises(FileNotFoundError, match=r"none\.pdb"):
        read_structure(tmp_path / "none.pdb")
    with pytest.raises(ValueError, match=r"x\.xyz: read_structure asked for a name ending in \.pdb"):
        read_structure(tmp_path / "x.xyz")


def test_files_of_a_folder_without_protein_are_skipped_and_counted(tmp_path, two):
    for name in ("a.pdb", "c.cif", "e.pdb"):
        write(structure_of(two[:1], name="DA"), tmp_path / name)
    with pytest.raises(ValueError, match=r"at least one structure has amino acids, but 3 of 3 files hold no protein: a\.pdb, c"):
        load_chains(tmp_path)
    write(structure_of(two), tmp_path / "b.pdb")
    write(structure_of(two[:1]), tmp_path / "d.cif")
    for read in (load_chains, read_folder):
        with pytest.warns(UserWarning, match=r"3 of 5 files hold no protein: a\.pdb, c\.cif, e\.pdb\. They were passed over"):
            assert [c.id for c in read(tmp_path)] == ["b_A", "b_B", "d_A"]


def test_no_protein_in_the_file(tmp_path, two):
    path = write(structure_of(two[:1], name="DA"), tmp_path / "dna.pdb")
    with pytest.raises(ValueError, match=r"dna\.pdb: .*with amino acids, found none"):
        read_structure(path)
