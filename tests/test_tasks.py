"""Tasks for attention heads: a brute-force reader answers every item, and an item depends on its number alone."""

import pytest
import torch
from numpy.testing import assert_allclose
from torch.utils.data import DataLoader

from stau_rl.envs.tasks import TASKS, parse_task
from stau_rl.envs.tasks.mqar import MultiQueryRecall
from stau_rl.envs.tasks.recall import Recall, Silence
from stau_rl.envs.tasks.task import Batch, Task
from stau_rl.envs.tasks.task_data import TaskDataset
from stau_rl.envs.tasks.task_draws import Draws, mix

MASK = (1 << 64) - 1
TEXTS = (
    *TASKS,
    "recall(pairs=5, keys=7, values=3, distractor_ratio=0.5)",
    "recall(distractor_ratio=0.2, distractors=decoy)",
    "recall(distractor_ratio=1, distractors=near, amplitude=0.3)",
    "silence(silence=null, unanswerable=0.3)",
    "silence(distractor_ratio=1, distractors=decoy)",
    "mqar(places=24, pairs=4, tokens=32, filler=nothing)",
    "mqar(places=16, pairs=4, tokens=10, power=2)",
    "passkey(places=7, keys=1)",
    "overwrite(pairs=3, writes=8)",
)
each_task = pytest.mark.parametrize("text", TEXTS)


def kind_of(task: Task, token: int) -> str:
    (name,) = [name for name, numbers in task.kinds.items() if token in numbers]
    return name


def read_like_a_human(task: Task, tokens: list[int], places: list[int]) -> list[tuple[int, int]]:
    """Answer and slot of every query, by reading once from left to right with a dictionary; -1, -1 where nothing is."""
    # The fillers of multi-query recall may look like pairs, so its pairs end where its text says.
    end = 2 * task.pairs if isinstance(task, MultiQueryRecall) else min(places)
    memory: dict[int, tuple[int, int]] = {}
    for place in range(end - 1):
        if kind_of(task, tokens[place]) == "keys" and kind_of(task, tokens[place + 1]) == "values":
            memory[tokens[place]] = (tokens[place + 1], place + 1)
    return [memory.get(tokens[place], (-1, -1)) for place in places]


@each_task
def test_a_brute_force_reader_gives_every_answer(text: str) -> None:
    task = parse_task(text)
    items = task.items(3, torch.arange(200))
    assert items.tokens.shape == items.present.shape == items.loudness.shape == (200, task.length)
    assert items.query.shape == items.slot.shape == items.target.shape == (200, task.queries)
    kinds = task.kinds
    for number in range(200):
        tokens, present = items.tokens[number].tolist(), items.present[number].tolist()
        for token, there in zip(tokens, present, strict=True):
            assert (kind_of(task, token) == "padding") != there
        answers = read_like_a_human(task, tokens, items.query[number].tolist())
        for asked, (answer, place) in enumerate(answers):
            assert items.slot[number, asked] == place
            token = tokens[int(items.query[number, asked])]
            assert kind_of(task, token) == "keys"
            silent = kinds["null"].start if "null" in kinds else token
            assert items.target[number, asked] == (answer if place >= 0 else silent)


@each_task
def test_vocabularies_are_disjoint_and_chance_is_stated(text: str) -> None:
    task = parse_task(text)
    tokens = [token for numbers in task.kinds.values() for token in numbers]
    assert sorted(tokens) == list(range(task.vocabulary))
    assert {"keys", "values"} <= set(task.kinds)
    assert task.chance == 1 / len(task.kinds["values"])
    # A value drawn blindly answers with that probability: targets are uniform over the values.
    items = task.items(0, torch.arange(4000))
    answerable = items.slot >= 0
    counts = torch.bincount(items.target[answerable] - task.kinds["values"].start, minlength=len(task.kinds["values"]))
    expected = answerable.sum() * task.chance
    # 5 standard errors: a false alarm in under 1e-4 for all tasks and values together.
    assert (counts - expected).abs().max() < 5 * expected.sqrt() + 1


