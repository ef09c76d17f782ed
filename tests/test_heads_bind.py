"""Heads with tensors for parameters, and the mass of their rows."""

import pytest
import torch

from stau_rl.heads import HEADS, parse_head
from stau_rl.plugin.plugin_head import forget, head

SCORES = torch.tensor([[0.3, -1.2, 2.0, 0.4], [1.0, 0.5, -3.0, 0.1]], dtype=torch.float64)
SHARP = [name for name in HEADS if HEADS[name].sharpness]


@pytest.mark.parametrize("name", SHARP)
def test_a_bound_tensor_gives_the_weights_of_the_number(name):
    plain = HEADS[name](**{HEADS[name].sharpness: 2.5})
    bound = plain.bind(**{plain.sharpness: torch.full((2, 1), 2.5, dtype=torch.float64)})
    torch.testing.assert_close(bound.weights(SCORES), plain.weights(SCORES), rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", SHARP)
def test_gradients_reach_a_bound_tensor(name):
    empty = HEADS[name]()

    def log_weights(scores, value):
        return empty.bind(**{empty.sharpness: value}).log_weights(scores)

    value = torch.tensor([[1.5], [3.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(log_weights, (SCORES.clone().requires_grad_(), value))


def test_softmax_at_a_tensor_zero_is_uniform():
    bound = parse_head("softmax").bind(beta=torch.zeros((), dtype=torch.float64))
    assert bound.weights(SCORES).eq(0.25).all()


def test_a_plug_in_binds_its_parameters():
    @head("bound_power", p=2.0)
    def bound_power(scores, p):
        return p * scores

    try:
        p = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
        bound_power().bind(p=p).log_weights(SCORES)[0, 0].backward()
        assert p.grad is not None
        assert float(p.grad) == pytest.approx(float(SCORES[0, 0] - (SCORES[0] * (3 * SCORES[0]).softmax(0)).sum()))
    finally:
        forget("bound_power")


def test_an_unknown_parameter_is_named():
    with pytest.raises(ValueError, match="softmax has no parameter 'tau'; its parameters: beta"):
        parse_head("softmax").bind(tau=torch.ones(()))


def test_the_mass_of_a_simplex_row_is_one_and_of_a_masked_row_zero():
    mask = torch.tensor([[True, False, True, True], [False] * 4])
    weights, mass = parse_head("s_tau(tau=5)").weights_and_mass(SCORES, mask=mask)
    assert mass.tolist() == [1.0, 0.0]
    torch.testing.assert_close(weights.sum(-1), mass, rtol=1e-14, atol=0)
