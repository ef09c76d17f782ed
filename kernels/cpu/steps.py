"""Templates of the compiled loop: one per family of policies, written once for any number of arms.

Nothing here is called: `stau_rl.kernels.cpu.codegen` takes the source apart and writes the loop of one
specialisation from it. The rules of that small language, all of it Python:

- `for k in ARMS:` is unrolled over the arms, or kept as a loop where there are many.
- `name[k]` of a state array (`count`, `gain`, `bound`, `mu`, `mean`, `root`, `preference`) is a vector load
  or store: thirty-two instances of arm k. `name[k]` of a scratch name (`score`, `level`, `edge`, `weight`) is
  a local variable of arm k where the arms are unrolled, and a buffer in the first-level cache otherwise.
- `if FLAG:` on an upper-case flag is decided while the source is written.
- `CHOOSE` stands for the body of one of the `choose_` functions, which sets `arm`, int32 lanes.

In them `v` is the first of the thirty-two lanes within the block, `chance` and `luck` are the 24-bit words of
the action and the reward uniform, `p` and `q` the parameters of the head or policy (those of the step, from
`scheduled`, where they change with it), and `bonus` is c sqrt(2 ln N), whose c may
change too, as may `offset`.
"""

# The upper-case names and the buffers are those of the generated module.
# ruff: noqa: B018, F821, F841, PLR1711, RET501, RET504, RUF059, RUF100, SIM108


def choose_by_weight(
    v, t, chance, mean, root, preference, reward_sum, score, level, edge, weight, bonus, offset, p, q, whole
):
    """Score | head: arm = first k with cdf_k > u * total."""
    if CENTRED:
        centre = splat(0.0, REAL)
        for k in ARMS:
            score[k] = fused(root[k], bonus, mean[k])
            centre = centre + score[k]
        centre = centre * INVERSE_ARMS
        if OFFSET:
            centre = centre - offset
    if PAST:
        # Of all rewards, whichever arms they came from.
        average = load(reward_sum, v) / max(t, 1)
        if WIDE:
            centre = average
        else:
            centre = to_f32(average)
        if OFFSET:
            centre = centre - offset
    peak = splat(LOWEST, REAL)
    for k in ARMS:
        if CENTRED:
            value = score[k] - centre
        if PAST:
            value = fused(root[k], bonus, mean[k]) - centre
        if UCB:
            value = fused(root[k], bonus, mean[k])
            if OFFSET:
                value = value + offset
        if MEAN:
            value = mean[k]
        if PREFERENCES:
            value = preference[k]
        if POWER:
            level[k] = head_base(value, p, q)
        else:
            level[k] = log2_weight(value, p, q)
        peak = select(level[k] > peak, level[k], peak)
    # The largest weight becomes 1: no score and no parameter can overflow.
    if POWER:
        scale = select(peak < SMALLEST, 0.0, 1.0 / select(peak < SMALLEST, SMALLEST, peak))
        lift = select(peak < SMALLEST, splat(1.0, F32), 0.0)
    total = splat(0.0, F32)
    for k in ARMS:
        if POWER:
            weight[k] = whole_power(fused(level[k], scale, lift), whole)
        else:
            below = level[k] - peak
            if WIDE:
                below = select(below < -127.0, -127.0, below)
            weight[k] = exp2_nonpositive(to_f32(below))
        total = total + weight[k]
        edge[k] = total
    target = to_f32(chance) * UNIT * total
    arm = splat(0, I32)
    for k in ARMS:
        arm = select(edge[k] <= target, arm + 1, arm)
    return arm


def choose_best(v, chance, mean, root, score, bonus, p, q, instance, step, key_low, key_high):
    """Largest float64 score; of m tied arms the floor(u m)-th; epsilon-greedy explores first."""
    best, top = splat(LOWEST, F64), splat(LOWEST, F64)
    if CONTRAST:
        for k in ARMS:
            top = select(mean[k] > top, mean[k], top)
    for k in ARMS:
        if UCB:
            score[k] = fused(root[k], bonus, mean[k])
        if MEAN:
            score[k] = mean[k]
        if INDEX:
            score[k] = index(mean[k], root[k], top, p, q)
        best = select(score[k] > best, score[k], best)
    if INDEX:
        # What rounding alone tells apart is tied.
        limit = best - TIE * select(best < 0.0, -best, best)
        for k in ARMS:
            score[k] = select(score[k] < limit, score[k], best)
    ties, none = splat(0, I32), splat(0, I32)
    for k in ARMS:
        ties = select(score[k] == best, ties + 1, ties)
    if EXPLORES:
        explored, among_ties, _, _ = philox(instance, step, SECOND, key_low, key_high)
    else:
        among_ties = chance
    rank = to_i32((to_i64(among_ties) * to_i64(ties)) >> 24)
    arm, tied = none, none
    for k in ARMS:
        tied = select(score[k] == best, tied + 1, tied)
        arm = select(tied <= rank, arm + 1, arm)
    if EXPLORES:
        # p is epsilon 2^24, so this is u < epsilon exactly.
        arm = select(to_f64(chance) < p, to_i32((to_i64(explored) * K) >> 24), arm)
    return arm


