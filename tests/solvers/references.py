"""Every solver's update equations in plain numpy: no unibio and no jax inside.

Each solver is a generator: it is told the samples of every step and gives the variables after each. `d` is the
direction x moved along, before any normalisation. Factors (I − sH(ζ_j)) act in the order their samples were drawn in.
"""

import numpy as np
from oracles import sigmoid


class Regression:
    """ℓ_p regression on the rows of a batch, in closed form, and κ·mean x_i(X_val w)_i in f so that ∇_x f ≠ 0."""

    def __init__(self, train, validation, p, c, kappa):
        self.train, self.validation, self.p, self.c, self.kappa = train, validation, p, c, kappa

    def grads_f(self, x, y, rows):
        features, targets = (a[rows] for a in self.validation)
        r = features @ y - targets
        grad_x = np.zeros_like(x)
        np.add.at(grad_x, rows, self.kappa * (features @ y) / len(rows))
        slope = np.sign(r) * np.abs(r) ** (self.p - 1) + self.kappa * x[rows]
        return grad_x, features.T @ slope / len(rows)

    def _lower(self, x, y, rows):
        features, targets = (a[rows] for a in self.train)
        s = sigmoid(x[rows])
        return features, features @ y - targets, s / len(rows), s * (1 - s) / len(rows)

    def grad_g(self, x, y, rows):
        p = self.p
        features, r, share, _ = self._lower(x, y, rows)
        data = features.T @ (share * p * np.sign(r) * np.abs(r) ** (p - 1))
        return data + self.c * p * np.sign(y) * np.abs(y) ** (p - 1)

    def grad_x_g(self, x, y, rows):
        _, r, _, change = self._lower(x, y, rows)
        out = np.zeros_like(x)
        np.add.at(out, rows, change * np.abs(r) ** self.p)
        return out

    def hessian(self, x, y, rows):
        p = self.p
        features, r, share, _ = self._lower(x, y, rows)
        data = features.T @ np.diag(share * p * (p - 1) * np.abs(r) ** (p - 2)) @ features
        return data + np.diag(self.c * p * (p - 1) * np.abs(y) ** (p - 2))

    def cross(self, x, y, rows):
        """∇²_xy g, a matrix of size x × size y."""
        p = self.p
        features, r, _, change = self._lower(x, y, rows)
        out = np.zeros((len(x), len(y)))
        np.add.at(out, rows, (change * p * np.sign(r) * np.abs(r) ** (p - 1))[:, None] * features)
        return out


def sgd(problem, x, y, batches, step):
    for rows in batches:
        y = y - step * problem.grad_g(x, y, rows)
    return y


def epoch_sgd(problem, x, y, batches, step, first, radius, steps, p=None, tau=None, shrink=True):
    """Algorithm 1; also how often a point left its ball and was put back."""
    tau = 2 * (p - 1) / p if tau is None else tau
    k, real, used, hits = 1, float(first), float(first), 0
    batches = iter(batches)
    while used <= steps:
        centre, w, points = y, y, []
        ball = radius / 2 ** ((k - 1) / p) if shrink else radius
        for _ in range(int(real)):
            points.append(w)
            w = w - step / 2 ** (k - 1) * problem.grad_g(x, w, next(batches))
            distance = np.linalg.norm(w - centre)
            if distance > ball:
                w, hits = centre + ball * (w - centre) / distance, hits + 1
        y = np.mean(points, axis=0)
        k, real = k + 1, first * 2 ** (tau * k)
        used += real
    assert hits > 0
    return y


def implicit(problem, x, y, v, grad_x, rows):
    return grad_x - problem.cross(x, y, rows) @ v


def nested(problem, x, y, s, eta):
    """StocBiO's ĥ: v = ηΣ_{j=0}^{Q} r_j,  r_{j+1} = (I − ηH(B_j)) r_j."""
    grad_x, r = problem.grads_f(x, y, s["f"])
    terms = [r]
    for rows in s["hessian"]:
        terms.append(terms[-1] - eta * problem.hessian(x, y, rows) @ terms[-1])
    return implicit(problem, x, y, eta * np.sum(terms, axis=0), grad_x, s["cross"])


def randomised(problem, x, y, s, terms, step):
    """TTSA's ĥ: v = N·s·Π_{j≤q}(I − sH(ζ_j))∇_y f."""
    grad_x, grad_y = problem.grads_f(x, y, s["f"])
    product = np.eye(len(y))
    for rows in s["hessian"][: s["length"]]:
        product = (np.eye(len(y)) - step * problem.hessian(x, y, rows)) @ product
    return implicit(problem, x, y, terms * step * product @ grad_y, grad_x, s["cross"])


