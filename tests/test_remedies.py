"""Remedies for a learned tau: groups, warm-up, entropy target."""

import math

import pytest
import torch
from torch import nn

from stau_rl.heads import parse_head
from stau_rl.nn.head_module import EscortHead, HeadModule, SoftmaxHead, STauHead
from stau_rl.nn.remedies import TargetEntropy, TauWarmup, head_parameters, parameter_groups


def policy():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), STauHead(2.0))


def rows(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_groups_split_the_parameters_once():
    module = policy()
    rest, own = parameter_groups(module, lr=1e-3, head_lr=1e-5)
    assert [id(one) for one in rest["params"]] == [id(module[0].weight), id(module[0].bias)]
    assert [id(one) for one in own["params"]] == [id(module[1].log_tau)]
    assert (rest["lr"], own["lr"], own["weight_decay"]) == (1e-3, 1e-5, 0.0)
    before = module[1].log_tau.item()
    optimizer = torch.optim.SGD(parameter_groups(module, lr=0.5, head_lr=0.0))
    weight = module[0].weight.detach().clone()
    module(rows(5, 4))[:, 0].sum().backward()
    optimizer.step()
    assert module[1].log_tau.item() == before
    assert not torch.equal(module[0].weight, weight)


def test_a_head_used_twice_is_in_the_group_once():
    shared = STauHead()
    module = nn.ModuleList([shared, nn.Sequential(shared), EscortHead(learnable=True)])
    assert len(head_parameters(module)) == 2
    assert len(parameter_groups(module, 0.1, 0.1)) == 1


@pytest.mark.parametrize("rates", [(-1.0, 0.1), (0.1, math.nan)])
def test_rates_are_checked(rates):
    with pytest.raises(ValueError, match="lr must be finite and >= 0"):
        parameter_groups(policy(), *rates)


def test_warm_up_freezes_for_as_many_updates_as_asked():
    module = policy()
    warm_up = TauWarmup(module, steps=2)
    optimizer = torch.optim.Adam(parameter_groups(module, 1e-2, 1e-2))
    values = []
    for _ in range(4):
        optimizer.zero_grad()
        module(rows(5, 4))[:, 0].sum().backward()
        optimizer.step()
        warm_up.step()
        values.append(module[1].log_tau.item())
    assert values[0] == values[1] == STauHead(2.0).log_tau.item()
    # Adam's first step has the size of its learning rate: no moments were gathered while frozen.
    assert abs(values[2] - values[1]) == pytest.approx(1e-2, rel=1e-3)
    assert values[3] != values[2]


def test_warm_up_goes_on_where_it_was_saved():
    module = policy()
    warm_up = TauWarmup(module, steps=2)
    warm_up.step()
    other = TauWarmup(policy(), steps=2)
    other.load_state_dict(warm_up.state_dict())
    assert other.frozen
    other.step()
    assert not other.frozen
    assert other.parameters[0].requires_grad


@pytest.mark.parametrize("when", ["before", "during", "at the end", "later"])
def test_a_warm_up_leaves_the_entropy_control_alone(when):
    """It frees once: whatever takes the sharpness from the optimizer keeps it, whenever it was made."""
    module = policy()
    head = module[1]
    if when == "before":
        TargetEntropy(head, share=0.5)
    warm_up = TauWarmup(module, steps=2)
    if when == "during":
        TargetEntropy(head, share=0.5)
    warm_up.step(2)
    assert head.log_tau.requires_grad is (when in ("at the end", "later"))
    if when == "later":
        warm_up.step()
    TargetEntropy(head, share=0.5)
    for _ in range(3):
        warm_up.step()
        assert not head.log_tau.requires_grad
    warm_up.load_state_dict({"done": 7})
    assert not head.log_tau.requires_grad
    # Back into the warm-up and out again: the control still has it.
    warm_up.load_state_dict({"done": 1})
    warm_up.step()
    assert not head.log_tau.requires_grad


def test_a_warm_up_that_is_over_touches_nothing():
    """What a user freezes or gathers afterwards is the user's."""
    module = policy()
    warm_up = TauWarmup(module, steps=1)
    warm_up.step()
    module[1].log_tau.requires_grad_(False)
    module[1].log_tau.grad = torch.ones(())
    warm_up.step()
    assert not module[1].log_tau.requires_grad
    assert module[1].log_tau.grad is not None
    # Nothing was learned before a warm-up that finds it frozen, so that nothing is freed.
    again = TauWarmup(module, steps=1)
    again.step()
    assert not module[1].log_tau.requires_grad


def test_warm_up_needs_something_to_freeze():
    with pytest.raises(ValueError, match="no head with learned parameters"):
        TauWarmup(nn.Linear(2, 2), steps=3)
    with pytest.raises(ValueError, match="steps must be >= 0, got -1"):
        TauWarmup(STauHead(), steps=-1)


@pytest.mark.parametrize("head", [STauHead(4.0), SoftmaxHead(3.0, learnable=True), EscortHead(3.0, learnable=True)])
@pytest.mark.parametrize("share", [0.3, 0.8])
def test_the_entropy_reaches_its_target(head, share):
    scores = rows(256, 6, seed=1)
    mask = torch.rand(256, 6, generator=torch.Generator().manual_seed(2)) < 0.7
    mask[:, 0] = True
    control = TargetEntropy(head, share=share, lr=2.0)
    for _ in range(300):
        control.update(scores, mask)
    assert control.update(scores, mask) == pytest.approx(share, abs=0.01)
    assert not head.raw(head.learn[0]).requires_grad


def test_the_step_of_the_entropy_control_by_hand():
    head = STauHead(2.0)
    scores = torch.tensor([[0.0, 1.0], [3.0, -1.0]])
    entropy = torch.special.entr(parse_head("s_tau(tau=2)").weights(scores)).sum(-1) / math.log(2)
    before = head.log_tau.item()
    assert TargetEntropy(head, share=0.25, lr=0.1).update(scores) == pytest.approx(entropy.mean().item(), rel=1e-6)
    assert head.log_tau.item() - before == pytest.approx(0.1 * (entropy.mean().item() - 0.25), rel=1e-4)


def test_each_head_of_a_row_has_its_own_entropy():
    head = STauHead(2.0, shape=(2,))
    scores = torch.stack([torch.zeros(5, 4), 8 * rows(5, 4)], 1)
    control = TargetEntropy(head, share=0.5, lr=0.1)
    start = head.log_tau.detach().clone()
    control.update(scores)
    # Uniform rows have share 1 and get sharper; steep rows have less than one half and get flatter.
    assert (head.log_tau[0] - start[0]).item() == pytest.approx(0.1 * 0.5, rel=1e-4)
    assert head.log_tau[1] < start[1]


def test_rows_with_one_action_say_nothing():
    head = STauHead(2.0)
    control = TargetEntropy(head, share=0.5)
    start = head.log_tau.item()
    assert math.isnan(control.update(rows(3, 4), torch.tensor([True, False, False, False])))
    assert head.log_tau.item() == start


@pytest.mark.parametrize(
    ("head", "options", "message"),
    [
        (STauHead(learnable=False), {"share": 0.5}, "does not learn a sharpness"),
        (HeadModule("softplus_norm"), {"share": 0.5}, "the head has none"),
        (STauHead(), {"share": 1.0}, r"share must lie in \(0, 1\), got 1.0"),
        (STauHead(), {"share": 0.5, "lr": -1.0}, "lr must be finite and >= 0"),
    ],
)
def test_entropy_control_names_what_it_cannot_do(head, options, message):
    with pytest.raises(ValueError, match=message):
        TargetEntropy(head, **options)