@each_task
def test_an_item_depends_on_seed_and_number_alone(text: str) -> None:
    task = parse_task(text)
    whole = task.items(7, torch.arange(64))
    for part in (torch.tensor([5]), torch.tensor([63, 5, 5]), torch.arange(64).reshape(8, 8)):
        for all_items, some in zip(whole, task.items(7, part), strict=True):
            assert torch.equal(all_items[part], some)
    seeds = torch.tensor([7, 8])[:, None]
    both = task.items(seeds, torch.arange(64))
    assert torch.equal(both.tokens[0], whole.tokens)
    assert torch.equal(both.tokens[1], task.items(8, torch.arange(64)).tokens)
    assert not torch.equal(both.tokens[0], both.tokens[1])


@each_task
def test_the_data_set_holds_the_same_items_and_stacks(text: str) -> None:
    task = parse_task(text)
    data = TaskDataset(task, size=6, seed=11)
    (batch,) = DataLoader(data, batch_size=6)
    assert isinstance(batch, Batch)
    for stacked, made in zip(batch, task.items(11, torch.arange(6)), strict=True):
        assert torch.equal(stacked, made)
    assert torch.equal(data[-1].tokens, data[5].tokens)
    with pytest.raises(IndexError, match=r"\[-6, 6\)"):
        data[6]


def test_splitmix_known_answers() -> None:
    """The published stream of SplitMix64 from state 1234567."""
    state, found = 1234567, []
    for _ in range(5):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        signed = state - (1 << 64) if state >> 63 else state
        found.append(int(mix(torch.tensor(signed))) & MASK)
    assert found == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_draws_are_even() -> None:
    draws = Draws(1, torch.arange(20_000))
    # Binomial(20 000, 1/7): a deviation of 5 standard errors in one of 7 counts has probability 4e-6.
    counts = torch.bincount(draws.below(2, 1, 7).flatten())
    assert (counts - 20_000 / 7).abs().max() < 5 * (20_000 * 6 / 49) ** 0.5
    uniforms = draws.uniforms(3, 2)
    assert abs(float(uniforms.mean()) - 0.5) < 5 * (12 * 40_000) ** -0.5
    assert abs(float(torch.corrcoef(uniforms.T)[0, 1])) < 5 * 20_000**-0.5
    pairs = torch.stack([uniforms[:-1, 0], uniforms[1:, 0]])
    assert abs(float(torch.corrcoef(pairs)[0, 1])) < 5 * 20_000**-0.5
    chosen = draws.distinct(4, 3, 5)
    assert (chosen.sort(-1).values.diff() > 0).all()
    assert (torch.bincount(chosen.flatten()) - 12_000).abs().max() < 5 * (20_000 * 0.6 * 0.4) ** 0.5


@pytest.mark.parametrize("ratio", [0.05, 0.2, 0.5, 1.0])
def test_the_distractor_ratio_is_met_on_average(ratio: float) -> None:
    task = Recall(distractor_ratio=ratio)
    units = (task.items(0, torch.arange(8000)).present.sum(-1) - 1) / 2 - task.pairs
    assert_allclose(float(units.mean()), 8 * ratio, atol=5 * 0.5 * 8000**-0.5)
    assert units.max() - units.min() <= 1


def test_the_share_of_unanswerable_queries_is_met() -> None:
    silent = Silence(unanswerable=0.3).items(0, torch.arange(20_000)).slot < 0
    assert_allclose(float(silent.double().mean()), 0.3, atol=5 * (0.21 / 20_000) ** 0.5)


def test_gaps_follow_the_power_law() -> None:
    """With one pair, P(gap g) = (g + 1)^(power - 1) / sum; chi-square of 5 degrees of freedom, over 30 in 1.5e-5."""
    task = parse_task("mqar(places=14, pairs=1, tokens=8, power=0.01)")
    gaps = (task.items(0, torch.arange(30_000)).query.flatten() - 2) // 2
    law = torch.arange(1, 7).double() ** -0.99
    expected = 30_000 * law / law.sum()
    assert float(((torch.bincount(gaps, minlength=6) - expected) ** 2 / expected).sum()) < 30


def test_amplitude_noise_is_lognormal_and_spares_the_query() -> None:
    logs = Recall(amplitude=0.5).items(0, torch.arange(5000)).loudness.log()
    assert (logs[:, -1] == 0).all()
    assert_allclose(float(logs[:, :-1].std()), 0.5, rtol=0.02)
    assert (Recall().items(0, torch.arange(3)).loudness == 1).all()