def choose_uniform(chance):
    """Every arm alike: floor(u K)."""
    arm = to_i32((to_i64(chance) * K) >> 24)
    return arm


def choose_noisy(v, mean, root, count, gain, p, instance, step, key_low, key_high):
    """The largest of a draw per arm, the first of equals: from its posterior (Thompson), or its mean after noise."""
    arm, best = splat(0, I32), splat(LOWEST, F64)
    # A draw is long enough: unrolling it would only cost compile time.
    for k in range(K):
        if BETA:
            gains = to_f64(gain[k])
            losses = to_f64(count[k]) - gains
            draw = beta_draw(gains + 1.0, losses + 1.0, instance, step, k, key_low, key_high)
        else:
            word, _, _, _ = philox(instance, step, stream(k, 0), key_low, key_high)
            if GUMBEL:
                draw = fused(root[k] * p, gumbel(word), mean[k])
            else:
                draw = fused(root[k], to_f64(normal_quantile(word)), mean[k])
        arm = select(draw > best, splat(k, I32), arm)
        best = select(draw > best, draw, best)
    return arm


def play(
    blocks, begin, end, key_low, key_high, first, late, checkpoints, due, parameters, values, offsets, scheduled,
    count, gain, bound, mu, mean, root, preference, reward_sum, gap, words, snapshot,
    regret, optimal, late_optimal, actions, rewards,
):  # fmt: skip
    """Play steps begin..end-1 of some blocks of B instances: time outside, lanes inside."""
    p, q, c, sigma, alpha, prior_mean, prior_precision, noise_precision, offset = parameters
    whole = power_switches(p)
    lane_arm, lane_luck = np.empty(WIDTH, np.int32), np.empty(WIDTH, np.int32)
    lane_reward = np.empty(WIDTH, np.float64)
    if MANY:
        BUFFERS
    for b in range(blocks[0], blocks[1]):
        block_first, block_due = first + np.uint64(b) * np.uint64(B), due
        ROWS
        for t in range(begin, end):
            step = np.uint64(t)
            # One Philox call feeds two steps.
            if t & 1 == 0 or t == begin:
                for v in range(0, B, WIDTH):
                    instance = iota() + (block_first + np.uint64(v))
                    word_0, word_1, word_2, word_3 = philox(instance, step >> ONE, ACTIONS, key_low, key_high)
                    store(words, v, word_0)
                    store(words, B + v, word_1)
                    store(words, 2 * B + v, word_2)
                    store(words, 3 * B + v, word_3)
            half = (t & 1) * 2 * B
            if t == late:
                optimal_plays(count, gap, late_optimal)
                for i in range(B):
                    late_optimal[i] = -late_optimal[i]
            at_checkpoint = block_due < checkpoints.size and t + 1 == checkpoints[block_due]
            if at_checkpoint:
                optimal_plays(count, gap, snapshot)
            if WIDENS:
                bonus = scheduled[2, t - begin] * math.sqrt(2.0 * math.log(max(t, 1)))
            else:
                bonus = c * math.sqrt(2.0 * math.log(max(t, 1)))
            if MOVES:
                offset = scheduled[3, t - begin]
            if SCHEDULED:
                p, q = scheduled[0, t - begin], scheduled[1, t - begin]
            for v in range(0, B, WIDTH):
                chance, luck = load(words, half + v), load(words, half + B + v)
                instance = iota() + (block_first + np.uint64(v))
                if FORCED:
                    if t < K:
                        arm = splat(t, I32)
                    else:
                        CHOOSE
                else:
                    CHOOSE
                UPDATE
                if actions.size > 0:
                    store(lane_arm, 0, arm)
                    store(lane_reward, 0, to_f64(reward))
                    for i in range(WIDTH):
                        actions[t, v + i] = lane_arm[i]
                        rewards[t, v + i] = lane_reward[i]
            if at_checkpoint:
                pseudo_regret(count, gap, regret[block_due])
                optimal_plays(count, gap, optimal[block_due])
                for i in range(B):
                    optimal[block_due, i] -= snapshot[i]
                block_due += 1
    return None


