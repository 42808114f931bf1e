"""Lightning under the search: `from tenuto.lightning import fit`, then `fit(trainer, module, run, train_dataloaders=...)`."""

from tenuto.workers.integrations.lightning import TenutoCallback, fit

__all__ = ["TenutoCallback", "fit"]
