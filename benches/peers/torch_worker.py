"""One PyTorch configuration in a process of its own.

Started by mlp_step.py with a JSON description as the only argument (train_worker.py and
grid_worker.py import this setup and more from here). It builds the
configuration, compiles it if asked to, writes one line {"ready": ...}, and then answers
every line {"seconds": S} on standard input with one line of JSON on standard output.
It ends when standard input does.
"""

import gc
import json
import os
import sys
import time

BATCH = 200
ROWS = 6000
WIDTH = 128
LR, BETA1, BETA2, EPS = 1e-3, 0.9, 0.999, 1e-8
TRACE = 10

spec = json.loads(sys.argv[1])
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(spec["threads"])
# Compile inside this process, so that no pool of processes remains that could disturb others.
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

# Answers go to the original standard output; anything a library prints goes to standard error.
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

# Moments of dead units decay into denormal numbers, which are slow. Threads inherit the
# setting, so it must precede the start of the pool.
torch.set_flush_denormal(True)
torch.set_num_threads(spec["threads"])


class Net(torch.nn.Module):
    """d -> 128 -> 128 -> 128 and the distances to the class centers.

    sigma is fixed at 1, so D_k = ||z - mu_k||^2 / 2. The division and the logarithm are left
    out, in PyTorch's favor.
    """

    def __init__(self, inputs, classes, distance):
        super().__init__()
        self.l1 = torch.nn.Linear(inputs, WIDTH)
        self.l2 = torch.nn.Linear(WIDTH, WIDTH)
        self.l3 = torch.nn.Linear(WIDTH, WIDTH)
        self.mu = torch.nn.Parameter(torch.randn(classes, WIDTH) * 0.1)
        self.b = torch.nn.Parameter(torch.zeros(classes))
        self.distance = distance

    def latent(self, x):
        return self.l3(F.relu(self.l2(F.relu(self.l1(x)))))

    def forward(self, x):
        z = self.latent(x)
        if self.distance == "broadcast":
            return 0.5 * (z.unsqueeze(1) - self.mu).pow(2).sum(2)
        squares = 0.5 * z.square().sum(1, keepdim=True) + 0.5 * self.mu.square().sum(1)
        return squares - z @ self.mu.t()


def loss_of(distances, bias, y):
    """mean D_y + (1/nu) cross-entropy(-D + b), nu = 1."""
    return distances.gather(1, y.unsqueeze(1)).mean() + F.cross_entropy(bias - distances, y)


def compile_options(kind):
    if kind == "autotune":
        return {"mode": "max-autotune-no-cudagraphs"}
    if kind == "fullgraph-cpp":
        return {"options": {"cpp_wrapper": True}}
    return {}


def make_step(net, x_all, y_all):
    """A function from the indices of a batch to the loss of the step."""
    kind, fused = spec["kind"], spec["adam"] == "fused"
    options = compile_options(kind)
    if kind.startswith("fullgraph"):
        return torch.compile(functional_step(net, x_all, y_all), fullgraph=True, **options)

    optimizer = torch.optim.Adam(net.parameters(), lr=LR, fused=True if fused else None)

    def loss_fn(x, y):
        return loss_of(net(x), net.b, y)

    update = optimizer.step
    if kind != "eager":
        loss_fn = torch.compile(loss_fn, **options)
    if kind == "compile+adam":
        update = torch.compile(lambda: optimizer.step())

    def step(index):
        x, y = x_all[index], y_all[index]
        optimizer.zero_grad()
        loss = loss_fn(x, y)
        loss.backward()
        update()
        return loss

    return step


def adam_in_graph(params):
    """update(gradients, rate) for a step that compiles to a single graph.

    The update of torch.optim cannot be traced this way (the multi-tensor form and the fused operator
    both fail to compile), so Adam is written out, and the compiler fuses it. Also returns the state,
    which is 0 at first.
    """
    first = [torch.zeros_like(p) for p in params.values()]
    second = [torch.zeros_like(p) for p in params.values()]
    count = torch.zeros(())

    def update(grads, lr):
        with torch.no_grad():
            count.add_(1)
            rate = lr / (1 - BETA1**count)
            scale = (1 - BETA2**count).rsqrt()
            for (name, p), m, v in zip(params.items(), first, second):
                g = grads[name]
                m.lerp_(g, 1 - BETA1)
                v.mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
                p.sub_(rate * m / (v.sqrt() * scale + EPS))

    return update, [*first, *second, count]


