"""The whole training of one network in PyTorch, in a process of its own.

Started by train_default.py with a JSON description as the only argument. It reads and scales the data, takes a few
steps (which compiles them, if asked to), writes one line {"ready": ...}, and then answers every line on standard input
with one line of JSON: the seconds of a whole training from the same initial weights, and its accuracy on the
validation rows. It ends when standard input does.
"""

import math
import time
from pathlib import Path

# Threads, denormals and the output are set up there, before PyTorch starts.
from torch_worker import TRACE, adam_in_graph, loss_of, serve, spec, torch

BATCH, WIDTH, LATENT = 200, 128, 32
EPOCHS, LR = 100, 3e-3
HOLDOUT, CLIP = 0.1, 5.0


class Net(torch.nn.Module):
    """d -> 128 -> BatchNorm -> ReLU -> 128 -> BatchNorm -> ReLU -> 32, and the distances to the class centers.

    sigma is fixed at 1, so D_k = ||z - mu_k||^2 / 2 and there is no division.
    """

    def __init__(self, inputs, classes):
        super().__init__()
        nn = torch.nn
        self.net = nn.Sequential(
            nn.Linear(inputs, WIDTH, bias=False), nn.BatchNorm1d(WIDTH), nn.ReLU(),
            nn.Linear(WIDTH, WIDTH, bias=False), nn.BatchNorm1d(WIDTH), nn.ReLU(),
            nn.Linear(WIDTH, LATENT),
        )
        self.mu = nn.Parameter(nn.init.xavier_uniform_(torch.empty(classes, LATENT)))
        self.b = nn.Parameter(torch.zeros(classes))

    def forward(self, x):
        z = self.net(x)
        if spec["distance"] == "broadcast":
            return 0.5 * (z.unsqueeze(1) - self.mu).pow(2).sum(2)
        squares = 0.5 * z.square().sum(1, keepdim=True) + 0.5 * self.mu.square().sum(1)
        return squares - z @ self.mu.t()


def read(files):
    """(x, y) of "label index:value" files; classes are numbered in the order of their labels."""
    labels, cells = [], []
    for file in files:
        for line in Path(file).read_text().splitlines():
            label, *pairs = line.split()
            labels.append(float(label))
            cells.append([(int(i), float(v)) for i, v in (pair.split(":") for pair in pairs)])
    x = torch.zeros(len(cells), max(i for row in cells for i, _ in row), dtype=torch.float64)
    for row, of_row in zip(x, cells):
        row[[i - 1 for i, _ in of_row]] = torch.tensor([v for _, v in of_row], dtype=torch.float64)
    return x, torch.tensor(labels, dtype=torch.float64).unique(return_inverse=True)[1]


def split(y):
    """Row indices for training and validation: a random tenth of each class, as in mcdd, is for validation."""
    order = torch.Generator().manual_seed(0)
    train, held = [], []
    for k in range(int(y.max()) + 1):
        rows = (y == k).nonzero()[:, 0]
        rows = rows[torch.randperm(len(rows), generator=order)]
        count = min(int(HOLDOUT * len(rows) + 0.5), len(rows) - 1)
        held.append(rows[:count])
        train.append(rows[count:])
    return torch.cat(train), torch.cat(held)


def scaled(x, train, clip=CLIP):
    """Standardized on the training rows and clipped at +-clip, in f32."""
    mean, deviation = x[train].mean(0), x[train].std(0, correction=0)
    deviation[deviation == 0] = 1
    return ((x - mean) / deviation).clamp(-clip, clip).float()


