"""`tenuto check`: is this machine fit to train? Its parts are looked at first. Then a small model is trained on every kind of
slot, killed, resumed and compared bit for bit, on a cluster of its own that leaves nothing behind."""
