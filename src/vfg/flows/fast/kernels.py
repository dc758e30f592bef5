"""The kernels of `fused`, in triton; imported when a kernel first runs."""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def _hidden(
    x,
    w,
    noise,
    edge,
    at,
    here,
    rows,
    h,
    shift,
    HIDDEN: tl.constexpr,
    LEVEL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """A hidden layer of some rows, `(rows, hidden)`."""
    z = tl.maximum(tl.dot(x, w, input_precision=PRECISION) + shift, 0.0)
    if LEVEL > 0:
        place = (edge * rows + at)[:, None] * HIDDEN + h[None, :]
        byte = tl.load(noise + place, mask=here[:, None] & (h[None, :] < HIDDEN), other=0)
        z = tl.where(byte.to(tl.int32) >= LEVEL, z, 0.0)
    return z


@triton.jit
def _load(source, edge, r, c, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The matrix `(rows, columns)` of one edge, with zeros beyond its sides."""
    is_inside = (r[:, None] < ROWS) & (c[None, :] < COLUMNS)
    return tl.load(
        source + (edge * ROWS + r[:, None]) * COLUMNS + c[None, :], mask=is_inside, other=0.0
    )


@triton.jit
def _store(target, number, r, c, value, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Store a matrix `(rows, columns)` as the one with this number."""
    is_inside = (r[:, None] < ROWS) & (c[None, :] < COLUMNS)
    tl.store(target + (number * ROWS + r[:, None]) * COLUMNS + c[None, :], value, mask=is_inside)


@triton.jit
def _back_through_inner(g, v, z, z_two, u, PRECISION: tl.constexpr):
    """Derivatives by the second hidden layer before ReLU, the inner weights and the first layer."""
    gz_two = tl.dot(g, v, input_precision=PRECISION)
    gz_two = tl.where(z_two > 0.0, gz_two, 0.0)
    low = gz_two.to(u.dtype)
    du = tl.dot(tl.trans(z.to(u.dtype)), low, input_precision=PRECISION)
    return gz_two, du, tl.dot(low, tl.trans(u), input_precision=PRECISION)


@triton.jit
def conditioner_forward(
    inputs,
    first,
    inner,
    shift,
    last,
    bias,
    noise_one,
    noise_two,
    numbers,
    rows,
    LEVEL: tl.constexpr,
    INPUTS: tl.constexpr,
    HIDDEN: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS_UP: tl.constexpr,
    HIDDEN_UP: tl.constexpr,
    OUTPUTS_UP: tl.constexpr,
    HAS_INNER: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The numbers of some rows of one edge."""
    edge = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    i, h, o = tl.arange(0, INPUTS_UP), tl.arange(0, HIDDEN_UP), tl.arange(0, OUTPUTS_UP)
    here, is_hidden, is_output = at < rows, h < HIDDEN, o < OUTPUTS

    x_place = (edge * INPUTS + i[None, :]) * rows + at[:, None]
    x = tl.load(inputs + x_place, mask=here[:, None] & (i < INPUTS)[None, :], other=0.0)
    w = _load(first, edge, i, h, INPUTS, HIDDEN)
    z = _hidden(x.to(w.dtype), w, noise_one, edge, at, here, rows, h, 0.0, HIDDEN, LEVEL, PRECISION)
    if HAS_INNER:
        u = _load(inner, edge, h, h, HIDDEN, HIDDEN)
        b = tl.load(shift + edge * HIDDEN + h, mask=is_hidden, other=0.0).to(tl.float32)
        z = _hidden(
            z.to(u.dtype), u, noise_two, edge, at, here, rows, h, b[None, :], HIDDEN, LEVEL,
            PRECISION,
        )  # fmt: skip
    v_place = (edge * OUTPUTS + o[None, :]) * HIDDEN + h[:, None]
    v = tl.load(last + v_place, mask=is_hidden[:, None] & is_output[None, :], other=0.0)
    b_last = tl.load(bias + edge * OUTPUTS + o, mask=is_output, other=0.0)
    y = tl.dot(z.to(v.dtype), v, input_precision=PRECISION) + b_last[None, :]
    y_place = (edge * OUTPUTS + o[None, :]) * rows + at[:, None]
    tl.store(numbers + y_place, y, mask=here[:, None] & is_output[None, :])


@triton.jit
def conditioner_backward(
    inputs,
    first,
    inner,
    shift,
    last,
    bias,
    noise_one,
    noise_two,
    gradient,
    by_inputs,
    by_first,
    by_last,
    by_inner,
    by_shift,
    rows,
    LEVEL: tl.constexpr,
    INPUTS: tl.constexpr,
    HIDDEN: tl.constexpr,
    OUTPUTS: tl.constexpr,
    INPUTS_UP: tl.constexpr,
    HIDDEN_UP: tl.constexpr,
    OUTPUTS_UP: tl.constexpr,
    HAS_INNER: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Derivatives by the inputs of some blocks of rows of one edge, and their sums by weights."""
    part, parts = tl.program_id(0), tl.num_programs(0)
    edge, edges = tl.program_id(1).to(tl.int64), tl.num_programs(1)
    i, h, o = tl.arange(0, INPUTS_UP), tl.arange(0, HIDDEN_UP), tl.arange(0, OUTPUTS_UP)
    w = _load(first, edge, i, h, INPUTS, HIDDEN)
    v = _load(last, edge, o, h, OUTPUTS, HIDDEN)
    dw = tl.zeros((INPUTS_UP, HIDDEN_UP), dtype=tl.float32)
    dv = tl.zeros((OUTPUTS_UP, HIDDEN_UP), dtype=tl.float32)
    if HAS_INNER:
        u = _load(inner, edge, h, h, HIDDEN, HIDDEN)
        b = tl.load(shift + edge * HIDDEN + h, mask=h < HIDDEN, other=0.0).to(tl.float32)
        du = tl.zeros((HIDDEN_UP, HIDDEN_UP), dtype=tl.float32)
        db = tl.zeros((HIDDEN_UP,), dtype=tl.float32)

    for start in range(part * BLOCK, rows, parts * BLOCK):
        at = start + tl.arange(0, BLOCK)
        here = at < rows
        x_place = (edge * INPUTS + i[None, :]) * rows + at[:, None]
        is_x = here[:, None] & (i < INPUTS)[None, :]
        x = tl.load(inputs + x_place, mask=is_x, other=0.0).to(w.dtype)
        g_place = (edge * OUTPUTS + o[None, :]) * rows + at[:, None]
        g = tl.load(gradient + g_place, mask=here[:, None] & (o < OUTPUTS)[None, :], other=0.0)
        g = g.to(v.dtype)
        z = _hidden(x, w, noise_one, edge, at, here, rows, h, 0.0, HIDDEN, LEVEL, PRECISION)
        if HAS_INNER:
            z_two = _hidden(
                z.to(u.dtype), u, noise_two, edge, at, here, rows, h, b[None, :], HIDDEN, LEVEL,
                PRECISION,
            )  # fmt: skip
            dv += tl.dot(tl.trans(g), z_two.to(v.dtype), input_precision=PRECISION)
            gz_two, more, gz = _back_through_inner(g, v, z, z_two, u, PRECISION)
            db += tl.sum(gz_two, axis=0)
            du += more
        else:
            dv += tl.dot(tl.trans(g), z.to(v.dtype), input_precision=PRECISION)
            gz = tl.dot(g, v, input_precision=PRECISION)
        gz = tl.where(z > 0.0, gz, 0.0).to(w.dtype)
        dw += tl.dot(tl.trans(x), gz, input_precision=PRECISION)
        gx = tl.dot(gz, tl.trans(w), input_precision=PRECISION)
        tl.store(by_inputs + x_place, gx, mask=is_x)

    own = part * edges + edge
    _store(by_first, own, i, h, dw, INPUTS, HIDDEN)
    _store(by_last, own, o, h, dv, OUTPUTS, HIDDEN)
    if HAS_INNER:
        _store(by_inner, own, h, h, du, HIDDEN, HIDDEN)
        tl.store(by_shift + own * HIDDEN + h, db, mask=h < HIDDEN)