def update(
    v, t, arm, luck, count, gain, bound, mu, mean, root, preference, weight, total, reward_sum,
    values, offsets, lane_arm, lane_reward, sigma, alpha, prior_mean, prior_precision, noise_precision, p, q,
):  # fmt: skip
    """Draw the chosen arm's reward and update that arm; of the other arms only preferences change."""
    if MANY:
        store(lane_arm, 0, arm)
        for i in range(WIDTH):
            at = np.int64(lane_arm[i]) * B + v + i
            lane_count[i], lane_gain[i] = count[at], gain[at]
            if BERNOULLI:
                lane_bound[i] = bound[at]
            if GAUSSIAN:
                lane_mu[i] = mu[at]
        plays, gains = load(lane_count, 0), load(lane_gain, 0)
        if BERNOULLI:
            limit = load(lane_bound, 0)
        if GAUSSIAN:
            expected = load(lane_mu, 0)
    else:
        plays, gains = splat(0, COUNT), splat(0, GAIN)
        if BERNOULLI:
            limit = splat(0, I32)
        if GAUSSIAN:
            expected = splat(0.0, F64)
        for k in ARMS:
            plays = select(arm == k, count[k], plays)
            gains = select(arm == k, gain[k], gains)
            if BERNOULLI:
                limit = select(arm == k, bound[k], limit)
            if GAUSSIAN:
                expected = select(arm == k, mu[k], expected)
    if BERNOULLI:
        reward = select(luck < limit, splat(1, GAIN), 0)
    if GAUSSIAN:
        if WIDE:
            reward = fused(normal_quantile64(luck), sigma, expected)
        else:
            reward = fused(to_f64(normal_quantile(luck)), sigma, expected)
    if TABLE:
        store(lane_arm, 0, arm)
        store(lane_luck, 0, luck)
        for i in range(WIDTH):
            row = offsets[lane_arm[i]]
            rows = offsets[lane_arm[i] + 1] - row
            lane_reward[i] = values[row + (((2 * np.int64(lane_luck[i]) + 1) * rows) >> 25)]
        reward = load(lane_reward, 0)
    plays = plays + 1
    gains = gains + reward
    if SINGLE:
        new_mean = to_f32(gains) / to_f32(plays)
        new_root = 1.0 / square_root(to_f32(plays))
    if DOUBLE:
        new_mean = to_f64(gains) / to_f64(plays)
        new_root = 1.0 / square_root(to_f64(plays))
    if POSTERIOR:
        precision = to_f64(plays) * noise_precision + prior_precision
        new_mean = (to_f64(gains) * noise_precision + prior_mean * prior_precision) / precision
        new_root = 1.0 / square_root(precision)
    if MANY:
        store(lane_count, 0, plays)
        store(lane_gain, 0, gains)
        if HAS_MEAN:
            store(lane_mean, 0, new_mean)
        if HAS_ROOT:
            store(lane_root, 0, new_root)
        for i in range(WIDTH):
            at = np.int64(lane_arm[i]) * B + v + i
            count[at], gain[at] = lane_count[i], lane_gain[i]
            if HAS_MEAN:
                mean[at] = lane_mean[i]
            if HAS_ROOT:
                root[at] = lane_root[i]
    else:
        for k in ARMS:
            count[k] = select(arm == k, plays, count[k])
            gain[k] = select(arm == k, gains, gain[k])
            if HAS_MEAN:
                mean[k] = select(arm == k, new_mean, mean[k])
            if HAS_ROOT:
                root[k] = select(arm == k, new_root, root[k])
    if PAST:
        store(reward_sum, v, load(reward_sum, v) + to_f64(reward))
    if PREFERENCES:
        before = load(reward_sum, v)
        after = before + to_f64(reward)
        store(reward_sum, v, after)
        if MEAN_BEFORE:
            advantage = to_f32(to_f64(reward) - before / max(t, 1)) * alpha
        if MEAN_INCLUDING:
            advantage = to_f32(to_f64(reward) - after / (t + 1)) * alpha
        if NO_BASELINE:
            advantage = to_f32(reward) * alpha
        for k in ARMS:
            drawn = select(arm == k, splat(1.0, F32), 0.0)
            slope = head_slope(preference[k], p, q)
            preference[k] = fused(advantage * slope, drawn - weight[k] / total, preference[k])
    return reward
