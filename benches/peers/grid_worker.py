"""Cells of a grid in PyTorch: a class left out, a fold tested, softmax or Deep-MCDD.

Started by grid.py with a JSON description as the only argument. It reads the data once, takes a few steps with each
method (which compiles them, if asked to), writes one line {"ready": ...}, and then answers every line {"cell": [method,
class, fold]} with one line of JSON: the results of that cell. It ends when standard input does.
"""

import math
import time

# Threads, denormals and the output are set up there, before PyTorch starts.
from torch_worker import BATCH, LR, TRACE, F, Net, loss_of, serve, spec, torch
from train_worker import functional_step, make_step, read, scaled, split

FOLDS = 5
# A Python number would be compiled into the graph as a constant.
RATE = torch.tensor(LR) if spec["kind"].startswith("fullgraph") else LR


class Softmax(Net):
    """The same network; the parameters of the head are those of a linear layer."""

    def forward(self, x):
        return F.linear(self.latent(x), self.mu, self.b)


def cross_entropy(logits, _, y):
    return F.cross_entropy(logits, y)


def compiled(step):
    """For full batches, and for the last batch of an epoch, whose size differs from cell to cell."""
    options = {"fullgraph": True, "dynamic": False, "options": {"cpp_wrapper": spec["kind"] == "fullgraph-cpp"}}

    # A separate function, so that full batches never use the graph for dynamic sizes, which is slower.
    rest = torch.compile(lambda index, rate: step(index, rate), **options)

    def any_size(index, rate):
        torch._dynamo.mark_dynamic(index, 0)
        return rest(index, rate)

    return torch.compile(step, **options), any_size


class Method:
    def __init__(self, net, loss, x, y):
        self.net = net
        if spec["kind"] == "eager":
            self.step, self.forget = make_step(net, x, y, loss)
            self.rest = self.step
        else:
            step, state = functional_step(net, x, y, loss)
            self.step, self.rest = compiled(step)
            self.forget = lambda: [s.zero_() for s in state]

    @torch.no_grad()
    def begin(self):
        """Xavier-uniform weights and biases of 0, as in mcdd."""
        self.forget()
        for p in self.net.parameters():
            torch.nn.init.xavier_uniform_(p) if p.dim() == 2 else p.zero_()

    def epoch(self, rows):
        """One pass over the rows in batches of 200; the last has the remaining rows."""
        losses = []
        for index in rows[torch.randperm(len(rows))].split(BATCH):
            losses.append((self.step if len(index) == BATCH else self.rest)(index, RATE))
        return losses


def msp(logits):
    """(confidence, class): the largest posterior as log-odds in f64, because a probability would saturate at 1."""
    top, k = logits.double().max(1)
    others = logits.double().scatter(1, k.unsqueeze(1), -math.inf)
    return top - others.logsumexp(1), k


def auroc(known, unknown):
    """The fraction of pairs in the right order; ties count half."""
    unknown = unknown.sort()[0]
    below = torch.searchsorted(unknown, known) + torch.searchsorted(unknown, known, right=True)
    return below.double().mean().item() / 2 / len(unknown)


class Grid:
    def __init__(self):
        self.table, self.labels = read(spec["files"])
        self.classes = int(self.labels.max()) + 1
        # Every cell writes its values here, because graphs need the same tensors all the time.
        self.x, self.y = self.table.float(), self.labels.clone()
        nets = {"softmax+msp": (Softmax, cross_entropy), "deep-mcdd": (Net, loss_of)}
        self.methods = {
            name: Method(net(self.x.shape[1], self.classes - 1, "matmul"), loss, self.x, self.y)
            for name, (net, loss) in nets.items()
        }

    def split(self, unknown, fold):
        """Row indices for training, for testing and of the left-out class. Every fifth row of a class is in the fold. A
        tenth of the other rows of each class is not used, because mcdd uses it for calibration."""
        order = torch.Generator().manual_seed(0)
        kept = [k for k in range(self.classes) if k != unknown]
        rows = [(self.labels == k).nonzero()[:, 0] for k in kept]
        rows = torch.cat([r[torch.randperm(len(r), generator=order)] for r in rows])
        tested = torch.arange(len(rows)) % FOLDS == fold
        learned, test = rows[~tested].sort()[0], rows[tested]
        self.y.copy_(self.labels - (self.labels > unknown).long())
        train, _ = split(self.y[learned])
        return learned[train], test, (self.labels == unknown).nonzero()[:, 0]

    def prepare(self, unknown, fold):
        train, test, left_out = self.split(unknown, fold)
        self.x.copy_(scaled(self.table, train, math.inf))
        return train, test, left_out

    def score(self, name, rows):
        with torch.inference_mode():
            out = self.methods[name].net(self.x[rows])
            if name == "softmax+msp":
                return msp(out)
            # The class by D - b, the confidence by D alone (Eq. 7).
            return -out.min(1)[0], (self.methods[name].net.b - out).argmax(1)

    def cell(self, cell):
        name, unknown, fold = cell
        method = self.methods[name]
        train, test, left_out = self.prepare(unknown, fold)
        method.begin()
        for _ in range(spec["epochs"]):
            method.epoch(train)
        known, k = self.score(name, test)
        right = (k == self.y[test]).double().mean().item()
        return {"accuracy": right, "auroc": auroc(known, self.score(name, left_out)[0]),
                "rows": [len(train), len(test), len(left_out)]}

    def try_out(self):
        """Losses of the first steps of each method, and the extra time of the first pass over the rows."""
        train, *_ = self.prepare(0, 0)
        losses, compiling = [], 0.0
        for method in self.methods.values():
            torch.manual_seed(0)
            method.begin()
            start = time.perf_counter()
            losses += [loss.item() for loss in method.epoch(train)][:TRACE]
            middle = time.perf_counter()
            method.epoch(train)
            compiling += 2 * middle - start - time.perf_counter()
        return {"losses": losses, "compiling": compiling}


grid = Grid()
serve(grid.cell, grid.try_out(), "cell")
