"""Independent references: plain numpy, no unibio inside."""

import numpy as np


def lp_data(seed, n=60, m=60, d=8, scale=1.0):
    """The generator of the ℓ_p-regression oracle: (train, validation, weights λ), in this order of draws."""
    rng = np.random.default_rng(seed)
    w_true = rng.normal(size=d)
    features = rng.normal(size=(n, d)) * scale
    targets = features @ w_true + 0.3 * rng.normal(size=n)
    features_val = rng.normal(size=(m, d)) * scale
    targets_val = features_val @ w_true + 0.3 * rng.normal(size=m)
    return (features, targets), (features_val, targets_val), rng.normal(size=n)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lp_lower(weights, train, p, c):
    """argmin_w mean σ(λ)|Xw − t|^p + c‖w‖_p^p by damped Newton with closed-form derivatives."""
    features, targets = train
    share = sigmoid(weights) / len(targets)
    w = np.linalg.lstsq(features.T @ features + np.eye(features.shape[1]), features.T @ targets, rcond=None)[0]

    def value(w):
        return share @ np.abs(features @ w - targets) ** p + c * np.sum(np.abs(w) ** p)

    def gradient(w):
        r = features @ w - targets
        data = features.T @ (share * p * np.sign(r) * np.abs(r) ** (p - 1))
        return data + c * p * np.sign(w) * np.abs(w) ** (p - 1)

    for _ in range(300):
        now = gradient(w)
        step = -np.linalg.solve(lp_hessian(w, weights, train, p, c), now)
        size = 1.0
        while size > 1e-8 and not (
            value(w + size * step) <= value(w) + 1e-4 * size * now @ step
            or np.linalg.norm(gradient(w + size * step)) < 0.9 * np.linalg.norm(now)
        ):
            size /= 2
        if size <= 1e-8:
            break
        w = w + size * step
    return w


def lp_hessian(w, weights, train, p, c):
    features, targets = train
    share = sigmoid(weights) / len(targets)
    curvature = share * p * (p - 1) * np.abs(features @ w - targets) ** (p - 2)
    return features.T @ (curvature[:, None] * features) + np.diag(c * p * (p - 1) * np.abs(w) ** (p - 2))


def lp_phi(weights, train, validation, p, c):
    """Φ(λ)."""
    w = lp_lower(weights, train, p, c)
    return np.mean(np.abs(validation[0] @ w - validation[1]) ** p) / p


def lp_gradient(w, weights, train, validation, p, c, literal=False):
    """∇Φ in closed form at w; `literal` multiplies H and D in the order the paper prints."""
    features, targets = train
    s = sigmoid(weights)
    r = features @ w - targets
    r_val = validation[0] @ w - validation[1]
    grad_y = validation[0].T @ (np.sign(r_val) * np.abs(r_val) ** (p - 1)) / len(r_val)
    hessian = lp_hessian(w, weights, train, p, c)
    scaling = np.diag(1 / ((p - 1) * np.abs(w) ** (p - 2)))
    generalised = hessian @ scaling if literal else scaling @ hessian
    v = np.linalg.solve(generalised, scaling @ grad_y)
    return -(s * (1 - s) / len(s)) * p * np.sign(r) * np.abs(r) ** (p - 1) * (features @ v)


def slope(function, x, direction, h=1e-4):
    """Directional derivative by a central difference of fourth order."""
    f = [function(x + k * h * direction) for k in (-2, -1, 1, 2)]
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h)