def test_longer_items_share_the_vocabulary() -> None:
    for text in ("recall(keys=140)", "passkey"):
        task = parse_task(text)
        assert task.longer(1) == task
        long = task.longer(16)
        assert long.kinds == task.kinds
        assert long.length - 1 == 16 * (task.length - 1)
    with pytest.raises(ValueError, match="factor = 4 needs more than 32 keys"):
        Recall().longer(4)
    with pytest.raises(ValueError, match="mqar has no longer form"):
        parse_task("mqar").longer(2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recall(keys=8)", "keys must be finite and >= 9, got 8"),
        ("recall(keys=1000000000000)", "keys must be at most 1048576"),
        ("mqar(places=4294967296)", "places must be at most 1048576"),
        ("recall(amplitude=5.1)", "amplitude must be at most 5, got 5.1"),
        ("recall(distractor_ratio=-1)", "distractor_ratio must be finite and >= 0"),
        ("recall(distractor_ratio=nan)", "distractor_ratio must be finite and >= 0"),
        ("recall(distractors=loud)", "distractors must be one of noise, decoy, near, got 'loud'"),
        ("silence(unanswerable=1.5)", r"unanswerable must lie in \[0, 1\], got 1.5"),
        ("silence(silence=maybe)", "silence must be one of residual, null"),
        ("mqar(places=8)", "places must be finite and >= 16"),
        ("mqar(places=17)", "must be even"),
        ("mqar(power=0)", "power must be finite and > 0"),
        ("mqar(filler=some)", "filler must be one of"),
        ("overwrite(writes=3)", "writes must be finite and >= 4"),
        ("passkey(places=1)", "places must be finite and >= 2"),
        ("recal", "did you mean 'recall'"),
    ],
)
def test_a_task_that_cannot_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_task(text)


@pytest.mark.parametrize(
    ("name", "smallest"),
    [
        ("recall", {"pairs": 1, "keys": 2, "values": 1}),
        ("mqar", {"pairs": 1, "tokens": 4, "places": 4}),
        ("passkey", {"places": 2, "keys": 1, "values": 1, "noise": 1}),
        ("overwrite", {"pairs": 1, "writes": 1, "keys": 1, "values": 1}),
    ],
)
def test_the_smallest_task_is_one_and_nothing_below(name: str, smallest: dict[str, int]) -> None:
    task = TASKS[name](**smallest)
    items = task.items(0, torch.arange(20))
    for tokens, query, slot in zip(items.tokens.tolist(), items.query.tolist(), items.slot.tolist(), strict=True):
        assert read_like_a_human(task, tokens, query) == [(tokens[place], place) for place in slot]
    for field, least in smallest.items():
        with pytest.raises(ValueError, match=f"{field} must be finite and >= {least}, got {least - 1}"):
            TASKS[name](**{**smallest, field: least - 1})


def test_bad_numbers_of_items_are_refused() -> None:
    with pytest.raises(ValueError, match="seed must be a whole number"):
        Recall().items(-1, torch.arange(2))
    with pytest.raises(ValueError, match="index must be an int64 tensor, got"):
        Recall().items(0, torch.arange(2.0))
    for size in (0, 2.5):
        with pytest.raises(ValueError, match="size must be a whole number, at least 1, got"):
            TaskDataset(Recall(), size, 0)  # type: ignore[arg-type]


def test_near_distractors_are_twins_of_keys_of_their_own_item() -> None:
    """Of 40 keys an item holds two, so that twins of any key would almost never be of its own."""
    task = parse_task("recall(pairs=2, keys=40, values=5, distractor_ratio=2, distractors=near)")
    kinds = task.kinds
    tokens = task.items(3, torch.arange(200)).tokens[:, :-1].unflatten(-1, (6, 2))
    near = (tokens[..., 0] >= kinds["near"].start) & (tokens[..., 0] < kinds["near"].stop)
    assert near.sum(-1).tolist() == [4] * 200
    twins = tokens[..., 0][near].unflatten(0, (200, 4)) - kinds["near"].start
    keys = tokens[..., 0][~near].unflatten(0, (200, 2)) - kinds["keys"].start
    assert (twins[..., None] == keys[:, None]).any(-1).all()
    # Both keys have some: 800 fair draws leave neither below 300.
    assert 300 < int((twins == keys[:, :1]).sum()) < 500
