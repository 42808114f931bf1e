"""Work of the gateway outside its views and its REST interface: files, other processes, the log, stores, targets of notices."""