def neumann(problem, x, y, s, scale):
    """UniBiO's ĥ: Σ_q Π_j (I − D H(ζ_j)/C) D∇_y f / C in Horner's order, the innermost factor first."""
    grad_x, grad_y = problem.grads_f(x, y, s["f"])
    d = np.diag(1 / ((problem.p - 1) * np.abs(y) ** (problem.p - 2)))
    u = d @ grad_y
    for rows in s["hessian"]:
        u = d @ grad_y + (np.eye(len(y)) - d @ problem.hessian(x, y, rows) / scale) @ u
    return implicit(problem, x, y, u / scale, grad_x, s["cross"])


def solved(problem, x, y, s):
    """∇_x f − A H⁻¹∇_y f, each on its batch."""
    grad_x, grad_y = problem.grads_f(x, y, s["f"])
    return implicit(problem, x, y, np.linalg.solve(problem.hessian(x, y, s["hessian"]), grad_y), grad_x, s["cross"])


def normalised(m):
    size = np.linalg.norm(m)
    return m / size if size > 0 else m


def unibio(problem, x, y, start, samples, *, warm, lower, estimate, eta, beta, period, move=normalised, project=None):
    """`warm` and `lower` solve the lower level: (problem, x, y, batches) ↦ y; η is a function of t."""
    y, m = warm(problem, x, y, start), 0.0
    for t, s in enumerate(samples):
        if (t + 1) % period == 0:
            y = lower(problem, x, y, s["lower"])
        h = estimate(problem, x, y, s)
        m = beta * m + (1 - beta) * h
        x = x - eta(t) * move(m)
        x = x if project is None else project(x)
        yield {"x": x, "y": y, "momentum": m, "d": m}


def stocbio(problem, x, y, start, samples, *, beta, alpha, eta):
    for s in samples:
        y = sgd(problem, x, y, s["lower"], alpha)
        h = nested(problem, x, y, s, eta)
        x = x - beta * h
        yield {"x": x, "y": y, "d": h}


def ttsa(problem, x, y, start, samples, *, alpha, a, beta, b, terms, step, project):
    for k, s in enumerate(samples):
        y = y - beta * (1 + k) ** -b * problem.grad_g(x, y, s["lower"])
        h = randomised(problem, x, y, s, terms, step)
        x = project(x - alpha * (1 + k) ** -a * h)
        yield {"x": x, "y": y, "d": h}


def three_directions(problem, x, y, v, s):
    grad_x, grad_y = problem.grads_f(x, y, s["f"])
    hessian, cross = problem.hessian(x, y, s["g"]), problem.cross(x, y, s["g"])
    return problem.grad_g(x, y, s["g"]), hessian @ v - grad_y, grad_x - cross @ v


def soba(problem, x, y, start, samples, *, gamma, a, rho, b):
    v = np.zeros_like(y)
    for t, s in enumerate(samples):
        d_y, d_v, d_x = three_directions(problem, x, y, v, s)
        small = rho * (1 + t) ** -b
        x, y, v = x - gamma * (1 + t) ** -a * d_x, y - small * d_y, v - small * d_v
        yield {"x": x, "y": y, "v": v, "d": d_x}


def saba(problem, x, y, start, samples, *, gamma, rho, slots):
    """Two tables of the points at which each slot was last seen; every φ_i is evaluated afresh there."""
    v = np.zeros_like(y)
    seen_f, seen_g = [(x, y, v)] * len(slots), [(x, y, v)] * len(slots)

    def saga(phi, seen, i):
        old = [phi(*seen[j], slots[j]) for j in range(len(slots))]
        return phi(x, y, v, slots[i]) - old[i] + np.mean(old, axis=0)

    for s in samples:
        i, j = s["f"], s["g"]
        grad_x = saga(lambda x, y, v, rows: problem.grads_f(x, y, rows)[0], seen_f, i)
        grad_y = saga(lambda x, y, v, rows: problem.grads_f(x, y, rows)[1], seen_f, i)
        grad_g = saga(lambda x, y, v, rows: problem.grad_g(x, y, rows), seen_g, j)
        hv = saga(lambda x, y, v, rows: problem.hessian(x, y, rows) @ v, seen_g, j)
        av = saga(lambda x, y, v, rows: problem.cross(x, y, rows) @ v, seen_g, j)
        seen_f[i] = seen_g[j] = (x, y, v)
        x, y, v = x - gamma * (grad_x - av), y - rho * grad_g, v - rho * (hv - grad_y)
        yield {"x": x, "y": y, "v": v, "d": grad_x - av}


