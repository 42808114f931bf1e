"""Steps per second of the same model, data and device in a loop without a platform, as JSON:
`python -m tenuto.checking.bare_loop WIDTH BATCH_SIZE BATCHES`. Its environment shows it the devices of one slot."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

WARM_UP_SHARE = 0.25
"""Part of the batches that is not timed: it makes caches, and chooses kernels."""


def main(arguments: list[str]) -> None:
    import torch
    from torch import nn

    sys.path.insert(0, str(Path(__file__).parent / "model"))
    import model_def  # type: ignore[import-not-found]

    width, batch_size, batches = map(int, arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.use_deterministic_algorithms(
        True, warn_only=True
    )  # as an exact trial does: the platform is compared, not what exactness costs
    torch.backends.cudnn.benchmark = False
    model = model_def.network(width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader: Any = torch.utils.data.DataLoader(model_def.records(), batch_size=batch_size, shuffle=True, drop_last=True)
    warm_up, done, begun = int(batches * WARM_UP_SHARE), 0, 0.0
    loss = torch.zeros(())
    while done < batches:
        for pictures, labels in loader:
            if done == warm_up:
                _ = loss.item()  # waits for the device
                begun = time.perf_counter()
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(pictures.to(device)), labels.to(device))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            done += 1
            if done == batches:
                break
    _ = loss.item()
    print(json.dumps({"steps_per_second": (done - warm_up) / (time.perf_counter() - begun)}))


if __name__ == "__main__":
    main(sys.argv[1:])