def functional_step(net, x_all, y_all):
    """Gather, forward, backward and Adam as one function that compiles to a single graph."""
    params = {name: p.detach() for name, p in net.named_parameters()}
    update, _ = adam_in_graph(params)

    def loss_fn(p, x, y):
        return loss_of(torch.func.functional_call(net, p, (x,)), p["b"], y)

    def step(index):
        grads, loss = torch.func.grad_and_value(loss_fn)(params, x_all[index], y_all[index])
        update(grads, LR)
        return loss

    return step


def batches():
    order = torch.Generator().manual_seed(1)
    while True:
        yield from torch.randperm(ROWS, generator=order).split(BATCH)


def build_step():
    torch.manual_seed(0)
    x_all = torch.randn(ROWS, spec["input"])
    y_all = torch.randint(spec["classes"], (ROWS,))
    net = Net(spec["input"], spec["classes"], spec["distance"])
    step = make_step(net, x_all, y_all)
    source = batches()
    trace = [step(next(source)).item() for _ in range(TRACE)]

    def measure(seconds):
        warm = time.perf_counter() + 0.08
        while time.perf_counter() < warm:
            step(next(source))
        count, start = 0, time.perf_counter()
        while True:
            step(next(source))
            count += 1
            elapsed = time.perf_counter() - start
            if elapsed >= seconds:
                return {"steps": count, "seconds": elapsed, "us": elapsed / count * 1e6}

    return measure, trace


def build_predict():
    """A function from one row to its class and its smallest distance, as tensors."""
    torch.manual_seed(0)
    rows = torch.randn(ROWS, spec["input"]).split(1)
    net = Net(spec["input"], spec["classes"], spec["distance"]).eval().requires_grad_(False)

    def predict(x):
        return net(x).min(1)

    if spec["kind"] == "freezing":
        import torch._inductor.config as inductor

        inductor.freezing = True
    if spec["kind"] != "eager":
        predict = torch.compile(predict, **compile_options(spec["kind"]))
    with torch.inference_mode():
        trace = [predict(x)[0].item() for x in rows[:TRACE]]

    @torch.inference_mode()
    def measure(seconds):
        for x in rows[:200]:
            predict(x)
        count, start = 0, time.perf_counter()
        while True:
            for x in rows[:100]:
                predict(x)
            count += 100
            elapsed = time.perf_counter() - start
            if elapsed >= seconds:
                return {"steps": count, "seconds": elapsed, "us": elapsed / count * 1e6}

    return measure, trace


def build_peak():
    """The best single float32 matrix product, in GFLOP/s."""
    operands = [(n, torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)) for n in (1024, 2048)]

    def measure(seconds):
        best, end = 0.0, time.perf_counter() + seconds
        while True:
            for n, a, b, out in operands:
                start = time.perf_counter()
                torch.mm(a, b, out=out)
                best = max(best, 2.0 * n**3 / (time.perf_counter() - start) / 1e9)
            if time.perf_counter() >= end:
                return {"gflops": best}

    measure(0.0)
    return measure, []


def build_check():
    """Compares loss and gradients by broadcast and by matrix product, from the same weights."""
    torch.manual_seed(0)
    nets = [Net(spec["input"], spec["classes"], d) for d in ("broadcast", "matmul")]
    nets[1].load_state_dict(nets[0].state_dict())
    x, y = torch.randn(BATCH, spec["input"]), torch.randint(spec["classes"], (BATCH,))
    losses = [loss_of(net(x), net.b, y) for net in nets]
    for loss in losses:
        loss.backward()
    worst = max(
        ((p.grad - q.grad).norm() / p.grad.norm()).item()
        for p, q in zip(nets[0].parameters(), nets[1].parameters())
    )
    result = {"losses": [loss.item() for loss in losses], "gradient": worst}
    return (lambda _: result), []


def serve(measure, trace, key="seconds"):
    """Answers requests until the end of the input, then ends the process."""
    gc.collect()
    # Existing objects stay alive, so the garbage collector need not examine them between requests.
    gc.freeze()
    gc.disable()
    print(json.dumps({"ready": torch.__version__, "trace": trace}), file=answers)
    for line in sys.stdin:
        cpu = time.process_time()
        result = measure(json.loads(line)[key])
        result["cpu"] = time.process_time() - cpu
        print(json.dumps(result), file=answers)
        gc.collect()
    # There is nothing to save, and a normal exit takes seconds.
    os._exit(0)


if __name__ == "__main__":
    build = {"step": build_step, "predict": build_predict, "peak": build_peak, "check": build_check}
    serve(*build[spec["task"]]())