def ma_soba(problem, x, y, start, samples, *, alpha, beta, gamma, theta):
    v, h = np.zeros_like(y), np.zeros_like(x)
    for s in samples:
        d_y, d_v, d_x = three_directions(problem, x, y, v, s)
        x, y, v, h = x - alpha * h, y - beta * d_y, v - gamma * d_v, (1 - theta) * h + theta * d_x
        yield {"x": x, "y": y, "v": v, "h": h, "d": h}


def sustain(problem, x, y, start, samples, *, alpha, beta, r, eta_f, eta_g, terms, step):
    before, h_f, h_g = (x, y), None, None
    for k, s in enumerate(samples):
        new_f, new_g = randomised(problem, x, y, s, terms, step), problem.grad_g(x, y, s["lower"])
        if k == 0:
            h_f, h_g = new_f, new_g
        else:
            w_f, w_g = eta_f * k ** (-2 * r), eta_g * k ** (-2 * r)
            old_f, old_g = randomised(problem, *before, s, terms, step), problem.grad_g(*before, s["lower"])
            h_f = w_f * new_f + (1 - w_f) * (h_f + new_f - old_f)
            h_g = w_g * new_g + (1 - w_g) * (h_g + new_g - old_g)
        before = (x, y)
        x, y = x - alpha * (1 + k) ** -r * h_f, y - beta * (1 + k) ** -r * h_g
        yield {"x": x, "y": y, "h_f": h_f, "h_g": h_g, "d": h_f}


def vrbo(problem, x, y, start, samples, *, alpha, beta, q, eta):
    def both(point, s):
        x, y = point
        return nested(problem, x, y, s, eta), problem.grad_g(x, y, s["lower"])

    v = u = None
    for k, s in enumerate(samples):
        if k % q == 0:
            v, u = both((x, y), s["large"])
        used = v
        path = [(x, y), (x - alpha * v, y)]
        for small in s["small"]:
            here, before = both(path[-1], small), both(path[-2], small)
            v, u = v + here[0] - before[0], u + here[1] - before[1]
            path.append((path[-1][0], path[-1][1] - beta * u))
        x, y = path[-2]  # m + 1 corrections, the last of them at the point that m steps of y led to
        yield {"x": x, "y": y, "v": v, "u": u, "d": used}


def bo_rep(problem, x, y, start, samples, *, eta, beta, period, lower, refinement, nu):
    y, v, m = refinement(problem, x, y, start), np.zeros_like(y), np.zeros_like(x)
    for k, s in enumerate(samples):
        if k % period == 0:
            y = lower(problem, x, y, s["lower"])
        _, d_v, d_x = three_directions(problem, x, y, v, s)
        m = beta * m + (1 - beta) * d_x
        v = v - nu * d_v
        x = x - eta * normalised(m)
        yield {"x": x, "y": y, "v": v, "momentum": m, "d": m}


def amigo(problem, x, y, start, samples, *, gamma, alpha, beta):
    v = np.zeros_like(y)
    for s in samples:
        y = sgd(problem, x, y, s["lower"], alpha)
        grad_x, grad_y = problem.grads_f(x, y, s["f"])
        for rows in s["hessian"]:
            v = v - beta * (problem.hessian(x, y, rows) @ v - grad_y)
        h = implicit(problem, x, y, v, grad_x, s["cross"])
        x = x - gamma * h
        yield {"x": x, "y": y, "v": v, "d": h}


def f2sa(problem, x, y, start, samples, *, xi, a, gamma, c, lam):
    z = y
    for k, s in enumerate(samples):
        gamma_k, lam_k = gamma * (1 + k) ** -c, lam * (1 + k) ** (a - c)
        alpha_k = gamma_k / (2 * lam_k)
        z = sgd(problem, x, z, s["z"], gamma_k)
        for rows_f, rows_g in zip(s["y_f"], s["y_g"], strict=True):
            y = y - alpha_k * (problem.grads_f(x, y, rows_f)[1] + lam_k * problem.grad_g(x, y, rows_g))
        gap = problem.grad_x_g(x, y, s["x_y"]) - problem.grad_x_g(x, z, s["x_z"])
        h = problem.grads_f(x, y, s["x_f"])[0] + lam_k * gap
        x = x - xi * (1 + k) ** -a * h
        yield {"x": x, "y": z, "penalised": y, "d": h}