def make_step(net, x, y, loss_of=loss_of):
    """(step, reset): step maps the indices of a batch and a learning rate to the loss; reset clears the state of Adam."""
    kind, fused = spec["kind"], spec["adam"] == "fused"
    # Batches have two sizes. A graph for each is faster than one for dynamic sizes.
    options = {"dynamic": False, "options": {"cpp_wrapper": True} if kind == "fullgraph-cpp" else None}
    if kind.startswith("fullgraph"):
        step, state = functional_step(net, x, y, loss_of)
        return torch.compile(step, fullgraph=True, **options), lambda: [s.zero_() for s in state]

    optimizer = torch.optim.Adam(net.parameters(), lr=LR, fused=True if fused else None)
    group = optimizer.param_groups[0]

    def loss_fn(x, y):
        return loss_of(net(x), net.b, y)

    if kind == "compile":
        loss_fn = torch.compile(loss_fn, **options)

    def step(index, rate):
        # Set by hand, which is cheaper than a scheduler.
        group["lr"] = rate
        optimizer.zero_grad()
        loss = loss_fn(x[index], y[index])
        loss.backward()
        optimizer.step()
        return loss

    return step, optimizer.state.clear


def functional_step(net, x, y, loss_of=loss_of):
    """Gather, forward, backward, running statistics and Adam as one function that compiles to a single graph."""
    params = {name: p.detach() for name, p in net.named_parameters()}
    buffers = dict(net.named_buffers())
    update, state = adam_in_graph(params)

    def loss_fn(p, x, y):
        # BatchNorm updates these in place, so they must be copies here. They are copied back below.
        moved = {name: b.clone() for name, b in buffers.items()}
        return loss_of(torch.func.functional_call(net, (p, moved), (x,)), p["b"], y), moved

    def step(index, rate):
        grads, (loss, moved) = torch.func.grad_and_value(loss_fn, has_aux=True)(params, x[index], y[index])
        update(grads, rate)
        with torch.no_grad():
            for name, b in buffers.items():
                b.copy_(moved[name])
        return loss

    return step, state


class Training:
    def __init__(self):
        x, y = read(spec["files"])
        train, held = split(y)
        x = scaled(x, train)
        self.held = x[held], y[held]
        self.rows = len(train)
        self.batches = -(-self.rows // BATCH)
        torch.manual_seed(0)
        self.net = Net(x.shape[1], int(y.max()) + 1)
        self.first = {name: v.clone() for name, v in self.net.state_dict().items()}
        self.step, self.forget = make_step(self.net, x[train], y[train])
        steps = EPOCHS * self.batches
        self.rates = [LR * 0.5 * (1 + math.cos(math.pi * i / steps)) for i in range(steps)]
        if spec["kind"].startswith("fullgraph"):
            # A Python number would be compiled into the graph as a constant.
            self.rates = list(torch.tensor(self.rates).unbind())

    def reset(self):
        self.net.load_state_dict(self.first)
        self.net.train()
        self.forget()
        self.order = torch.Generator().manual_seed(1)
        self.taken = 0

    def epoch(self):
        """One pass over the rows in batches of 200 or a little less, whose sizes differ by at most one row."""
        losses = []
        for index in torch.randperm(self.rows, generator=self.order).tensor_split(self.batches):
            losses.append(self.step(index, self.rates[self.taken]))
            self.taken += 1
        return losses

    def accuracy(self):
        self.net.eval()
        with torch.no_grad():
            x, y = self.held
            return ((self.net.b - self.net(x)).argmax(1) == y).float().mean().item()

    def measure(self, _):
        self.reset()
        start = time.perf_counter()
        for _ in range(EPOCHS):
            self.epoch()
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "accuracy": self.accuracy()}


if __name__ == "__main__":
    training = Training()
    training.reset()
    begin = time.perf_counter()
    losses = [loss.item() for loss in training.epoch()]
    first_epoch = time.perf_counter() - begin
    begin = time.perf_counter()
    training.epoch()
    # The extra time of the first pass over the rows.
    compiling = first_epoch - (time.perf_counter() - begin)
    serve(training.measure, {"losses": losses[:TRACE], "compiling": compiling, "rows": training.rows,
                             "held": len(training.held[1]), "steps": EPOCHS * training.batches})
