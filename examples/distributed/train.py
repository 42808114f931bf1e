"""The same by a script, as one writes it for torchrun; `tenuto.init()` tells what to train, and takes the results."""

import torch
import torch.distributed as dist
from model_def import Sequences, Sorter
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import tenuto


def main() -> None:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    with tenuto.init() as run:
        if torch.cuda.is_available():
            torch.cuda.set_device(run.local_rank)
        torch.manual_seed(run.trial_seed)
        device = torch.device("cuda", run.local_rank) if torch.cuda.is_available() else torch.device("cpu")
        model = Sorter(run.hyperparameters["width"], run.hyperparameters["layers"]).to(device)
        step = 0
        parallel = DistributedDataParallel(model)
        optimizer = torch.optim.AdamW(parallel.parameters(), lr=run.hyperparameters["learning_rate"])
        if run.checkpoint.latest is not None:
            with run.checkpoint.restore() as directory:
                saved = torch.load(directory / "state.pt", map_location=device)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            step = run.checkpoint.latest.steps
        data = Sequences(0, 4096)
        sampler: DistributedSampler[Sequences] = DistributedSampler(data)
        loader = DataLoader(data, batch_size=run.hyperparameters["global_batch_size"] // run.slots, sampler=sampler)
        for operation in run.operations():
            while step < operation.steps:
                epoch, done = divmod(step, len(loader))
                sampler.set_epoch(epoch)
                for number, (digits, ordered) in enumerate(loader):
                    if number < done:
                        continue  # trained before this process began
                    loss = nn.functional.cross_entropy(parallel(digits.to(device)).flatten(0, 1), ordered.to(device).flatten())
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    step += 1
                    if run.should_report(step):
                        run.report_training(step, {"loss": loss})
                    if run.should_preempt():  # all ranks ask, and all are told in the same step
                        save(run, step, model, optimizer)
                        return
                    if step >= operation.steps:
                        break
            save(run, step, model, optimizer)
            run.report_validation(step, {"accuracy": evaluate(model, device)})


def save(run: tenuto.Run, step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    with run.checkpoint.save(step) as directory:  # what rank 0 writes is kept
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, directory / "state.pt")


@torch.no_grad()
def evaluate(model: nn.Module, device: torch.device) -> float:
    digits, ordered = next(iter(DataLoader(Sequences(1_000_000, 500), batch_size=500)))
    return float((model(digits.to(device)).argmax(dim=-1) == ordered.to(device)).float().mean())


if __name__ == "__main__":
    main()
